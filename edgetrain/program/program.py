"""The Program: one file with everything the device needs, and nothing to compile or import.

A safetensors-format container (container.py), checksummed, no pickle. Tensors: the tapes
(`tape.micro`, `tape.update`, `tape.rewire`, `tape.eval`; int64 words, see
kernels/tapes/tape.py), the initial arrays (`init.NAME`) and the weightless ONNX model
(`onnx`). Everything else is JSON.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ProgramError
from ..formats import FORMATS, Format, from_file
from ..units import format_bytes
from ..units.public import as_path, public_api
from ..units.sha import sha256
from .container import read_container, write_container
from .container_header import PROGRAM_KIND
from .fields import PROGRAM
from .mapped_file import check_files
from .schema import Wrong, parse, record, text, verify

KIND = PROGRAM_KIND
VERSION = 4
# This build reads these. What a version adds is optional and absent means what it meant before, in
# the recipe and slots too: `digest` says which checkpoints belong to a Program. 4: revisions.
VERSIONS = range(3, VERSION + 1)
_COUNTS = ("arena_nbytes", "threads", "minibatch", "microbatch")  # told in the account too
TAPES = ("micro", "update", "rewire", "eval")
_TEXT = record({"program": text(2**23)})
MOVE = "Compile the model again."
# Turns of loops: a tape of fewer, about two milliseconds, is over before the system has given the
# threads a processor each; one of fewer than BRIEF, before threads that have one have met.
ALONE, BRIEF = 50_000_000, 100_000
# What is filled in besides the model's inputs: targets, and weights of samples where it has any.
TARGET, WEIGHT = "loss.target", "loss.weight"
SAVED_ROLES = ("parameter", "buffer", "index", "state")  # of what a checkpoint holds
# Of a recipe: they change no bit, or a run may go on on another processor.
_APART = ("threads", "max_extra_forward", "effort", "target", "lanes")


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor at a fixed place of the arena: `offset` in bytes, `shape` in elements."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str
    role: str = ""

    @property
    def size(self) -> int:
        count = 1
        for dim in self.shape:
            count *= dim
        return count

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(self.size)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Of the array in memory: `shape`, or the blocks that a format puts elements in."""
        return self.format.stored_shape(self.shape)

    @property
    def format(self) -> Format:
        """How its elements lie in memory."""
        return FORMATS[self.dtype]


