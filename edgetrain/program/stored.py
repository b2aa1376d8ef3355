"""A training state as bundles keep it in flash or a file: two slots, the newest good one counts.

A slot is a header (kernels/device/layout.py), a table of names, then values at multiples of 64
bytes: what a checkpoint holds, and the control block. A slot without a good header, digest of its
bytes or length is no state.
"""

import math
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..errors import CheckpointError, ProgramError
from ..formats import FORMATS, decoded, of_dtype
from ..kernels.device import layout as device
from ..units.sha import sha256
from .atomic import write_atomically
from .program import Program, Slot

CONTROL = "ctl"
_KINDS = {format.number: format for format in FORMATS.values()}
_BLOCK = device.BLOCK
_HEADER = struct.Struct("<2q16s4q")
_ROW = struct.Struct("<4I")
_CONVERTED = ("parameter", "buffer")  # means the same in any storage of floats


@dataclass(frozen=True)
class Stored:
    """The newest good state of a file.

    Attributes:
      tensors: by name, in the storage of the Program that it was read for.
      block: int64 words of the control block.
      exact: it was written by this Program or one with its bits; else it gives values.
    """

    tensors: dict[str, np.ndarray]
    block: np.ndarray
    sequence: int
    exact: bool

    @property
    def reals(self) -> np.ndarray:
        """The same words as float64."""
        return self.block.view(np.float64)


