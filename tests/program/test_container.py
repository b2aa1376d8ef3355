"""Containers: exact round trips, agreement with the safetensors library, errors for any damage."""

import hashlib
import io
import json
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgetrain.errors import CheckpointError, ProgramError, RunError
from edgetrain.program import container
from edgetrain.program.container import is_good_container, read_container, write_container

DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"]
READ = {"kind": "test", "versions": range(1, 3)}
FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def write(path, tensors=None, meta=None, kind="test", version=2):
    if tensors is None:
        tensors = {"a": np.arange(5, dtype=np.float32), "b": np.ones((2, 3), np.int8)}
    write_container(path, tensors, meta or {}, kind=kind, version=version)
    return path


def forge(path, header, data=b"", length=None):
    """A file with the right length and checksum, whatever its header says."""
    meta = {"sha256": "0" * 64, "nbytes": "0" * 20, "kind": "test", "version": "1"}
    text = json.dumps(
        {"__metadata__": meta | header.pop("__metadata__", {}), **header},
        separators=(",", ":"),
    ).encode()
    return seal(path, text, data, length)


def seal(path, text, data=b"", length=None):
    text = text.replace(b"0" * 20 + b'"', b"%020d" % (8 + len(text) + len(data)) + b'"', 2)
    text = text[:27] + b"0" * 64 + text[91:]
    start = (len(text) if length is None else length).to_bytes(8, "little")
    digest = hashlib.sha256(start + text + data).hexdigest().encode()
    path.write_bytes(start + text[:27] + digest + text[91:] + data)
    return path


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def fails(path, match, error=ProgramError):
    tracemalloc.start()
    try:
        with pytest.raises(error, match=match) as caught:
            read_container(path, **READ, error=error)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert peak < 4 * 2**20  # one chunk and small things


@pytest.mark.parametrize("mmap", [False, True])
def test_container_round_trips_every_dtype(tmp_path, mmap):
    rng = np.random.default_rng(0)
    tensors = {f"t.{d}": rng.integers(0, 100, (3, 5)).astype(d) for d in DTYPES}
    tensors |= {"scalar": np.array(1.5), "empty": np.empty((0, 7), np.int16)}
    meta = {"recipe": 'é\n"quoted"', "empty": ""}
    path = write(tmp_path / "a.bin", tensors, meta)
    found, text = read_container(path, **READ, mmap=mmap)
    assert text == meta
    assert list(found) == list(tensors)
    for name, array in tensors.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable is not mmap or not found[name].size


def test_container_is_readable_by_the_safetensors_library(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {f"t.{d}": np.arange(7).astype(d) for d in DTYPES}
    found = safetensors.load_file(write(tmp_path / "a.bin", tensors, {"k": "v"}))
    assert {k: v.tobytes() for k, v in found.items() if not k.startswith("__pad_")} == {
        k: v.tobytes() for k, v in tensors.items()
    }


def test_container_aligns_every_tensor(tmp_path):
    path = write(tmp_path / "a.bin", {f"t{i}": np.zeros(i, np.int8) for i in (1, 63, 64, 65)})
    found, _ = read_container(path, **READ, mmap=True)
    assert [a.ctypes.data % 64 for a in found.values()] == [0] * 4


def test_container_writes_any_layout_in_c_order(tmp_path):
    base = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    tensors = {"t": base.T, "strided": base[::2, 1::3], "big": base.astype(">f4")}
    found, _ = read_container(write(tmp_path / "a.bin", tensors), **READ)
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array)


def test_container_writes_without_a_copy_of_the_tensor(tmp_path):
    tensor = np.zeros(2**24, np.uint8)
    tracemalloc.start()
    write(tmp_path / "a.bin", {"t": tensor})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**20


def test_read_into_fills_the_arrays_handed_in(tmp_path):
    path = write(
        tmp_path / "a.bin", {"a": np.arange(2**22, dtype="f4"), "b": np.ones((2, 3), "i1")}
    )
    arena = np.zeros(2**22 + 7, "f4")
    place = {"a": arena[7:], "b": np.zeros((2, 3), "i1")}
    tracemalloc.start()
    found, _ = read_container(path, **READ, into=place)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["a"] is place["a"] and peak < 2 * 2**20
    np.testing.assert_array_equal(arena[7:], np.arange(2**22))
    assert place["b"].all()


