"""Calls of kernels generated from their declarations: small integers that pass checks, and data.

A declaration states what a tape's integers must satisfy, and a kernel touches nothing outside its
operands for any integers that do. So a call is found by search: starting from random integers,
storages and absent operands, one integer at a time is changed until every condition holds.
"""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UsageError
from ...formats import FORMATS, csr
from .. import control, registry
from ..cache import jit
from ..declaration.expression import Later
from ..registry import Kernel

MOST_ELEMENTS, MOST_WORK = 1024, 4000  # of an operand; iterations of the innermost loop
TRIES, RESTARTS = 3000, 50  # changes of one integer; starts of a search
CHAINED = ("sparse",)  # families whose operands need results of earlier kernels
_GROUPED = (0, 1, 1, 1, 1, 1, 2, 3)  # start values of integers in groups: products stay small
_SMALL = (0, 1, 1, 1, 2, 2, 3, 4, 5, 8, 16, 17, 33, 64, 150)


@dataclass(frozen=True)
class Call:
    """A kernel and its arguments.

    Attributes:
      places: uint8[n] of each present reference; operands may share one.
      values: integers and float32 numbers.
      lanes: of the processor that the variant is for.
      threads: number of threads of the call.
    """

    kernel: Kernel
    storages: Mapping[str, str]
    values: Mapping[str, Any]
    places: Mapping[str, np.ndarray]
    lanes: int
    threads: int = 1

    def save(self, path: Path) -> None:
        """Write the call to a file, for `load`."""
        values = {name: _plain(value) for name, value in self.values.items()}
        about: dict[str, Any] = {"kernel": self.kernel.label, "threads": self.threads}
        about |= {"storages": dict(self.storages), "values": values}
        first: dict[int, str] = {}
        shared = {n: first.setdefault(place.ctypes.data, n) for n, place in self.places.items()}
        arrays: dict[str, Any] = {f"operand_{n}": self.places[n] for n in set(shared.values())}
        np.savez(path, about=json.dumps(about | {"shared": shared}), **arrays)

    def copied(self) -> dict[str, np.ndarray]:
        """A copy of the places, for a run to write to."""
        copies = {p.ctypes.data: aligned(p) for p in self.places.values()}
        return {name: copies[place.ctypes.data] for name, place in self.places.items()}


