"""Malformed files: a DataError that names the file, at once and without large allocations."""

import gzip
import os
import re
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgetrain.data.registry import open_data
from edgetrain.errors import DataError

from . import writers as w

X, Y = w.samples()
FUZZ = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def fails(spec, match, **how):
    """Opening and reading everything raises DataError, within two CPU seconds and 4 MiB."""
    start = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=match) as caught:
            w.read_all(open_data(spec, **how))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert peak < 4 * 2**20 and time.process_time() - start < 2


@pytest.fixture
def mnist(tmp_path):
    w.write_mnist(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("images-idx3", b"", "starts with nothing"),
        ("images-idx3", b"\x89PNG....", "starts with 89504e47"),
        ("images-idx3", b"\0\0\x08\x03\0\0", "starts with 00000803"),
        ("images-idx3", b"\0\0\x08\x03" + b"\xff" * 12 + bytes(9), "25 bytes; expected"),
        ("images-idx3", w.idx_bytes(X)[:-1], "expected"),
        ("images-idx3", w.idx_bytes(X) + b"x", "expected"),
        ("images-idx3", w.idx_bytes(X[:, 0]), r"expected bytes \(n, height, width\)"),
        ("images-idx3", w.idx_bytes(X[:19]), r"\[20\] labels for 19 images"),
        ("labels-idx1", w.idx_bytes(Y + 5), "expected a whole number from 0 to 9"),
    ],
)
def test_mnist_refuses_malformed_files(mnist, name, data, match):
    (mnist / f"train-{name}-ubyte").write_bytes(data)
    fails(f"mnist:{mnist}", match)


def test_mnist_refuses_a_missing_file(mnist):
    (mnist / "t10k-labels-idx1-ubyte").unlink()
    assert open_data(f"mnist:{mnist}").n == 20
    fails(f"mnist:{mnist}", "t10k-labels-idx1-ubyte .*missing", split="test")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"no gzip at all", "not a gzip file"),
        (gzip.compress(w.idx_bytes(X))[:-30], "not a gzip file|damaged"),
        (gzip.compress(w.idx_bytes(X)[:-1]), "damaged .*too short"),
        (gzip.compress(w.idx_bytes(X) + bytes(10**7)), "damaged .*longer than"),
        (gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12 + bytes(100)), "expected at most 128 times"),
    ],
    ids=["none", "cut", "short", "long", "header"],  # gzip stores the time: bytes make no name
)
def test_mnist_refuses_a_malformed_gz(mnist, data, match):
    (mnist / "train-images-idx3-ubyte").unlink()
    (mnist / "train-images-idx3-ubyte.gz").write_bytes(data)
    fails(f"mnist:{mnist}", match)
    assert not [name for name in os.listdir(mnist) if "unpacked" in name]


def test_cifar10_refuses_malformed_files(tmp_path):
    w.write_cifar10(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    whole = path.read_bytes()
    for data, match in (
        (whole[:-1], "data_batch_3.bin: 12291 bytes; expected a multiple of 3073"),
        (b"", "expected a multiple"),
        (b"\x0a" + whole[1:], "sample 8: field 'y': value 10"),
    ):
        path.write_bytes(data)
        fails(f"cifar10:{tmp_path}", match)
    path.unlink()
    fails(f"cifar10:{tmp_path}", "data_batch_3.bin: No such file")
    os.mkfifo(path)
    fails(f"cifar10:{tmp_path}", "not a regular file")


def npy_bytes(text, data=b""):
    head = text.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


HEAD = "{'descr': %r, 'fortran_order': %s, 'shape': %s, }\n"


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "not a .npy array"),
        (b"\x80\x04K\x01.", "not a .npy array"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "not a .npy array"),
        (b"\x93NUMPY\x09\x00", "not a .npy array"),
        (npy_bytes("(" * 5000), "not a .npy array"),
        (npy_bytes("__import__('os')"), "not a .npy array"),
        (
            npy_bytes(HEAD % ("|O", False, "(20,)")),
            r"object; .*, such as y.astype\(str\)\.$",
        ),
        (npy_bytes(HEAD % ("<U5", False, "(20,)")), "values of type"),
        (npy_bytes(HEAD % ("<c16", False, "(20,)")), r"of type complex128; .* before saving\.$"),
        (npy_bytes(HEAD % ("<f4", False, "()")), r"expected \(samples, ...\)"),
        (npy_bytes(HEAD % ("<f4", False, "(20, -3)")), r"expected \(samples, ...\)|not a .npy"),
        (npy_bytes(HEAD % ("<f4", False, "(20, 10**30)")), "not a .npy"),
        (npy_bytes(HEAD % ("<f4", False, f"(20, {10**30})")), "is impossibly large"),
        (npy_bytes(HEAD % ("<f4", False, "(20, 10000000000)")), "bytes; expected"),
        (npy_bytes(HEAD % ("<f4", True, "(20, 10000000000)")), "bytes; expected"),
        (npy_bytes(HEAD % ("<f4", False, "(20, 2)"), bytes(159)), "bytes; expected"),
        (npy_bytes(HEAD % ("<f4", False, "(20, 2)"), bytes(161)), "bytes; expected"),
        (npy_bytes(HEAD % ("<f4", False, "(19, 2)"), bytes(152)), "samples per array: x 19, y 20"),
        (npy_bytes(HEAD % ("<f4", False, "(20,)"), b"\0\0\xc0\x7f" * 20), "value nan"),
    ],
)
def test_npy_refuses_malformed_files(tmp_path, data, match):
    np.save(tmp_path / "y.npy", Y)
    (tmp_path / "x.npy").write_bytes(data)
    fails(f"npy:{tmp_path}", match)
    folder = tmp_path / "npz"
    folder.mkdir()
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(folder / "a.npz", "w", method) as archive:
            archive.writestr("x.npy", data)
            archive.write(tmp_path / "y.npy", "y.npy")
        fails(f"npz:{folder}/a.npz", match.replace("bytes; expected", "bytes; expected|cannot be"))
    assert os.listdir(folder) in (["a.npz"], ["a.npz", "a.npz.unpacked"])


