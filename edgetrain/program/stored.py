"""Training state as saved by bundles in flash or a file: the newer intact one of two slots.

A slot is a header (kernels/device/layout.py), a table of names, then values at multiples of 64
bytes: the contents of a checkpoint, and the control block. A slot is valid only if header, digest
and length are.
"""

import math
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np

from ..errors import CheckpointError, ProgramError
from ..formats import FORMATS, Format, decoded, of_dtype
from ..kernels import control
from ..kernels.device import layout as device
from ..units.files import open_regular
from ..units.sha import sha256
from .atomic import write_atomically
from .plan_block import control_words
from .program import Program
from .sets import Slot

CONTROL = "ctl"
_KINDS = {format.number: format for format in FORMATS.values()}
_BLOCK = device.BLOCK
_HEADER = struct.Struct("<2q16s4q")
_ROW = struct.Struct("<4I")
_CONVERTED = ("parameter", "buffer")  # roles that mean the same in any storage of floats
_ROWS_NBYTES, _CHUNK_NBYTES = 2**24, 2**20  # most bytes of the table of names; of one read


class _Place(NamedTuple):
    """Where a value is in a file, in bytes, and how it is stored."""

    at: int
    nbytes: int
    format: Format


@dataclass(frozen=True)
class Stored:
    """The newest valid state of a file.

    Attributes:
      tensors: by name, in the storage of the Program it was read for.
      block: int64 words of the control block.
      exact: it was written by this Program or one with the same bits; otherwise only values are
        kept.
      anew: optimizer state starts again, because it is stored in another form.
    """

    tensors: dict[str, np.ndarray]
    block: np.ndarray
    sequence: int
    exact: bool
    anew: bool = False

    @property
    def reals(self) -> np.ndarray:
        """The words of the control block as float64."""
        return self.block.view(np.float64)


def name_hash(name: str) -> int:
    """A 32-bit hash of a name: FNV-1a."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def state_digest(program: Program) -> bytes:
    """16 bytes, equal for Programs that can continue each other's runs bit by bit."""
    return sha256(program.digest().encode()).digest()[:16]


def stored_places(program: Program) -> list[tuple[Slot, int]]:
    """(slot, offset in a slot of the store) for all stored values, the control block last.

    Raises:
      ProgramError: two names have the same hash.
    """
    slots = [*program.saved, program.slot(CONTROL)]
    result: dict[int, str] = {}
    for slot in slots:
        other = result.setdefault(name_hash(slot.name), slot.name)
        if other != slot.name:
            raise ProgramError(
                f"{program.model_name}: parameters {other!r} and {slot.name!r} have the same "
                f"hash. Rename one of them."
            )
    offset = _BLOCK + blocks(_ROW.size * len(slots))
    out = []
    for slot in slots:
        out.append((slot, offset))
        offset += blocks(slot.nbytes)
    return out


def slot_nbytes(program: Program) -> int:
    """Size of a slot of the store, including its header."""
    last, offset = stored_places(program)[-1]
    return offset + blocks(last.nbytes)


