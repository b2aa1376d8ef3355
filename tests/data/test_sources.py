"""Every registered source: correct samples, splits and types; each source has a case here."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgetrain.data import kinds
from edgetrain.data.registry import OPENERS, open_data
from edgetrain.errors import DataError, UsageError
from tests.data.test_class_files import write_wav

from . import writers as w

ROOT = Path(__file__).resolve().parents[2]
X, Y = w.samples()


def digits(tmp_path):
    return "digits", None


def mnist(tmp_path):
    return f"mnist:{tmp_path}", w.write_mnist(tmp_path)


def mnist_gz(tmp_path):
    return f"mnist:{tmp_path}", w.write_mnist(tmp_path, gz=True)


def cifar10(tmp_path):
    return f"cifar10:{tmp_path}", w.write_cifar10(tmp_path)


def cifar10_inner(tmp_path):
    inner = tmp_path / "cifar-10-batches-bin"
    inner.mkdir()
    return f"cifar10:{tmp_path}", w.write_cifar10(inner)


def npz(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, x_test=X[:3], y_test=Y[:3])
    return f"npz:{tmp_path}/a.npz", {"train": (X, Y), "test": (X[:3], Y[:3])}


def npz_compressed(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x_train=X, y_train=Y, x_test=X[:3], y_test=Y[:3])
    return f"npz:{tmp_path}/a.npz", {"train": (X, Y), "test": (X[:3], Y[:3])}


def npz_fortran(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(X), y=Y.astype(">i8"))
    return f"npz:{tmp_path}/a.npz", {"whole": (X, Y)}


def npy(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    return f"npy:{tmp_path}", {"whole": (X, Y)}


def npy_pair(tmp_path):
    np.save(tmp_path / "images.npy", X)
    np.save(tmp_path / "labels.npy", Y)
    return f"npy:{tmp_path}/images.npy,{tmp_path}/labels.npy", {"whole": (X, Y)}


def csv(tmp_path):
    w.write_csv(tmp_path / "a.csv", X[:, 0], Y)
    return f"csv:{tmp_path}/a.csv", {"whole": (X[:, 0], Y)}


def csv_plain(tmp_path):
    w.write_csv(tmp_path / "a.csv", X[:, 0], Y, header=False, separator="; ")
    return f"csv:{tmp_path}/a.csv", {"whole": (X[:, 0], Y)}


def dir_classes(tmp_path):
    order = w.write_folders(tmp_path, X, Y)
    return f"dir:{tmp_path}", {"whole": (X[order], Y[order])}


def dir_splits(tmp_path):
    order = w.write_folders(tmp_path / "train", X, Y)
    w.write_folders(tmp_path / "test", X[:1], Y[:1])
    return f"dir:{tmp_path}", {"train": (X[order], Y[order]), "test": (X[:1], Y[:1])}


def images(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (10, 4, 5, 3), np.uint8)
    for k in range(10):
        (tmp_path / str(k)).mkdir()
        Image.fromarray(pixels[k]).save(tmp_path / str(k) / "one.png")
    return f"images:{tmp_path}", {"whole": (np.moveaxis(pixels, 3, 1), np.arange(10))}


def sounds(tmp_path):
    for k in range(10):
        write_wav(tmp_path / str(k) / "one.wav", np.zeros(6))
    return f"sounds:{tmp_path}", {"whole": (np.zeros((10, 1, 6)), np.arange(10))}


def arrays_pair(tmp_path):
    return (X, Y), {"whole": (X, Y)}


def arrays_dict(tmp_path):
    named = {"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2]}
    return named, {"train": (X, Y), "test": (X[:2], Y[:2])}


CASES = [
    digits, mnist, mnist_gz, cifar10, cifar10_inner, npz, npz_compressed, npz_fortran, npy,
    npy_pair, csv, csv_plain, dir_classes, dir_splits, images, sounds, arrays_pair, arrays_dict,
]  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda case: case.__name__)
def case(request, tmp_path):
    return request.param(tmp_path)


def stored(source):
    """The values in an integer buffer: unscaled."""
    found = w.read_all(source, np.int32)
    return found["x"], found["y"]


def test_every_registered_source_has_a_case():
    assert {case.__name__.split("_")[0] for case in CASES} - {"arrays"} == set(OPENERS)


@pytest.mark.parametrize("form", kinds.forms().split(", "))
def test_every_source_is_described(form):
    assert f"`{form}`" in (ROOT / "docs" / "data.md").read_text()
    assert f"`{form}`" in (ROOT / "docs" / "commands.md").read_text()
    assert f"`{form}`" in (open_data.__doc__ or "")


def test_a_source_that_is_added_is_in_help_and_asks_for_its_path(monkeypatch):
    monkeypatch.setitem(kinds.KINDS, "tape", kinds.Kind("npz", "FILE", (".tape",)))
    monkeypatch.setitem(OPENERS, "tape", OPENERS["npz"])
    assert "tape:FILE" in kinds.forms().split(", ")
    with pytest.raises(UsageError, match="'tape': expected a path, such as 'tape:PATH'"):
        open_data("tape")
    with pytest.raises(UsageError, match="Did you mean tape:some.tape"):
        open_data("some.tape")


def test_source_gives_the_samples_that_were_written(case):
    spec, written = case
    if written is None:
        return
    for split in written.keys() - {"whole"}:
        x, y = stored(open_data(spec, split=split))
        np.testing.assert_array_equal(x.reshape(written[split][0].shape), written[split][0])
        np.testing.assert_array_equal(y, written[split][1])
    if "whole" in written:
        x, y = stored(open_data(spec))
        np.testing.assert_array_equal(x.reshape(written["whole"][0].shape), written["whole"][0])
        np.testing.assert_array_equal(y, written["whole"][1])
        parts = [stored(open_data(spec, split=s, test_fraction=0.2)) for s in ("train", "test")]
        found = sorted((*x.ravel(), y) for part in parts for x, y in zip(*part, strict=True))
        expected = sorted((*x.ravel(), y) for x, y in zip(*written["whole"], strict=True))
        assert found == expected
        assert len(parts[1][1]) == round(0.2 * len(written["whole"][1]))


def test_source_finds_its_other_split(case):
    fraction = 0.2 if "whole" in (case[1] or ()) else 0.0
    train = open_data(case[0], test_fraction=fraction)
    train.check_limits({"y": 10})
    test = train.for_split("test")
    assert (train.split, test.split) == ("train", "test")
    assert test.for_split("train").n == train.n
    again = open_data(case[0], split="test", test_fraction=fraction)
    assert open_data(train, split="test").n == test.n == again.n
    assert test.limits == {"y": 10}


def test_source_tells_fields_and_classes(case):
    source = open_data(case[0])
    assert source.classes == 10
    assert source.fields["y"].shape == () and source.fields["y"].dtype == np.int64
    assert source.fields["x"].dtype == np.float32


def test_source_fills_any_buffer_alike(case):
    source = open_data(case[0])
    indices = np.array([2, 0, 2], np.int32)
    shape = source.fields["x"].shape
    whole = w.read_all(source)["x"][indices]
    for dtype, tolerance in ((np.float32, 0), (np.float64, 0), (np.float16, 1e-3)):
        raw = bytearray(3 * source.fields["x"].size * np.dtype(dtype).itemsize)
        out = np.frombuffer(raw, dtype).reshape(3, *shape, 1)
        source.fill(indices, {"x": out})
        np.testing.assert_allclose(out.reshape(3, *shape), whole, rtol=tolerance)
    labels = np.empty((3, 1), np.int32)
    source.fill(indices, {"y": labels})
    np.testing.assert_array_equal(labels[:, 0], w.read_all(source)["y"][indices])


def test_source_does_not_depend_on_the_size_of_its_chunks(case, monkeypatch):
    whole = w.read_all(open_data(case[0]), train=True, key=(3, 1))
    monkeypatch.setattr("edgetrain.data.source._CHUNK_NBYTES", 1)
    single = w.read_all(open_data(case[0]), train=True, key=(3, 1))
    for name in whole:
        np.testing.assert_array_equal(whole[name], single[name])


def test_digits_are_normalised_and_balanced():
    train, test = open_data("digits"), open_data("digits", split="test")
    assert (train.n, test.n) == (1437, 360)
    x = w.read_all(train)["x"]
    assert abs(x.mean()) < 1e-3 and abs(x.std() - 1) < 1e-3
    assert np.bincount(w.read_all(test)["y"]).min() >= 34
    np.testing.assert_allclose(x.min(), -0.3049 / 0.3759, rtol=1e-6)
    np.testing.assert_allclose(x.max(), (1 - 0.3049) / 0.3759, rtol=1e-6)


def test_mnist_and_cifar10_are_normalised_as_usual(tmp_path):
    written = w.write_mnist(tmp_path)["test"][0]
    x = w.read_all(open_data(f"mnist:{tmp_path}", split="test"))["x"]
    np.testing.assert_allclose(x[:, 0], (written / 255 - 0.1307) / 0.3081, atol=1e-5)
    written = w.write_cifar10(tmp_path)["test"][0]
    x = w.read_all(open_data(f"cifar10:{tmp_path}", split="test"))["x"]
    mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])
    expected = (written / 255 - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(x, expected, atol=1e-5)


def test_bytes_are_scaled_for_floats_and_kept_for_integers():
    source = open_data((X, Y))
    np.testing.assert_allclose(w.read_all(source)["x"], stored(source)[0] / 255, rtol=1e-6)


def test_floats_and_tokens_are_kept():
    x = np.linspace(-3, 3, 40).astype(np.float64).reshape(10, 4)
    tokens = np.arange(30).reshape(10, 3)
    data = {"x_train": x, "ids_train": tokens, "y_train": x[:, :2]}
    source = open_data({**data, **{k.replace("train", "test"): v for k, v in data.items()}})
    assert {name: str(field.dtype) for name, field in source.fields.items()} == {
        "x": "float32", "ids": "int64", "y": "float32",
    }  # fmt: skip
    assert source.classes is None
    out = {"x": np.empty((2, 4), "f4"), "ids": np.empty((2, 3), "i8"), "y": np.empty((2, 2), "f4")}
    source.fill(np.array([9, 0]), out)
    np.testing.assert_array_equal(out["ids"], tokens[[9, 0]])
    np.testing.assert_array_equal(out["y"], x[[9, 0], :2].astype("f4"))


def test_csv_takes_the_named_column_and_regression_targets(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeffy;a;b\n0.5;1;2\n\n-1.5; 3 ;"4"\n2;5;6\n')
    for label, target, inputs in (("y", [0.5, -1.5, 2], [1, 2, 3, 4, 5, 6]), ("b", [2, 4, 6], [])):
        source = open_data(f"csv:{tmp_path}/a.csv", label=label, test_fraction=0.01)
        parts = [source, source.for_split("test")]
        kind = np.float32 if label == "y" else np.int64
        assert source.fields["y"].dtype == kind
        out = [{"x": np.empty((p.n, 2), np.float32), "y": np.empty(p.n, np.float32)} for p in parts]
        for part, buffers in zip(parts, out, strict=True):
            part.fill(np.arange(part.n), buffers)
        assert sorted(np.concatenate([b["y"] for b in out])) == sorted(target)
        if inputs:
            assert sorted(np.concatenate([b["x"].ravel() for b in out])) == inputs


@pytest.mark.parametrize(
    ("first", "n"),
    [("a,b,c", 2), ("0,1,label", 2), ('"0","1","y"', 2), ("0,1,2", 3), ("7,8,9", 3)],
)
def test_csv_tells_a_header_from_numbers(tmp_path, first, n):
    (tmp_path / "a.csv").write_text(f"{first}\n3,4,5\n6,7,8\n")
    source = open_data(f"csv:{tmp_path}/a.csv")
    assert source.n == n


@pytest.mark.parametrize("lines", [".5,1.5,0\n2.5,.25,1\n", "1,2.5,1\n2,.5,0\n0,1.0,1\n"])
def test_a_csv_file_of_floats_may_number_its_columns(tmp_path, lines):
    """As pandas does with a table without column names."""
    (tmp_path / "a.csv").write_text(f"0,1,2\n{lines}")
    source = open_data(f"csv:{tmp_path}/a.csv")
    assert (source.n, source.classes) == (lines.count("\n"), 2)
    (tmp_path / "a.csv").write_text("0,1,2\n1.5,2,4\n2,2.5,4\n")
    assert open_data(f"csv:{tmp_path}/a.csv").n == 3


def test_a_named_column_is_one_of_a_header(tmp_path):
    (tmp_path / "a.csv").write_text("2019,2020,label\n1,2,cat\n4,5,dog\n")
    source = open_data(f"csv:{tmp_path}/a.csv", label="label")
    assert (source.n, source.labels) == (2, ("cat", "dog"))


@pytest.mark.parametrize(
    ("lines", "n"),
    [
        ("0,cat\n1,dog\n2,dog\n3,cat\n", 4),
        ("0,1,label\n1,2,cat\n4,5,dog\n", 2),
        ("2019,2020,label\n1,2,cat\n4,5,dog\n4,6,dog\n4,7,cat\n", 4),
        ("0,1,2\n1,2,cat\n4,5,dog\n", 2),
    ],
)
def test_csv_keeps_a_first_line_whose_only_word_is_a_class(tmp_path, lines, n):
    (tmp_path / "a.csv").write_text(lines)
    source = open_data(f"csv:{tmp_path}/a.csv")
    assert (source.n, source.labels) == (n, ("cat", "dog"))
    assert ("is taken for column names" in source.note) == lines.startswith("2019")


@pytest.mark.parametrize(
    ("spec", "error", "match"),
    [
        ("nothing", UsageError, "data 'nothing': "),
        ("nothing:here", UsageError, "expected digits, npz:FILE"),
        ("npz", UsageError, "expected a path"),
        ("digits:here", UsageError, "takes no path"),
        ("mnist:/no/such/place", DataError, "no such directory"),
        ("cifar10:/no/such/place", DataError, "no such directory"),
        ("npz:/no/such/place", DataError, "No such file"),
        ("npz:\0", DataError, "contains a null byte; expected"),
        ("csv:/no/such/place", DataError, "No such file"),
        ("npy:/no/such/x.npy,/no/such/y.npy", DataError, "No such file"),
        (7, DataError, "type int"),
        ({"y": [1, 2]}, DataError, "found arrays y"),
        ((np.zeros((3, 2)), np.zeros(4)), DataError, "x 3, y 4|x 3|y 4"),
        ((np.zeros((0, 2)), np.zeros(0)), DataError, "above 0"),
        ((np.array(["a", "b", "c"]), np.zeros(3)), DataError, "expected numbers"),
        ((np.zeros((3, 2), complex), np.zeros(3)), DataError, "expected numbers"),
        (([[1], [2, 3]], [1, 2]), DataError, "Pass arrays of numbers"),
        ((np.float32(1), np.float32(1)), DataError, "expected numbers"),
    ],
)
def test_open_data_refuses_what_it_cannot_use(spec, error, match):
    with pytest.raises(error, match=match):
        open_data(spec)


def test_open_data_refuses_another_split_and_single_samples():
    with pytest.raises(UsageError, match="expected 'train' or 'test'"):
        open_data("digits", split="valid")
    with pytest.raises(DataError, match="hold out 0.2 of 1 samples?"):
        open_data((np.zeros((1, 2)), np.zeros(1)), test_fraction=0.2)
    with pytest.raises(DataError, match="no test split; found only train"):
        open_data((np.zeros((4, 2)), np.zeros(4)), split="test")
    with pytest.raises(DataError, match="cannot hold out 1 of 4"):
        open_data((np.zeros((4, 2)), np.zeros(4)), test_fraction=1.0)
