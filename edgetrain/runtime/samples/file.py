"""Writes samples to the file that a bundle's main.c reads."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...data.source import Source
from ...errors import DataError
from ...program import Program, Slot
from ...program.atomic import write_atomically
from ...program.samples import record_nbytes
from .lengths import Lengths, Part
from .sample_callback import fields

MAGIC = 0x4D534445  # "EDSM"
HEAD_NBYTES = 32
_F32, _U8 = 0, 4  # as in the header's enum
_CHUNK = 256  # samples


def write_samples(program: Program, source: Source, path: str | Path) -> int:
    """Write training and test samples for this Program's bundle; returns the size in bytes.

    Byte values (grey levels, for example) are stored as bytes with a common scale; other values as
    float32.

    Raises:
      DataError: a wrong layout, or a value out of range.
      RunError: the file can't be written.
    """
    parts = _splits(source)
    staged = program.staged("micro")
    filled = {name: field for field, name in fields(source, program, "micro").items()}
    pairs = [(filled.get(name, ""), slot) for name, slot in staged.items()]  # "": unused targets
    for part in parts:
        part.adapt({name: slot.shape[1:] for name, slot in pairs if name})
    source.check_layout({name: np.empty((0, *slot.shape[1:])) for name, slot in pairs if name})
    first, slot = pairs[0]
    scale = _scale_of_bytes(parts, first) if len(pairs) == 2 and slot.format.floats else None
    small, (factor, shift) = scale is not None, scale or (0.0, 0.0)
    width = record_nbytes(program, small)
    counts = [part.n for part in parts] + [0] * (2 - len(parts))
    head = struct.pack("<4I2f2I", MAGIC, *counts, _U8 if small else _F32, factor, shift, width, 0)

    def write(file) -> None:
        file.write(head)
        for part in parts:
            for first in range(0, part.n, _CHUNK):
                rows = np.arange(first, min(part.n, first + _CHUNK))
                file.write(_records(part, pairs, rows, small, width))

    write_atomically(path, write, links=False)
    return HEAD_NBYTES + width * sum(counts)


def write_samples_by_length(program: Program, source: Source, path: str | Path) -> int:
    """Like `write_samples`, for a bundle with all lengths of this Program: a header and the samples
    of each length, shortest first."""
    lengths, parts = Lengths(program), _splits(source)
    result = [{part.length: part for part in lengths.parts(item)} for item in parts]
    heads, nbytes = {}, 0
    for length, item in lengths.programs.items():
        counts = [len(own[length].indices) if length in own else 0 for own in result]
        width = record_nbytes(item)
        numbers = MAGIC, *counts, *[0] * (2 - len(counts)), _F32, 0.0, 0.0, width, 0
        heads[length] = struct.pack("<4I2f2I", *numbers)
        nbytes += HEAD_NBYTES + width * sum(counts)

    def write(file) -> None:
        for length, head in heads.items():
            file.write(head)
            for own in result:
                if length in own:
                    _write_part(file, own[length])

    write_atomically(path, write, links=False)
    return nbytes


def _write_part(file, part: Part) -> None:
    """Write the samples of one length."""
    filled = {name: field for field, name in fields(part.source, part.program, "micro").items()}
    pairs = [(filled.get(name, ""), slot) for name, slot in part.program.staged("micro").items()]
    width = record_nbytes(part.program)
    part.source.adapt({name: slot.shape[1:] for name, slot in pairs if name})
    for first in range(0, len(part.indices), _CHUNK):
        rows = part.indices[first : first + _CHUNK]
        file.write(_records(part.source, pairs, rows, False, width))


def _splits(source: Source) -> list[Source]:
    """The source, and its test split if it has one."""
    return [source] + ([source.for_split("test")] if "test" in source.splits else [])


def _scale_of_bytes(parts: Sequence[Source], name: str) -> tuple[float, float] | None:
    """(factor, shift) if the splits store this field as bytes with a common scale, else None."""
    found = {_byte_scale(part, name) for part in parts if part.n}
    return found.pop() if len(found) == 1 else None


def _byte_scale(source: Source, name: str) -> tuple[float, float] | None:
    """(factor, shift) if the first sample of one split has bytes, else None."""
    scale = source.scale.get(name)
    if scale is None or scale.factor.size != 1 or scale.shift.size != 1:
        return None
    if source.read((name,), np.zeros(1, np.int64), (0, 0), False)[name].dtype != np.uint8:
        return None
    return float(scale.factor.reshape(-1)[0]), float(scale.shift.reshape(-1)[0])


def _records(
    source: Source, pairs: list[tuple[str, Slot]], rows: np.ndarray, small: bool, width: int
) -> bytes:
    """The samples `rows`, `width` bytes each; small: with the bytes of the first field.

    Raises:
      DataError: a sample has no bytes, unlike the first one.
    """
    parts: list[np.ndarray] = []
    for name, slot in pairs:
        if small and not parts:
            values = source.read((name,), rows, (0, 0), False)[name]
            if values.dtype != np.uint8:
                raise DataError(
                    f"{source.where(int(rows[0]))}: {name} is {values.dtype}; expected uint8, like "
                    "the first sample. Store all samples in the same type."
                )
        else:
            values = np.zeros((len(rows), *slot.shape[1:]), slot.format.raw.dtype)
            source.fill(rows, {name: values} if name else {})
        parts.append(values.reshape(len(rows), -1).view(np.uint8))
    result = np.concatenate(parts, 1)
    if result.shape[1] != width:
        raise DataError(
            f"{source.where(int(rows[0]))}: {result.shape[1]} bytes; expected {width}, as the "
            "model's inputs and targets need."
        )
    return result.tobytes()