@pytest.mark.parametrize(
    ("name", "array", "match"),
    [
        ("b", np.zeros((3, 2), "i1"), r"'b' is int8 \[2, 3\]; expected int8 \[3, 2\]"),
        ("b", np.zeros((2, 3), "u1"), "expected uint8"),
        ("c", np.zeros(3), "'c' is missing"),
    ],
)
def test_read_into_touches_nothing_unless_all_fits(tmp_path, name, array, match):
    path = write(tmp_path / "a.bin")
    place = {"a": np.full(5, 7, "f4"), name: array}
    with pytest.raises(ProgramError, match=match):
        read_container(path, **READ, into=place)
    assert (place["a"] == 7).all()


def test_read_refuses_a_name_that_no_file_can_have():
    with pytest.raises(ProgramError, match="null"):
        read_container("a\0b", **READ)


def test_container_bytes_are_reproducible(tmp_path):
    a, b = write(tmp_path / "a.bin"), write(tmp_path / "b.bin")
    assert a.read_bytes() == b.read_bytes()


def test_container_write_reports_a_missing_directory(tmp_path):
    with pytest.raises(RunError):
        write(tmp_path / "none" / "a.bin")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_read_refuses_what_is_no_regular_file(tmp_path, make):
    make(tmp_path / "a.bin")
    fails(tmp_path / "a.bin", "not a regular file")


def test_read_refuses_a_missing_file(tmp_path):
    fails(tmp_path / "a.bin", "No such file", CheckpointError)


def test_read_refuses_another_kind(tmp_path):
    fails(write(tmp_path / "a.bin", kind="other"), "kind 'other'; expected 'test'")


@pytest.mark.parametrize(("version", "move"), [(3, "Upgrade edgetrain"), (0, "Write it again")])
def test_read_refuses_another_version(tmp_path, version, move):
    path = write(tmp_path / "a.bin", version=version)
    fails(path, f"format version {version}; this build reads 1-2. {move}")


@pytest.mark.parametrize("data", [b"", b"x", b"\x80\x04K\x01.", bytes(1000), b"\xff" * 1000])
def test_read_refuses_foreign_bytes(tmp_path, data):
    (tmp_path / "a.bin").write_bytes(data)
    fails(tmp_path / "a.bin", "not an edgetrain test file")


def test_read_refuses_every_truncation(tmp_path):
    path = write(tmp_path / "a.bin")
    whole = path.read_bytes()
    for count in [0, 1, 7, 8, 50, 98, 99, 120, 200, len(whole) - 1]:
        path.write_bytes(whole[:count])
        assert not is_good_container(path, **READ), count
    path.write_bytes(whole + b"x")
    fails(path, "followed by other bytes")


def test_read_refuses_every_flipped_bit(tmp_path):
    path = write(tmp_path / "a.bin", {"a": np.arange(3, dtype=np.int8)})
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert not is_good_container(path, **READ), place


@pytest.mark.parametrize("length", [0, 50, 2**24, 2**63, 2**64 - 1])
def test_read_refuses_an_impossible_header_length(tmp_path, length):
    fails(forge(tmp_path / "a.bin", {}, bytes(2000), length), "header of|sha256|not JSON")


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ({"a": entry(offsets=(4, 8))}, "starts at byte"),
        ({"a": entry(offsets=(0, 4)), "b": entry(offsets=(0, 4))}, "starts at byte"),
        ({"a": entry(offsets=(0, 4)), "b": entry(offsets=(2, 6))}, "starts at byte"),
        ({"a": entry(shape=(3,), offsets=(0, 12))}, "tensors end at byte"),
        ({"a": entry(offsets=(4, 0))}, "has -4 bytes"),
        ({"a": entry(offsets=(-4, 0))}, r"a.data_offsets\[0\]: .*, found -4"),
        ({"a": entry(offsets=(0, 2**70))}, r"a.data_offsets\[1\]: .*, found 11805"),
        ({"a": entry(offsets=(0.0, 4.0))}, r"a.data_offsets\[0\]: .*, found 0.0"),
        ({"a": entry(offsets=(0, 4, 8))}, "a.data_offsets: .*, found .*a list of 3"),
        ({"a": entry(offsets=None)}, "a.data_offsets: .*, found null"),
        ({"a": entry(dtype="F31")}, 'a.dtype: .*, found "F31"'),
        ({"a": entry(dtype=["F32"])}, "a.dtype: .*, found a list"),
        ({"a": entry(dtype="F64")}, "has 4 bytes; expected 8"),
        ({"a": entry(shape=(2**40, 2**40))}, "more than"),
        ({"a": entry(shape=(0, 2**62), offsets=(0, 0))}, "more than"),
        ({"a": entry(shape=[1] * 33)}, "a.shape: expected a list of 0 to 32"),
        ({"a": entry(shape=(True,))}, r"a.shape\[0\]: .*, found true"),
        ({"a": entry(shape=(-1, -1))}, r"a.shape\[0\]: .*, found -1"),
        ({"a": entry(shape="12")}, 'a.shape: .*, found "12"'),
        ({"a": {}}, "a.dtype: expected this field, found none"),
        ({"a": 3}, "a: expected an object, found 3"),
        ({"a": {**entry(), "b": 1}}, "a.b: expected no field of this name, found 1"),
        ({"__metadata__": {"version": "x"}}, "version 'x'"),
        ({"__metadata__": {"version": "9" * 5000}}, "version '999"),
        ({"__metadata__": {"more": 3}}, "__metadata__.more: expected text"),
    ],
)
def test_read_refuses_a_header_that_does_not_describe_the_data(tmp_path, header, match):
    data = bytes(0 if "b" not in header and "metadata" in str(header) else 4)
    fails(forge(tmp_path / "a.bin", json.loads(json.dumps(header)), data), match)