def name_hash(name: str) -> int:
    """32 bits that stand for a name: FNV-1a."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def state_digest(program: Program) -> bytes:
    """16 bytes, equal for Programs that continue each other bit by bit."""
    return sha256(program.digest().encode()).digest()[:16]


def stored_places(program: Program) -> list[tuple[Slot, int]]:
    """(slot, offset in a slot of the store) of what is kept, the control block last.

    Raises:
      ProgramError: two names have one hash.
    """
    slots = [*program.saved, program.slot(CONTROL)]
    found: dict[int, str] = {}
    for slot in slots:
        other = found.setdefault(name_hash(slot.name), slot.name)
        if other != slot.name:
            raise ProgramError(
                f"{program.model_name}: parameters {other!r} and {slot.name!r} have one hash. "
                "Rename one of them."
            )
    at = _BLOCK + blocks(_ROW.size * len(slots))
    out = []
    for slot in slots:
        out.append((slot, at))
        at += blocks(slot.nbytes)
    return out


def slot_nbytes(program: Program) -> int:
    """Bytes of one slot of the store, header and all."""
    last, at = stored_places(program)[-1]
    return at + blocks(last.nbytes)


def blocks(nbytes: int) -> int:
    """Rounded up to what a store writes at least."""
    return -(-nbytes // _BLOCK) * _BLOCK


def names_table(program: Program) -> bytes:
    """The table of names, a multiple of BLOCK bytes."""
    rows = [
        _ROW.pack(name_hash(slot.name), at, slot.nbytes, slot.format.number)
        for slot, at in stored_places(program)
    ]
    return b"".join(rows).ljust(blocks(_ROW.size * len(rows)), b"\0")


def write_stored(
    path: str | os.PathLike[str],
    program: Program,
    tensors: Mapping[str, np.ndarray],
    block: np.ndarray,
) -> None:
    """Write a file that a bundle of `program` loads, the state in its first slot.

    Args:
      tensors: what a checkpoint of the Program holds, or of another one of the same model: see
        `read_stored`.
      block: int64 [64], the control block.
    Raises:
      CheckpointError: a value is missing or of another size.
      RunError: it cannot be written; the file before is untouched.
    """
    whole = bytearray(2 * slot_nbytes(program))
    whole[_BLOCK : _BLOCK + len(names_table(program))] = names_table(program)
    for slot, at in stored_places(program):
        array = block if slot.name == CONTROL else _brought(slot, tensors.get(slot.name), str(path))
        whole[at : at + slot.nbytes] = np.ascontiguousarray(array).tobytes()
    length, rows = slot_nbytes(program) - _BLOCK, len(stored_places(program))
    head = _HEADER.pack(device.MAGIC, 1, state_digest(program), length, rows, 0, 0)[
        : 8 * device.CRC
    ]
    crc = zlib.crc32(whole[_BLOCK : _BLOCK + length], zlib.crc32(head))
    whole[:_BLOCK] = head + struct.pack("<q", crc)

    def write(file: BinaryIO) -> None:
        file.write(whole)

    write_atomically(path, write)


def read_stored(path: str | os.PathLike[str], program: Program) -> Stored:
    """The newest good state of a file (or an image of flash), for `program`.

    Of another Program, parameters and statistics are taken by name and brought to this one's
    storage; what its optimizer keeps is taken where it is stored alike, else it is zero.

    Raises:
      CheckpointError: no slot is good, or a value is missing or of another size.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}.") from error
    found = [s for at in {0, len(data) // 2} if (s := _good(data[at : at + len(data) // 2]))]
    if not found:
        raise CheckpointError(
            f"{path}: {len(data)} bytes, in neither half a good state; expected a bundle's. Take "
            "another copy of it."
        )
    sequence, digest, rows, half = max(found, key=lambda one: one[0])
    tensors = {}
    for slot, _ in stored_places(program):
        tensors[slot.name] = _value(slot, rows, half, str(path))
    block = tensors.pop(CONTROL)
    return Stored(tensors, block, sequence, digest == state_digest(program))


def _good(half: bytes) -> tuple[int, bytes, dict[int, tuple[int, int, int]], bytes] | None:
    """(sequence, digest, rows by hash, bytes) of a slot that holds a state."""
    if len(half) < _BLOCK:
        return None
    magic, sequence, digest, length, count, _, crc = _HEADER.unpack_from(half)
    sound = magic == device.MAGIC and sequence > 0 and 0 < length <= len(half) - _BLOCK
    if not sound or not 0 < count * _ROW.size <= length:
        return None
    rest = half[_BLOCK : _BLOCK + length]
    if zlib.crc32(rest, zlib.crc32(half[: 8 * device.CRC])) != crc:
        return None
    rows = {}
    for key, at, nbytes, kind in _ROW.iter_unpack(rest[: count * _ROW.size]):
        if at + nbytes > _BLOCK + length or kind not in _KINDS:
            return None
        rows[key] = at, nbytes, kind
    return sequence, digest, rows, half


def _value(
    slot: Slot, rows: Mapping[int, tuple[int, int, int]], half: bytes, label: str
) -> np.ndarray:
    """A slot's array out of a stored state."""
    row = rows.get(name_hash(slot.name))
    if row is None:
        return _brought(slot, None, label)
    at, nbytes, kind = row
    stored = _KINDS[kind]
    array = np.frombuffer(half, stored.dtype, nbytes // stored.block_nbytes, at)
    return _brought(slot, array, label)


def _brought(slot: Slot, array: np.ndarray | None, label: str) -> np.ndarray:
    """A value in the slot's shape and storage.

    Raises:
      CheckpointError: it is missing, of another size, or no number where the slot holds one.
    """
    wanted = slot.format.dtype
    if array is None and slot.role == "state":
        return np.zeros(slot.stored_shape, wanted)
    size = -1 if array is None else array.size
    source = slot.format if array is None else of_dtype(array.dtype)
    fits = array is not None and size == math.prod(source.stored_shape(slot.shape))
    if array is None or not fits or not (
        array.dtype == wanted or source.floats and slot.format.floats
    ):
        raise CheckpointError(
            f"{label}: {slot.name!r} has {max(size, 0)} elements; expected {slot.size}. Use the "
            "state of a net with the same parameters."
        )
    if array.dtype != wanted and slot.role not in _CONVERTED:
        return np.zeros(slot.stored_shape, wanted)
    if array.dtype != wanted:
        array = slot.format.encode(decoded(array, slot.shape))
    return np.array(array.reshape(slot.stored_shape))