def aligned(place: np.ndarray) -> np.ndarray:
    """A copy at an address that is a multiple of 64, like operands in an arena."""
    raw = np.empty(place.size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    raw[start : start + place.size] = place
    return raw[start : start + place.size]


class _Condition:
    """A condition on integers, storages and present operands.

    Attributes:
      integers: the integers that it reads.
      equal: an integer and the expression that it must equal; None for other conditions.
    """

    def __init__(self, text: str, search: "_Search") -> None:
        self.holds = Later(text)
        words, groups = set(re.findall(r"[A-Za-z_]\w*", text)), dict(search.kernel.spec.fields)
        numbered = {f"{g}{k}" for g in words & groups.keys() for k in range(groups[g])}
        self.integers = sorted((words | numbered) & set(search.values))
        name, sign, other = map(str.strip, text.partition(" == "))
        self.equal = (name, Later(other)) if sign and name in search.values else None

    def fails(self, names: Mapping[str, Any]) -> bool:
        try:
            return not self.holds(names)
        except ArithmeticError:
            return True


def _conjuncts(text: str) -> list[str]:
    """The parts of a condition, joined by `and`."""
    out: list[str] = []
    for part in text.split(" and "):
        if out and out[-1].count("(") > out[-1].count(")"):
            out[-1] += f" and {part}"
        else:
            out.append(part)
    return out


def _of_lanes(part: str) -> bool:
    """Whether a condition is only about the processor's vectors."""
    return re.fullmatch(r"\s*lanes [<>=]+ \d+\s*", part) is not None


def lanes_of(kernel: Kernel) -> int:
    """Lanes of this processor's vectors, or of a processor that the variant is for."""
    parts = _conjuncts(registry.declaration(kernel)["when"])
    asked = [Later(part) for part in parts if _of_lanes(part)]
    choices = (jit.host().lanes, 16, 8, 4, 1)
    fitting = (n for n in choices if all(fits({"lanes": n}) for fits in asked))
    return next(fitting, choices[0])


def _accepted(kernel: Kernel) -> list[str]:
    """A variant's conditions on integers and storages, for any processor."""
    declaration = registry.declaration(kernel)
    parts = [part for part in _conjuncts(declaration["when"]) if not _of_lanes(part)]
    return [*declaration["check"].split(";"), *parts]


class _Search:
    """Integers and storages that satisfy a kernel's declaration, found by local search."""

    def __init__(
        self,
        kernel: Kernel,
        draw: random.Random,
        fixed: Mapping[str, Any],
        other: Kernel | None = None,
    ) -> None:
        self.kernel, self.draw, self.fixed = kernel, draw, fixed
        spec, declaration = kernel.spec, registry.declaration(kernel)
        self.ranges = {o.name: o.range for o in spec.operands if o.range is not None}
        groups = {f"{name}{k}" for name, count in spec.fields for k in range(count)}
        starts = {name: _GROUPED if name in groups else _SMALL for name in self.ranges}
        self.values = {n: self._within(n, draw.choice(some)) for n, some in starts.items()}
        self.values |= {name: value for name, value in fixed.items() if name in self.values}
        self.absent = {o.name for o in spec.operands if o.optional and draw.random() < 0.4}
        wanted = registry.declaration(other)["when"] if other is not None else ""
        quoted = re.findall(r"'(\w+)'", declaration["when"] + wanted)
        self.storages = {
            v: fixed.get(v) or draw.choice(self._formats(v, quoted)) for v in spec.variables
        }
        parts = _conjuncts(declaration["when"])
        shared = _accepted(other) if other is not None else []
        self.conditions = [
            _Condition(text, self)
            for text in [*declaration["check"].split(";"), *parts, *shared, *self._limits()]
            if text.strip()
        ]
        self.lanes = lanes_of(kernel)

    def _within(self, name: str, value: int) -> int:
        """The value clipped to the integer's range, and to small numbers."""
        allowed = self.ranges[name]
        return max(allowed.least, -64, min(value, allowed.most, MOST_ELEMENTS))

    def _limits(self) -> list[str]:
        """Conditions that keep operands small and runs short."""
        operands = registry.declaration(self.kernel)["operands"]
        plain = registry.declaration(registry.variants(self.kernel.name)[-1])
        extents = re.findall(r":[rwm]:\w+\[([^]]*(?:\[[^]]*\][^]]*)*)\]", operands)
        small = [f"0 <= ({extent}) <= {MOST_ELEMENTS}" for extent in extents]
        return small + ([f"({plain['work']}) <= {MOST_WORK}"] if plain["work"] else [])

    def _formats(self, variable: str, quoted: list[str]) -> list[str]:
        """Formats that a storage variable may have: floats, or those of a pattern's columns."""
        blocks = ["q8"] if variable in self.kernel.blocks.split() else []
        places = variable == "I"
        named = [name for name in quoted if FORMATS[name].floats != places]
        return named or (["u8", "u16"] if places else ["f32", "f32", "f16", *blocks])

    def references(self) -> dict[str, int]:
        """-1 for absent references, else 0."""
        operands = self.kernel.spec.operands
        return {o.name: -1 if o.name in self.absent else 0 for o in operands if o.is_reference}

    def _names(self) -> dict[str, Any]:
        """The names that conditions use, with their values."""
        operands = self.kernel.spec.operands
        names = self.kernel.spec.names(self.values, 1, self.lanes) | self.storages
        return names | {f"has_{o.name}": o.name not in self.absent for o in operands if o.optional}

    def failing(self) -> list[_Condition]:
        """Conditions that do not hold."""
        names = self._names()
        return [condition for condition in self.conditions if condition.fails(names)]

    def change(self, wrong: list[_Condition]) -> tuple[str, int]:
        """An integer of a failing condition, and its new value."""
        condition = self.draw.choice(wrong)
        if condition.equal is not None and self.draw.random() < 0.5:
            name, expected = condition.equal
            return name, self._within(name, int(expected(self._names())))
        names = condition.integers
        if not names or self.draw.random() < 0.1:
            names = list(self.values)
        name = self.draw.choice(names)
        other, value = self.values[self.draw.choice(names)], self.values[name]
        near = [other, other + 1, value + 1, value - 1, 2 * other, other * value, value // 2]
        new = self.draw.choice([*_SMALL, *near, 600])
        return name, self._within(name, new)

    def run(self) -> bool:
        """Search; whether suitable integers were found."""
        wrong = self.failing()
        for _ in range(TRIES if self.values else 0):
            if not wrong:
                break
            name, new = self.change(wrong)
            if name in self.fixed:
                continue
            before, self.values[name] = self.values[name], new
            now = self.failing()
            if len(now) <= len(wrong) or self.draw.random() < 0.01:
                wrong = now
            else:
                self.values[name] = before
        return not wrong

    def layer(self) -> csr.Layer | None:
        """The sparse layer that the kernel works on; None if the kernel has no pattern."""
        values = self.values
        if "pointers" not in self.references() or "chunk" not in values:
            return None
        if "taps" in values:
            return csr.Layer("w", (values["rows"], values["channels"], values["taps"]), 1, 0)
        channels = values["c"] // values["g"]
        return csr.Layer("w", (values["k"], channels, values["kh"], values["kw"]), 1, 0)

    def patterned(self) -> bool:
        """Set the chunk that a sparse layer chooses; whether all conditions still hold."""
        layer = self.layer()
        if layer is None or layer.chunk == self.values["chunk"]:
            return True
        self.values["chunk"] = layer.chunk
        return not self.failing()


def made(
    kernel: Kernel,
    seed: int,
    fixed: Mapping[str, Any] | None = None,
    other: Kernel | None = None,
) -> Call:
    """A call of a kernel, the same for the same seed.

    Args:
      fixed: integers by name and formats by storage variable that the call must have.
      other: another variant that must accept the call.
    Raises:
      UsageError: no call can be made for this declaration, or none was found.
    """
    _check(kernel, fixed or {})
    draw = random.Random(f"{kernel.label} {seed}")
    for _ in range(RESTARTS):
        search = _Search(kernel, draw, fixed or {}, other)
        if search.run() and search.patterned():
            return _filled(search, draw)
    accepting = f"that {other.label} accepts too" if other else "that its declaration accepts"
    raise UsageError(
        f"kernel {kernel.label}: found no integers {accepting}. Try another --seed or variant."
    )


def _plain(value: Any) -> int | float:
    return float(value) if isinstance(value, (float, np.floating)) else int(value)


def load(path: str, kernel: Kernel) -> Call:
    """The call saved in a file, for this variant.

    Raises:
      UsageError: the file cannot be read, or has a call of another kernel.
    """
    try:
        with np.load(path) as file:
            about = json.loads(str(file["about"]))
            arrays = {n: aligned(file[f"operand_{n}"]) for n in set(about["shared"].values())}
            places = {name: arrays[first] for name, first in about["shared"].items()}
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"--call {path}: not a saved call: {error}.") from error
    name = about["kernel"].partition(".")[0]
    if name != kernel.name:
        raise UsageError(f"--call {path}: a call of kernel {name}, expected {kernel.name}.")
    floats = {o.name for o in kernel.spec.operands if o.mode == "f"}
    values = {n: np.float32(v) if n in floats else v for n, v in about["values"].items()}
    return Call(kernel, about["storages"], values, places, lanes_of(kernel), about["threads"])


def _check(kernel: Kernel, fixed: Mapping[str, Any]) -> None:
    """Raises: UsageError: no call can be made for this kernel, or it lacks some of the names."""
    spec = kernel.spec
    if any(o.range is not None and o.range.kind == "host" for o in spec.operands):
        raise UsageError(
            f"kernel {kernel.label}: it takes addresses of the runtime, so it can't be called "
            "here. Choose a kernel whose operands are in the arena."
        )
    if kernel.family in CHAINED:
        raise UsageError(
            f"kernel {kernel.label}: it needs tables filled by other kernels, so it can't be "
            f"called here. Run pytest --interpret tests/kernels for {kernel.family}."
        )
    known = {o.name for o in spec.operands if o.mode == "i"} | set(spec.variables)
    for name, value in fixed.items():
        if name not in known:
            raise UsageError(
                f"kernel {kernel.label}: no integer or storage {name!r}; available: "
                f"{', '.join(sorted(known))}."
            )
        if name in spec.variables and value not in FORMATS:
            raise UsageError(
                f"kernel {kernel.label}: storage {name}={value}: expected one of "
                f"{', '.join(FORMATS)}."
            )


def _filled(search: _Search, draw: random.Random) -> Call:
    """The call with generated data."""
    kernel, rng = search.kernel, np.random.default_rng(draw.getrandbits(32))
    values: dict[str, Any] = search.values | search.references()
    sizes = kernel.spec.extents(values, search.storages, 1, search.lanes)
    places = {}
    for operand in kernel.spec.operands:
        if operand.name in sizes:
            kind = search.storages.get(operand.storage, operand.storage)
            places[operand.name] = aligned(content(operand.name, kind, sizes[operand.name], rng))
        elif operand.mode == "f":
            values[operand.name] = np.float32(round(draw.uniform(0.01, 0.9), 3))
    layer = search.layer()
    if layer is not None:
        _write_pattern(layer, places, values, FORMATS[search.storages["I"]].dtype, rng)
    elif {"pointers", "slots"} <= places.keys() | values.keys():  # an update of a layer's slots
        pointers = places["pointers"].view(np.int32)
        pointers[:] = np.sort(rng.integers(0, values["slots"] + 1, pointers.size))
    return Call(kernel, search.storages, values, places, search.lanes)


def content(name: str, kind: str, nbytes: int, rng: np.random.Generator) -> np.ndarray:
    """Bytes of an operand: numbers around 0, small positions, or a first step's control block."""
    format = FORMATS[kind]
    count = format.count(nbytes)
    if name == "ctl":
        words = np.zeros(control.WORDS, np.int64)
        words[[control.SEED, control.STEP, control.COUNT, control.ADAM_T]] = 7, 1, 3, 1
        words[[control.TOTAL_STEPS, control.TARGETS]] = 100, 8
        words.view(np.float64)[control.LR : control.RATE + control.RATE_WORDS] = 0.5
        return words.view(np.uint8)
    if format.floats or kind == "f64":
        numbers = format.encode(rng.standard_normal(count).astype(np.float32))
    elif kind == "u8":
        numbers = rng.integers(0, 256, count)
    else:
        numbers = rng.integers(0, 5, count)
    return np.ascontiguousarray(numbers, format.dtype).view(np.uint8).reshape(-1)


def _write_pattern(layer: csr.Layer, places, values, dtype, rng: np.random.Generator) -> None:
    """Write columns and pointers of a random subset of a layer's weights, as many as fit."""
    most = np.iinfo(dtype).max
    room = [values[n] for n in ("room", "held") if values.get(n, 0) > 0]
    count = min(layer.size, values["slots"], *room)
    chosen = np.sort(rng.choice(layer.size, rng.integers(1, count + 1), replace=False))
    columns, pointers = csr.encode(layer, chosen, 0)
    if columns.size and columns.max() > most:  # taps exceed 8 bits: take the first ones
        chosen = np.arange(min(count, most))
        columns, pointers = csr.encode(layer, chosen, 0)
    for name, numbers in (("columns", columns.astype(dtype)), ("pointers", pointers)):
        places[name][: numbers.nbytes] = numbers.view(np.uint8)