def test_npz_refuses_what_is_no_npz(tmp_path):
    path = tmp_path / "a.npz"
    for data in (b"", b"PK", bytes(1000), b"PK\x05\x06" + bytes(18), npy_bytes("")):
        path.write_bytes(data)
        fails(f"npz:{path}", "not a readable npz file|found no arrays")
    np.savez(path, x=np.zeros((20, 3)), y=Y)
    path.write_bytes(path.read_bytes()[:-30])
    fails(f"npz:{path}", r"not a readable npz file \(it is truncated or damaged\)")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../x.npy", b"")
    fails(f"npz:{path}", "array name '../x'")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "nothing")
    fails(f"npz:{path}", "found no arrays")
    fails(f"npz:{tmp_path}", "not a regular file")


def test_npz_refuses_a_bomb(tmp_path):
    """4 GiB of zeros in 4 MB; the header says 20 samples."""
    path = tmp_path / "a.npz"
    head = npy_bytes(HEAD % ("<f4", False, "(20, 2)"))
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(head)
        for _ in range(64):
            member.write(bytes(2**20))
    fails(f"npz:{path}", "array 'x' takes 67")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "line 1: ''; expected at least two columns"),
        ("\n\n", "line 1: ''; expected at least two columns"),
        ("a\n1\n2\n", "expected at least two columns"),
        ("a,b\n", "no numbers below the header"),
        ("a,b\n1,2\n1,2,3\n", "line 3 has 3 columns; expected 2"),
        ("a,b\n1,2\n\n1,x\n3,4\n", "line 4, column 2: 'x'; expected a number"),
        ("1,label\n1,2\n3,4\n", "line 1, column 2: 'label'; expected a number"),
        ("1,2\n1,\n3,4\n", "line 2, column 2: ''; expected a number"),
        ("1,2\n1e999,1\n3,4\n", "line 2, column 1: '1e999'; expected a finite number"),
        ("1,2\n1e39,1\n3,4\n", "line 2: field 'x': value 1e\\+39; .* at most 3.4"),
        ("1,-2\n3,4\n", None),
        ("1,2\n1_000,1\n3,4\n", "line 2, column 1: '1_000'; expected a number"),
        ("1,2\n,1\n3,4\n", "column 1: ''; expected a number. Fill it in"),
        ("1,2\nn/a,1\n3,4\n", "'n/a'; expected a number. Fill it in"),
        ("1;2\n1,5;1\n3;4\n", "'1,5'; expected a number. .*decimal point"),
        ('1,2\n"1,000",1\n3,4\n', "'1,000'; expected a number. .*decimal point"),
        ("1,2\n3,4\n".encode("utf-16"), "text in UTF-16; expected UTF-8"),
        ("1,2\n" + "7" * 2**21, "line 2 is longer than"),
        ("a,b\n1,2\n3\n", "line 3 has 1 column; expected 2 as in line 1. Correct"),
        ("# a, b, c\na,b\n1,2\n", "line 2 has 2 columns; expected 3 as in line 1. Remove comments"),
        ("a,b,\n1,2,\n", "line 1, column 3: ''; .* separator at the end"),
        ("1;2;\n1;2;\n", "line 1, column 3: ''; .* separator at the end"),
        (",a,b\n0,1,2\n", "line 1, column 1: ''; .*index=False"),
        ("a,,b\n0,1,2\n", "line 1, column 2: ''; expected a column name"),
        ("a,b\r1,2\r3,4\r", "carriage return alone; expected line feeds"),
        (b"PK\x03\x04\n\x00", "a zip archive, .*; expected text"),
        (b"\x93NUMPY\x01", "a .npy file; expected text"),
        (b"SQLite format 3\0\x10", "binary data; expected text"),
    ],
)
def test_csv_refuses_malformed_files(tmp_path, text, match):
    path = tmp_path / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if match is None:
        assert open_data(f"csv:{path}").fields["y"].dtype == np.float32
        return
    for split in ("train", "test"):
        try:
            w.read_all(open_data(f"csv:{path}", split=split))
        except DataError:
            fails(f"csv:{path}", match, split=split)
            return
    pytest.fail("nothing was refused")