@pytest.mark.parametrize(
    "tail",
    [b'"a":', b'"a":' + b"[" * 100_000, b'"a":1,"a":2}', b"\xff}", b'"a":' + b"9" * 5000 + b"}"],
)
def test_read_refuses_a_header_that_is_not_json(tmp_path, tail):
    good = forge(tmp_path / "b.bin", {}).read_bytes()[8:]
    text = good[:91] + b'","nbytes":"' + b"0" * 20 + b'"},' + tail
    fails(seal(tmp_path / "a.bin", text), "damaged: ")


NAMES = st.text(min_size=1, max_size=20).filter(lambda n: not n.startswith("__"))
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)


@FUZZ
@given(tensors=st.dictionaries(NAMES, ARRAYS, max_size=4), mmap=st.booleans())
def test_container_round_trips_anything(tmp_path, tensors, mmap):
    found, _ = read_container(write(tmp_path / "a.bin", tensors), **READ, mmap=mmap)
    assert {k: (v.dtype, v.shape, v.tobytes()) for k, v in found.items()} == {
        k: (v.dtype, v.shape, v.tobytes()) for k, v in tensors.items()
    }


@FUZZ
@given(data=st.binary(max_size=400), place=st.integers(0, 2000), cut=st.integers(0, 2000))
def test_read_never_escapes_its_error_class_on_mangled_files(tmp_path, data, place, cut):
    path = write(tmp_path / "a.bin")
    whole = path.read_bytes()
    mangled = whole[:place] + data + whole[place + cut :]
    path.write_bytes(mangled)
    try:
        read_container(path, **READ, error=CheckpointError)
    except CheckpointError:
        return
    assert mangled == whole


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["F32", "U8", "F16"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)  # fmt: skip
ENTRIES = st.fixed_dictionaries({"dtype": JSON, "shape": JSON, "data_offsets": JSON}) | JSON


@FUZZ
@given(header=st.dictionaries(st.text(min_size=1, max_size=5), ENTRIES, max_size=3))
def test_read_never_escapes_its_error_class_on_forged_headers(tmp_path, header):
    path = forge(tmp_path / "a.bin", header, bytes(64))
    with pytest.raises(ProgramError):
        read_container(path, **READ)


def test_read_refuses_a_header_longer_than_this_build_takes(tmp_path, monkeypatch):
    path = write(tmp_path / "a.bin")
    monkeypatch.setattr(container, "MAX_HEADER_NBYTES", 200)
    with pytest.raises(ProgramError, match="expected at most 200"):
        read_container(path, **READ)


def test_reading_into_a_place_ends_where_the_file_does():
    class Short(io.BytesIO):
        def readinto(self, view):
            assert self.tell() < 2, "read again after its end"
            return super().readinto(view) or self.seek(2) and 0

    file = Short(b"a")
    with pytest.raises(container.BadFile, match="truncated"):
        container._read_into(file, memoryview(bytearray(4)))