def blocks(nbytes: int) -> int:
    """A size rounded up to the smallest unit that a store writes."""
    return -(-nbytes // _BLOCK) * _BLOCK


def names_table(program: Program) -> bytes:
    """The table of names, padded to a multiple of BLOCK bytes."""
    rows = [
        _ROW.pack(name_hash(slot.name), offset, slot.nbytes, slot.format.number)
        for slot, offset in stored_places(program)
    ]
    return b"".join(rows).ljust(blocks(_ROW.size * len(rows)), b"\0")


def write_stored(
    path: str | os.PathLike[str],
    program: Program,
    tensors: Mapping[str, np.ndarray],
    block: np.ndarray,
) -> bool:
    """Write a file that a bundle of `program` can load, with the state in its first slot.

    Args:
      tensors: the contents of a checkpoint of the Program, or of another one of the same model: see
        `read_stored`.
      block: int64 [64], the control block.
    Returns:
      Whether optimizer state was taken; if not, it starts again.
    Raises:
      CheckpointError: a value is missing or of another size.
      RunError: it can't be written; an older file is unchanged.
    """
    given = {name_hash(name): (array.dtype, array.nbytes) for name, array in tensors.items()}
    carries = _carries(program, given)
    if not carries:
        states = {
            slot.name: _initial(program, slot) for slot in program.saved if slot.role == "state"
        }
        tensors, block = {**tensors, **states}, _begun(program, block)
    whole = bytearray(2 * slot_nbytes(program))
    whole[_BLOCK : _BLOCK + len(names_table(program))] = names_table(program)
    for slot, offset in stored_places(program):
        array = block if slot.name == CONTROL else _brought(slot, tensors.get(slot.name), str(path))
        whole[offset : offset + slot.nbytes] = np.ascontiguousarray(array).tobytes()
    length, rows = slot_nbytes(program) - _BLOCK, len(stored_places(program))
    head = _HEADER.pack(device.MAGIC, 1, state_digest(program), length, rows, 0, 0)[
        : 8 * device.CRC
    ]
    crc = zlib.crc32(whole[_BLOCK : _BLOCK + length], zlib.crc32(head))
    whole[:_BLOCK] = head + struct.pack("<q", crc)

    def write(file: BinaryIO) -> None:
        file.write(whole)

    write_atomically(path, write)
    return carries


def read_stored(path: str | os.PathLike[str], program: Program) -> Stored:
    """The newest valid state of a file (or an image of flash), for `program`.

    From another Program, parameters and statistics are taken by name and converted to this one's
    storage. Optimizer state is taken if all of it is stored in the same form; otherwise it starts
    again.

    Raises:
      CheckpointError: no slot is valid, a value is missing or of another size, or a weight differs
        that this Program keeps in its own file.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            half = size // 2
            # After the first save, the file ends with the first slot.
            places = ((0, half), (half, half), (0, size))
            result = [s for start, nbytes in places if (s := _good(file, start, nbytes))]
            if not result:
                raise CheckpointError(
                    f"{path}: {size} bytes without a good state; expected a bundle's state. Use "
                    "another copy."
                )
            sequence, digest, rows = max(result, key=lambda item: item[0])
            anew = not _carries(
                program, {k: (place.format.dtype, place.nbytes) for k, place in rows.items()}
            )
            tensors = {
                slot.name: _initial(program, slot)
                if anew and slot.role == "state"
                else _value(file, slot, rows.get(name_hash(slot.name)), str(path))
                for slot, _ in stored_places(program)
            }
            values = {
                slot.name: (_array(file, place), slot.shape)
                for slot in program.mapped
                if (place := rows.get(name_hash(slot.name))) is not None
            }
            check_mapped(program, values, "the file's")
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read: {error.strerror}. Pass a file with a bundle's state."
        ) from error
    block = tensors.pop(CONTROL)
    if anew:
        block = _begun(program, block)
    return Stored(tensors, block, sequence, digest == state_digest(program), anew)


def _good(file: BinaryIO, start: int, room: int) -> tuple[int, bytes, dict[int, _Place]] | None:
    """(sequence, digest, places by hash) of a slot of `room` bytes, if it contains a state."""
    file.seek(start)
    head = file.read(min(_BLOCK, room))
    if len(head) < _BLOCK:
        return None
    magic, sequence, digest, length, count, _, crc = _HEADER.unpack_from(head)
    sound = magic == device.MAGIC and sequence > 0 and 0 < length <= room - _BLOCK
    if not sound or not 0 < count * _ROW.size <= min(length, _ROWS_NBYTES):
        return None
    rows = file.read(count * _ROW.size)
    result, left = zlib.crc32(rows, zlib.crc32(head[: 8 * device.CRC])), length - len(rows)
    while left > 0 and (part := file.read(min(left, _CHUNK_NBYTES))):
        result, left = zlib.crc32(part, result), left - len(part)
    if result != crc:
        return None
    places = {}
    for key, offset, nbytes, kind in _ROW.iter_unpack(rows):
        if offset + nbytes > _BLOCK + length or kind not in _KINDS:
            return None
        places[key] = _Place(start + offset, nbytes, _KINDS[kind])
    return sequence, digest, places


def _value(file: BinaryIO, slot: Slot, place: _Place | None, label: str) -> np.ndarray:
    """A slot's array from a stored state; reads no more than the slot's size."""
    if place is None:
        return _brought(slot, None, label)
    count = place.format.count(place.nbytes)
    if place.format.nbytes(slot.size) != place.nbytes:
        raise _unlike(slot, count, label)
    return _brought(slot, _array(file, place), label)


def _array(file: BinaryIO, place: _Place) -> np.ndarray:
    file.seek(place.at)
    return np.frombuffer(file.read(place.nbytes), place.format.dtype)


def _carries(program: Program, given: Mapping[int, tuple[np.dtype, int]]) -> bool:
    """Whether all optimizer state of a Program is given in its storage, as (type, bytes) by hash of
    the name."""
    return all(
        given.get(name_hash(slot.name)) == (slot.format.dtype, slot.nbytes)
        for slot in program.saved
        if slot.role == "state"
    )


def _initial(program: Program, slot: Slot) -> np.ndarray:
    """The value of optimizer state before the first update."""
    array = program.init.get(slot.name)
    return np.zeros(slot.stored_shape, slot.format.dtype) if array is None else np.array(array)


def _begun(program: Program, block: np.ndarray) -> np.ndarray:
    """A control block without what belongs to optimizer state: counts, bias corrections,
    exponents."""
    result, initial = block.copy(), control_words(program)
    for word in control.OF_STATE:
        result[word] = initial.get(word, 0)
    return result


def check_mapped(
    program: Program, values: Mapping[str, tuple[np.ndarray, tuple[int, ...]]], whose: str
) -> None:
    """Check that the weights that a Program keeps in its own file are these.

    Args:
      values: stored array and shape by name; others are not checked.
      whose: such as "the run's".
    Raises:
      CheckpointError: one differs.
    """
    for slot in program.mapped:
        if slot.role != "parameter" or slot.name not in values:
            continue
        array, own = values[slot.name][0], program.init[slot.name]
        if array.dtype != slot.format.dtype:
            array = slot.format.encode(decoded(array, values[slot.name][1]))
        if array.reshape(-1).tobytes() != np.ascontiguousarray(own).tobytes():
            raise CheckpointError(
                f"parameter {slot.name!r}: the Program {program.model_name} keeps it frozen in its "
                f"file, where it differs from {whose}, and a state can't replace it. Compile from "
                "the trained model, or without frozen storage (--frozen, --lora)."
            )


def _unlike(slot: Slot, count: int, label: str) -> CheckpointError:
    return CheckpointError(
        f"{label}: {slot.name!r} has {count} elements; expected {slot.size}. Use the "
        "state of a model with the same parameters."
    )


def _brought(slot: Slot, array: np.ndarray | None, label: str) -> np.ndarray:
    """Convert a value to the slot's shape and storage.

    Raises:
      CheckpointError: it is missing, or of another size or type.
    """
    wanted = slot.format.dtype
    source = slot.format if array is None else of_dtype(array.dtype)
    fits = array is not None and array.size == math.prod(source.stored_shape(slot.shape))
    floats = source.floats and slot.format.floats and slot.role in _CONVERTED
    if array is None or not fits or not (array.dtype == wanted or floats):
        raise _unlike(slot, 0 if array is None else array.size, label)
    if array.dtype != wanted:
        array = slot.format.encode(decoded(array, slot.shape))
    return np.array(array.reshape(slot.stored_shape))