@public_api
@dataclass(frozen=True, repr=False)
class Program:
    """A compiled training run.

    Attributes:
      arena_nbytes: size of the one allocation.
      threads: workers that the workspaces are for; fewer may run.
      kernels: (name, variant, storages) by the index that tapes use.
      tapes: int64 words by tape name.
      persistent: parameters, buffers, constants, accumulators, state, control block.
      inputs, targets, outputs: per tape (`micro`, `eval`), what is filled in and read out.
      init: initial arrays by slot name; every other persistent slot starts at zero.
      account: the JSON object of `plan --json`.
      recipe: options it was compiled with; `aliases`: further names of tied parameters.
      mapped: frozen weights and constants that take no arena: `init` holds them, of a file in the
        mapped file itself. A tape's word for one is arena_nbytes + `offset`.
      work: tape -> kernel -> turns of loops that the compiler counted; see
      runtime/loading/tapes.py.
      revisions: of the kernels that it was compiled for, those past 1; see kernels/registry.py.
    """

    arena_nbytes: int
    threads: int
    minibatch: int
    microbatch: int
    kernels: tuple[tuple[str, str, tuple[str, ...]], ...]
    tapes: Mapping[str, np.ndarray]
    persistent: tuple[Slot, ...]
    inputs: Mapping[str, tuple[Slot, ...]]
    targets: Mapping[str, Slot]
    outputs: Mapping[str, tuple[Slot, ...]]
    init: Mapping[str, np.ndarray]
    account: Mapping[str, Any]
    recipe: Mapping[str, Any]
    limits: Mapping[str, int] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    onnx: bytes = b""
    model_name: str = "model"
    target_count: int = 0
    work: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    mapped: tuple[Slot, ...] = ()
    revisions: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"Program({self.model_name!r}, arena {format_bytes(self.arena_nbytes)}, minibatch "
            f"{self.minibatch}, microbatch {self.microbatch}, {self.threads} threads)"
        )

    @property
    def tape_nbytes(self) -> int:
        """Bytes of all tapes: read-only, outside the arena."""
        return sum(tape.nbytes for tape in self.tapes.values())

    def threads_of(self, tape: str, prompt: bool = False) -> int:
        """Threads that a tape is worth: one where it is over before a second one has come.

        Args:
          prompt: the threads are awake.
        """
        turns = sum(self.work.get(tape, {}).values())
        return self.threads if turns >= (min(ALONE, BRIEF) if prompt else ALONE) else 1

    @property
    def mapped_nbytes(self) -> int:
        """Bytes of `mapped`, each from a multiple of 64: read-only, outside the arena."""
        return max((slot.offset + -(-slot.nbytes // 64) * 64 for slot in self.mapped), default=0)

    @property
    def lasting(self) -> tuple[Slot, ...]:
        """Slots that live from the first step to the last, those outside the arena at the end."""
        return (*self.persistent, *self.mapped)

    @property
    def sliced(self) -> bool:
        """Whether logits are computed in slices: the output is the best classes of each position,
        the best first, float32 [microbatch, ..., 5], -1 behind the last of fewer."""
        return "output_shape" in self.recipe

    @property
    def unpredicted(self) -> str:
        """Why outputs cannot be had; "" where they can."""
        shape = self.outputs["eval"][0].shape
        if not shape:
            return "predict: the model's output is one number, a loss. Use evaluate."
        if shape[0]:
            return ""
        return (
            f"predict: outputs of shape {list(shape[1:])} are made and judged in segments of time, "
            "and not kept. Compile with segments off, or run the ONNX with another runtime."
        )

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of the model's output of a microbatch; logits in slices are never whole."""
        return tuple(self.recipe.get("output_shape") or self.outputs["eval"][0].shape)

    def slot(self, name: str) -> Slot:
        """The persistent slot of this name."""
        return next(slot for slot in self.persistent if slot.name == name)

    @property
    def saved(self) -> tuple[Slot, ...]:
        """What a checkpoint holds, besides counters."""
        return tuple(slot for slot in self.persistent if slot.role in SAVED_ROLES)

    def staged(self, tape: str) -> dict[str, Slot]:
        """Where a microbatch of `micro` or `eval` is filled in: inputs by name, TARGET last."""
        return {slot.name: slot for slot in self.inputs[tape]} | {TARGET: self.targets[tape]}

    @property
    def input_names(self) -> tuple[str, ...]:
        """The model's inputs that training fills in, weights of samples apart."""
        return tuple(slot.name for slot in self.inputs["micro"] if slot.name != WEIGHT)

    def digest(self) -> str:
        """Equal for Programs whose checkpoints are interchangeable: same recipe, same tensors, and
        the same numbers in those that no checkpoint holds.

        Recomputation, layout and threads are left out: they change no bit. So is the processor,
        for what was trained on one may go on on another. The microbatch stays in.
        """
        recipe = {k: v for k, v in self.recipe.items() if k not in _APART}
        recipe["microbatch"] = self.microbatch
        names = sorted((s.name, s.shape, s.dtype, s.role) for s in self.lasting)
        text = json.dumps([recipe, names, self.model_name], sort_keys=True) + self._frozen_digest
        return sha256(text.encode()).hexdigest()

    @cached_property
    def _frozen_digest(self) -> str:
        """Of what is mapped: checkpoints have it not, so it has to be the same; "" without any."""
        if not self.mapped:
            return ""
        check_files(self.init)
        found = sha256(expected=self.mapped_nbytes)
        for slot in sorted(self.mapped, key=lambda slot: slot.name):
            found.update(np.ascontiguousarray(self.init[slot.name]).view(np.uint8).data)
        return found.hexdigest()

    def save(self, path: str | PathLike, *, links: bool = True) -> Path:
        """Write the Program atomically; returns the path.

        Args:
          links: a link at `path` is followed; without, it is refused.
        Raises:
          ProgramError: a field that `read_program` would refuse.
          RunError: the file cannot be written, or the one that this was read from has changed.
        """
        path = as_path("save", path)
        check_files(self.init)
        fields = json.dumps(self._json())
        verify(PROGRAM, parse(fields), str(path), ProgramError, "It was not written.")
        tensors = {f"tape.{name}": tape for name, tape in self.tapes.items()}
        tensors |= {f"init.{name}": array for name, array in self.init.items()}
        tensors["onnx"] = np.frombuffer(self.onnx, np.uint8)
        meta = {"program": fields}
        write_container(path, tensors, meta, kind=KIND, version=VERSION, links=links)
        return path

    def _json(self) -> dict[str, Any]:
        plain = (
            "arena_nbytes", "threads", "minibatch", "microbatch", "kernels", "account", "recipe",
            "limits", "aliases", "model_name", "target_count", "work",
        )  # fmt: skip
        out: dict[str, Any] = {name: getattr(self, name) for name in plain}
        out["persistent"] = [asdict(slot) for slot in self.persistent]
        if self.mapped:
            out["mapped"] = [asdict(slot) for slot in self.mapped]
        if self.revisions:
            out["revisions"] = dict(self.revisions)
        for name in ("inputs", "outputs"):
            out[name] = {k: [asdict(s) for s in slots] for k, slots in getattr(self, name).items()}
        out["targets"] = {k: asdict(slot) for k, slot in self.targets.items()}
        return out


def read_program(path: str | Path, *, links: bool = True) -> Program:
    """Read a Program's file, and prove it whole; what runs it asks more:
    runtime/loading/program.py.

    Args:
      links: a link at `path` is followed; without, it is refused.
    Raises:
      ProgramError: the file is damaged, of another version, or not a Program.
    """
    path = Path(path)
    tensors, meta = read_container(
        path,
        kind=KIND,
        versions=VERSIONS,
        mmap=True,
        links=links,
        error=ProgramError,
    )
    verify(_TEXT, meta, str(path), ProgramError, MOVE)
    try:
        fields = parse(meta["program"])
        PROGRAM(fields, "")
        _check_tensors(tensors)
        return _consistent(_parsed(fields, tensors))
    except (Wrong, ValueError) as error:
        raise ProgramError(f"{path}: {error}. {MOVE}") from None


def _consistent(program: Program) -> Program:
    """What the runtime takes for granted; offsets are checked against the arena it makes.

    Raises:
      ValueError: names what contradicts.
    """
    staged = {tape: (*program.inputs[tape], program.targets[tape]) for tape in ("micro", "eval")}
    for place, group in {"persistent": program.lasting, **staged}.items():
        for name, count in Counter(slot.name for slot in group).items():
            if count > 1:
                raise ValueError(f"{place}: slot {name!r} {count} times")
    slots = {slot.name: slot for slot in program.lasting}
    absent = [slot.name for slot in program.mapped if slot.name not in program.init]
    if absent:
        raise ValueError(f"mapped: no tensor 'init.{absent[0]}'")
    control = slots.get("ctl")
    if control is None or (control.shape, control.dtype) != ((64,), "i64"):
        raise ValueError("persistent: no control block of 64 words")
    for name, array in program.init.items():
        sound = name in slots and slots[name].stored_shape == array.shape
        format = slots[name].format if sound else None
        number = array.dtype.kind in "fiu" and format is not None and format.block == 1
        number = number and slots[name] not in program.mapped
        if format is None or not (number or array.dtype == format.dtype):
            raise ValueError(f"tensor 'init.{name}': no slot of its shape")
    if program.minibatch % program.microbatch:
        raise ValueError(
            f"microbatch: {program.microbatch} does not divide the minibatch {program.minibatch}"
        )
    whole = [slot for slot in program.outputs["eval"] if slot.shape and slot.shape[0]]
    for slot in (*staged["micro"], *staged["eval"], *whole):  # others are not kept: `unpredicted`
        if slot.shape[:1] != (program.microbatch,):
            raise ValueError(f"slot {slot.name!r}: shape does not begin with the microbatch")
    limited = {slot.name for slots_of in program.inputs.values() for slot in slots_of}
    unknown = sorted(program.limits.keys() - limited - {TARGET})
    if unknown:
        raise ValueError(f"limits: {unknown[0]!r} is no input")
    if any(t.size != program.microbatch * program.target_count for t in program.targets.values()):
        raise ValueError(f"target_count: {program.target_count} are not those of the targets")
    told = {name: program.account.get(name, getattr(program, name)) for name in _COUNTS}
    for name in _COUNTS:
        if told[name] != getattr(program, name):
            raise ValueError(f"account.{name}: {told[name]}, not {getattr(program, name)}")
    return program


def _slot(fields: Mapping[str, Any]) -> Slot:
    return Slot(**{**fields, "shape": tuple(fields["shape"])})


def _check_tensors(tensors: Mapping[str, np.ndarray]) -> None:
    wanted = {**{f"tape.{name}": np.int64 for name in TAPES}, "onnx": np.uint8}
    for name, dtype in wanted.items():
        found = tensors.get(name)
        if found is None or found.dtype != dtype or found.ndim != 1:
            shown = "none" if found is None else f"{found.dtype} {list(found.shape)}"
            raise Wrong(f"tensor {name}", f"a row of {np.dtype(dtype).name}", shown)
    others = [name for name in tensors if name not in wanted and not name.startswith("init.")]
    if others:
        raise Wrong(f"tensor {others[0][:80]!r}", "no tensor of this name", "one")


def _parsed(fields: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Program:
    # Initial arrays stay in the mapped file: the system may take their pages back. What runs is
    # copied, for the file may be written over.
    tapes = {name: np.array(tensors[f"tape.{name}"]) for name in TAPES}
    persistent = tuple(_slot(s) for s in fields["persistent"])
    mapped = tuple(_slot(s) for s in fields.get("mapped", ()))
    formats = {slot.name: slot.format for slot in (*persistent, *mapped)}
    init = {k.removeprefix("init."): v for k, v in tensors.items() if k.startswith("init.")}
    init = {k: from_file(v, formats[k]) if k in formats else v for k, v in init.items()}
    return Program(
        arena_nbytes=fields["arena_nbytes"],
        threads=fields["threads"],
        minibatch=fields["minibatch"],
        microbatch=fields["microbatch"],
        kernels=tuple((n, v, tuple(s)) for n, v, s in fields["kernels"]),
        tapes=tapes,
        persistent=persistent,
        inputs={k: tuple(_slot(s) for s in v) for k, v in fields["inputs"].items()},
        targets={k: _slot(s) for k, s in fields["targets"].items()},
        outputs={k: tuple(_slot(s) for s in v) for k, v in fields["outputs"].items()},
        init=init,
        account=fields["account"],
        recipe=fields["recipe"],
        limits=fields["limits"],
        aliases=fields["aliases"],
        onnx=tensors["onnx"].tobytes(),
        model_name=fields["model_name"],
        target_count=fields["target_count"],
        work=fields["work"],
        mapped=mapped,
        revisions=fields.get("revisions", {}),
    )
