"""A bundle's state as a file: invalid files are refused before they are read completely."""

import os
import struct
import zlib

import numpy as np
import pytest

import edgetrain as et
from edgetrain.errors import CheckpointError
from edgetrain.program import stored
from edgetrain.program.stored import read_stored, slot_nbytes, write_stored
from tests.compiler.nets import Net


@pytest.fixture(scope="module")
def program():
    net = Net(6)
    net.add("MatMul", ["x", net.weight("w", 6, 3)], "y")
    return et.compile(net.model("y"), loss="mse", minibatch=4, optimizer=et.SGD(momentum=0.9))


@pytest.fixture
def kept(program, tmp_path):
    tensors = {slot.name: np.full(slot.shape, 2, slot.format.dtype) for slot in program.saved}
    path = tmp_path / "net.state"
    write_stored(path, program, tensors, np.arange(64, dtype=np.int64))
    return path


def test_state_is_read_as_it_was_written(program, kept):
    found = read_stored(kept, program)
    assert found.exact and found.sequence == 1
    assert found.block.tolist() == list(range(64))
    assert {name: array.tolist() for name, array in found.tensors.items()} == {
        slot.name: np.full(slot.shape, 2.0).tolist() for slot in program.saved
    }


def test_state_in_the_second_half_is_found(program, kept):
    data = kept.read_bytes()
    half = slot_nbytes(program)
    kept.write_bytes(data[half:] + data[:half])
    assert read_stored(kept, program).sequence == 1


def test_a_file_of_one_save_is_one_slot(program, kept):
    kept.write_bytes(kept.read_bytes()[: slot_nbytes(program)])
    assert read_stored(kept, program).sequence == 1


@pytest.mark.parametrize("change", ["bit", "cut", "empty"])
def test_damaged_state_is_refused(program, kept, change):
    data = bytearray(kept.read_bytes())
    data[slot_nbytes(program) - 1] ^= change == "bit"
    kept.write_bytes({"bit": data, "cut": data[: len(data) // 4], "empty": b""}[change])
    with pytest.raises(CheckpointError, match="bytes without a good state"):
        read_stored(kept, program)


@pytest.mark.parametrize("kind", ["pipe", "folder", "missing"])
def test_what_is_no_file_is_refused_without_waiting(program, tmp_path, kind):
    path = tmp_path / kind
    if kind != "missing":
        (os.mkfifo if kind == "pipe" else os.mkdir)(path)
    with pytest.raises(CheckpointError, match=r"not a regular file|cannot be read"):
        read_stored(path, program)


def test_state_of_a_file_larger_than_memory_is_not_read_whole(program, kept, monkeypatch):
    """The file is sparse and takes no disk; nothing after the state is read."""
    data = kept.read_bytes()[: slot_nbytes(program)]
    with open(kept, "r+b") as file:
        file.truncate(2**42)
    assert read_stored(kept, program).sequence == 1
    monkeypatch.setattr(stored, "_ROWS_NBYTES", 16)
    with pytest.raises(CheckpointError, match="bytes without a good state"):
        read_stored(kept, program)
    assert kept.stat().st_size == 2**42 and data[:8] == struct.pack("<q", stored.device.MAGIC)


def test_value_of_another_size_is_named(program, kept):
    net = Net(6)
    net.add("MatMul", ["x", net.weight("w", 6, 5)], "y")
    other = et.compile(net.model("y"), loss="mse", minibatch=4, optimizer=et.SGD(momentum=0.9))
    with pytest.raises(CheckpointError, match="'w' has 18 elements; expected 30"):
        read_stored(kept, other)


@pytest.mark.parametrize("field", ["end", "kind"])
def test_a_table_that_names_what_is_not_there_is_refused(program, kept, field):
    """With the right checksum: a value that ends a byte after the state, an unknown storage."""
    data, nbytes = bytearray(kept.read_bytes()), slot_nbytes(program)
    places = stored.stored_places(program)
    slot, at = places[-1]
    row = stored._BLOCK + stored._ROW.size * (len(places) - 1)
    key, _, size, kind = stored._ROW.unpack_from(data, row)
    changed = (nbytes - size + 1, kind) if field == "end" else (at, 99)
    stored._ROW.pack_into(data, row, key, changed[0], size, changed[1])
    summed = 8 * stored.device.CRC
    crc = zlib.crc32(data[stored._BLOCK : nbytes], zlib.crc32(data[:summed]))
    struct.pack_into("<q", data, summed, crc)
    kept.write_bytes(data)
    with pytest.raises(CheckpointError, match="bytes without a good state"):
        read_stored(kept, program)
    assert stored.name_hash(slot.name) == key