def test_csv_refuses_an_unknown_label(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    fails(f"csv:{tmp_path}/a.csv", "no column 'c'; found a, b", label="c")
    (tmp_path / "a.csv").write_text("a,b,c,b\n1,2,3,4\n")
    fails(f"csv:{tmp_path}/a.csv", "columns 2 and 4 are both named 'b'", label="b")
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    fails(f"csv:{tmp_path}/a.csv", "no column 'c'; found no header. Add one", label="c")
    (tmp_path / "a.csv").write_text("size,kind\n1,2\n3,4\n")
    fails(f"csv:{tmp_path}/a.csv", "Did you mean kind", label="Kind")
    names = [f"column{k}" for k in range(70)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), ",".join(["1"] * 70)]))
    fails(f"csv:{tmp_path}/a.csv", "found column0, .*, column9 and 60 more. Choose", label="c")
    (tmp_path / "a.csv").write_bytes("a,größe\n1,2\n".encode("latin-1"))
    fails(f"csv:{tmp_path}/a.csv", "The header is not UTF-8", label="größe")


def test_csv_takes_separators_between_quotes(tmp_path):
    lines = [
        '"a","b, c",kind',
        '1,"2","ant, black"',
        '3,4,"say ""hi"""',
        '5,6,5" pipe',
        '"7",8,bee',
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    source = open_data(f"csv:{tmp_path}/a.csv", label="kind")
    assert source.labels == ('5" pipe', "ant, black", "bee", 'say "hi')
    x, y = np.empty((4, 2), np.float32), np.empty(4, np.int64)
    source.fill(np.arange(4), {"x": x, "y": y})
    assert x.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]] and y.tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize("word", ["val", "valid", "validation"])
def test_a_validation_split_is_the_test_split_where_there_is_none(tmp_path, word):
    x, y = np.zeros((6, 2), np.float32), np.array([*"aabbab"])
    held = {f"x_{word}": x[:2], f"y_{word}": y[:2]}
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, **held)
    for spec in (f"npz:{tmp_path}/a.npz", {"x_train": x, "y_train": y, **held}):
        assert open_data(spec).splits == ("train", "test")
        assert open_data(spec, split="test").n == 2
        assert open_data(spec, split="test").labels == ("a", "b")


def test_a_home_is_found_behind_the_colon(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.savez(tmp_path / "a.npz", x=np.zeros((6, 2)), y=np.arange(6))
    np.save(tmp_path / "x.npy", np.zeros((6, 2)))
    np.save(tmp_path / "y.npy", np.arange(6))
    assert open_data("npz:~/a.npz").n == open_data("npy:~/x.npy,~/y.npy").n == 6


def test_dir_refuses_malformed_folders(tmp_path):
    fails(f"dir:{tmp_path}", "no folders")
    (tmp_path / "a").mkdir()
    fails(f"dir:{tmp_path}", "no pictures, .wav or .npy files")
    (tmp_path / "a" / "cat").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    fails(f"dir:{tmp_path}", "/a are the classes")
    (tmp_path / "a" / "cat").rmdir()
    for k in range(4):
        np.save(tmp_path / "a" / f"{k}.npy", np.zeros((2, 2), np.float32))
    np.save(tmp_path / "a" / "2.npy", np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match=r"2.npy: float32 \[2, 3\]; expected float32 \[2, 2\]"):
        for split in ("train", "test"):
            w.read_all(open_data(f"dir:{tmp_path}", split=split))
    (tmp_path / "a" / "2.npy").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"2.npy: not a .npy array"):
        for split in ("train", "test"):
            w.read_all(open_data(f"dir:{tmp_path}", split=split))


