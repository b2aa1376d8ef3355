"""Samples for a bundle's main: a file that its fill callback reads, and made-up ones for checks."""

import struct
from pathlib import Path

import numpy as np

from ..data.source import Source
from ..errors import DataError
from ..program import Program, Slot
from ..program.atomic import write_atomically
from ..runtime.session import TARGET

MAGIC = 0x4D534445  # "EDSM"
HEAD_NBYTES = 32
_F32, _U8 = 0, 4  # as in the header's enum
_CHUNK = 256  # samples


def elements(program: Program, slot: Slot) -> int:
    """Of one sample."""
    return slot.size // program.microbatch


def raw_type(slot: Slot) -> str:
    """What a callback leaves for a field when it was told nothing: f32 or i32."""
    return "i32" if slot.dtype == "i32" else "f32"


def fields(program: Program) -> list[tuple[Slot, str]]:
    """(staged microbatch, its name in the limits) of every input, then of the target."""
    inputs = [(slot, slot.name) for slot in program.inputs["micro"]]
    return [*inputs, (program.targets["micro"], TARGET)]


def limit_of(program: Program, name: str) -> int:
    """Below what made-up integers lie; -1 for the numbers of a target."""
    limit = int(program.limits.get(name, 0))
    return limit or (-1 if name == TARGET else 2)


def record_nbytes(program: Program) -> int:
    """The most that a sample takes in a file."""
    return sum(4 * elements(program, slot) for slot, _ in fields(program))


def write_samples(program: Program, source: Source, path: str | Path) -> int:
    """Write the training and test samples of `source` for this Program's bundle; returns the bytes.

    Grey levels and the like stay bytes, with one factor for all; other values are float32 as the
    model takes them.

    Raises:
      DataError: another layout than the model's, or a value out of range.
      RunError: it cannot be written.
    """
    parts = [source] + ([source.for_split("test")] if "test" in source.splits else [])
    slots = program.inputs["micro"]
    names = [n for n in source.fields if n != "y"]
    if len(slots) == len(names) == 1:
        pairs = [(names[0], slots[0])]
    elif {s.name for s in slots} == set(names):
        pairs = [(s.name, s) for s in slots]
    else:
        raise DataError(
            f"{source.name}: its inputs are {', '.join(names) or 'none'}; the model's are "
            f"{', '.join(s.name for s in slots)}. Use data with fields of these names."
        )
    source.check_layout({name: np.empty((0, *slot.shape[1:])) for name, slot in pairs})
    small = len(pairs) == 1 and pairs[0][1].dtype != "i32" and _are_bytes(source, pairs[0][0])
    factor, shift = 0.0, 0.0
    if small:
        scale = source.scale[pairs[0][0]]
        factor, shift = float(scale.factor.reshape(-1)[0]), float(scale.shift.reshape(-1)[0])
    width = sum((1 if small else 4) * elements(program, s) for _, s in pairs)
    width += 4 * elements(program, program.targets["micro"])
    counts = [part.n for part in parts] + [0] * (2 - len(parts))
    head = struct.pack("<4I2f2I", MAGIC, *counts, _U8 if small else _F32, factor, shift, width, 0)

    def write(file) -> None:
        file.write(head)
        for part in parts:
            for first in range(0, part.n, _CHUNK):
                rows = np.arange(first, min(part.n, first + _CHUNK))
                file.write(_records(program, part, pairs, rows, small))

    write_atomically(path, write)
    return HEAD_NBYTES + width * sum(counts)


def _are_bytes(source: Source, name: str) -> bool:
    scale = source.scale.get(name)
    if scale is None or scale.factor.size != 1 or scale.shift.size != 1 or not source.n:
        return False
    return source.read((name,), np.zeros(1, np.int64), (0, 0), False)[name].dtype == np.uint8


def _records(program: Program, source: Source, pairs, rows: np.ndarray, small: bool) -> bytes:
    fields = []
    target = program.targets["micro"]
    wanted = [*pairs, ("y", target)]
    if small:
        stored = source.read((pairs[0][0],), rows, (0, 0), False)[pairs[0][0]]
        fields.append(stored.reshape(len(rows), -1).view(np.uint8))
        wanted = wanted[1:]
    for name, slot in wanted:
        kind = np.int32 if raw_type(slot) == "i32" else np.float32
        buffer = np.zeros((len(rows), *slot.shape[1:]), kind)
        source.fill(rows, {name: buffer})
        fields.append(buffer.reshape(len(rows), -1).view(np.uint8))
    return np.concatenate(fields, 1).tobytes()


def made_up(
    program: Program, slot: Slot, number: int, sample: int, name: str, spike: float | None = None
) -> np.ndarray:
    """Raw values of field `number` of a sample, as `made_up` of a bundle's main gives them.

    Floats of inputs lie in [-1, 1), those of targets in [0, 1), integers below their limit.

    Args:
      spike: what floats of inputs of sample 0 are, but for their signs.
    """
    limit = limit_of(program, name)
    key = _mixed(np.array(sample * 0x9E3779B9 + number & 0xFFFFFFFF, np.uint32))
    bits = _mixed(np.arange(elements(program, slot), dtype=np.uint32) + key)
    if raw_type(slot) == "i32":
        return (bits % np.uint32(max(limit, 2))).astype(np.int32)
    values = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
    if limit == -1:
        return values
    values = values * np.float32(2) - np.float32(1)
    return values if sample or spike is None else np.copysign(np.float32(spike), values)


def _mixed(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        values = (values ^ (values >> np.uint32(15))) * np.uint32(0x735A2D97)
    return values ^ (values >> np.uint32(15))