def test_dir_refuses_a_class_without_training_samples(tmp_path):
    for place in ("train/a", "test/a", "test/b"):
        (tmp_path / place).mkdir(parents=True)
        np.save(tmp_path / place / "0.npy", np.zeros(3))
    assert open_data(f"dir:{tmp_path}").n == 1
    fails(f"dir:{tmp_path}", "class 'b' has no training samples", split="test")


def test_a_disk_that_fails_is_named(tmp_path, monkeypatch):
    w.write_cifar10(tmp_path)
    source = open_data(f"cifar10:{tmp_path}")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("edgetrain.data.rows.FileRows.take", fail)
    with pytest.raises(DataError, match=r"cifar10:.*: cannot be read: Input/output error"):
        w.read_all(source)
    monkeypatch.setattr("edgetrain.data.rows.FileRows.__init__", fail)
    fails(f"cifar10:{tmp_path}", "cannot be read: Input/output error")


MANGLE = {"place": st.integers(0, 3000), "cut": st.integers(0, 300), "data": st.binary(max_size=40)}


def mangled(path, place, cut, data):
    whole = path.read_bytes()
    place %= len(whole)
    path.write_bytes(whole[:place] + data + whole[place + cut :])


def survives(spec):
    try:
        w.read_all(open_data(spec))
    except DataError as error:
        assert "\n" not in str(error)


@FUZZ
@given(compressed=st.booleans(), **MANGLE)
def test_npz_never_escapes_data_error(tmp_path, compressed, place, cut, data):
    (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", x=X[:6], y=Y[:6])
    mangled(tmp_path / "a.npz", place, cut, data)
    survives(f"npz:{tmp_path}/a.npz")


@FUZZ
@given(gz=st.booleans(), name=st.sampled_from(["images-idx3", "labels-idx1"]), **MANGLE)
def test_mnist_never_escapes_data_error(tmp_path, gz, name, place, cut, data):
    for path in tmp_path.glob("*ubyte*"):
        if path.is_file():
            path.unlink()
    w.write_mnist(tmp_path, gz=gz)
    mangled(tmp_path / f"train-{name}-ubyte{'.gz' if gz else ''}", place, cut, data)
    survives(f"mnist:{tmp_path}")


@FUZZ
@given(**MANGLE)
def test_csv_never_escapes_data_error(tmp_path, place, cut, data):
    w.write_csv(tmp_path / "a.csv", X[:, 0], Y)
    mangled(tmp_path / "a.csv", place, cut, data)
    survives(f"csv:{tmp_path}/a.csv")


@FUZZ
@given(**MANGLE)
def test_npy_never_escapes_data_error(tmp_path, place, cut, data):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    mangled(tmp_path / "x.npy", place, cut, data)
    survives(f"npy:{tmp_path}")


@pytest.mark.parametrize(
    ("text", "words"),
    [("a,b,y\n1,2,3\n4,nan,5\n", "line 3, column 2: 'nan'; expected a finite number in 'b'"),
     ("1,2,3\n4,5,NaN\n", "line 2, column 3: 'NaN'; expected a finite number"),
     ("a,b,y\n1,2,3\n\n4,,5\n", "line 4, column 2: ''; expected a number in 'b'"),
     ("a;b;y\n1;-inf;3\n", "line 2, column 2: '-inf'"),
     ("a,b,y\n1,2,cat\n4,inf,dog\n", "line 3, column 2: 'inf'"),
     ("a,b,y\n1,2,cat\n4,3,5\n", "line 2, column 3: 'cat'; expected a number in 'y'")],
)  # fmt: skip
def test_csv_cells_that_are_no_numbers_are_found_when_it_is_opened(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=re.escape(words)):
        open_data(f"csv:{tmp_path / 'a.csv'}")


def test_csv_lets_nonfinite_numbers_through_where_asked(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,nan,3\n4,5,6\n")
    source = open_data(f"csv:{tmp_path / 'a.csv'}", allow_nonfinite=True)
    buffers = {"x": np.empty((1, 2), np.float32)}
    source.fill(np.array([0]), buffers)
    assert np.isnan(buffers["x"][0, 1])
