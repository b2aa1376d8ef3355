"""Equal counts of values are not enough: axes must match the model's, except axes of size 1."""

import numpy as np
import pytest

from edgetrain.data.checks.layout import check_layout, fitting_transpose
from edgetrain.data.registry import open_data
from edgetrain.data.tensors import as_targets
from edgetrain.errors import DataError

from . import writers as w


@pytest.mark.parametrize(
    ("found", "wanted", "flat"),
    [
        ((3, 8), (3, 8), False),
        ((), (1, 1), False),
        ((28, 28), (1, 28, 28), False),
        ((28, 1, 28, 1), (1, 28, 28), False),
        ((12,), (3, 4), True),
        ((3, 4, 1), (12,), True),
    ],
)
def test_layout_lets_axes_of_size_1_and_flat_rows_pass(found, wanted, flat):
    check_layout("x", found, wanted, flat=flat)


@pytest.mark.parametrize(
    ("found", "wanted", "axes"),
    [
        ((128, 3), (3, 128), (0, 2, 1)),
        ((32, 32, 3), (3, 32, 32), (0, 3, 1, 2)),
        ((3, 32, 32), (32, 32, 3), (0, 2, 3, 1)),
        ((4, 1, 5), (5, 4), (0, 3, 2, 1)),
        ((2, 3, 4, 5), (5, 3, 2, 4), (0, 4, 2, 1, 3)),
    ],
)
def test_layout_names_the_transpose_that_fits(found, wanted, axes):
    array = np.zeros((7, *found))
    moved = [size for size in array.transpose(axes).shape[1:] if size != 1]
    assert fitting_transpose(found, wanted) == axes and moved == list(wanted)
    with pytest.raises(DataError) as caught:
        check_layout("x", found, wanted)
    for part in (f"{list(found)} per sample", f"expects {list(wanted)}", f" by {axes}"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("found", "wanted", "flat", "advice"),
    [
        ((784,), (1, 28, 28), False, "reshape the samples"),
        ((28, 28), (784,), False, "Flatten"),
        ((6, 2), (3, 4), True, "reshape the samples"),
        ((12,), (3, 5), True, "Use data or a model"),
        ((3, 8), (3,), False, "Use data or a model"),
        ((), (2,), False, "Use data or a model"),
    ],
)
def test_layout_refuses_other_shapes(found, wanted, flat, advice):
    assert fitting_transpose(found, wanted) is None
    with pytest.raises(DataError, match=advice):
        check_layout("x", found, wanted, flat=flat)


X = np.arange(20 * 4 * 3, dtype=np.float32).reshape(20, 4, 3)
Y = np.arange(20) % 10


def npz(folder):
    np.savez(folder / "a.npz", x=X, y=Y)
    return f"npz:{folder}/a.npz"


def npz_compressed(folder):
    np.savez_compressed(folder / "a.npz", x=X, y=Y)
    return f"npz:{folder}/a.npz"


def npy(folder):
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    return f"npy:{folder}"


def npy_fortran(folder):
    np.save(folder / "x.npy", np.asfortranarray(X))
    np.save(folder / "y.npy", Y)
    return f"npy:{folder}"


def folders(folder):
    w.write_folders(folder, X, Y)
    return f"dir:{folder}"


@pytest.mark.parametrize("make", [npz, npz_compressed, npy, npy_fortran, folders])
def test_files_of_another_layout_are_refused(tmp_path, make):
    source = open_data(make(tmp_path))
    out = np.empty((1, 3, 4), np.float32)
    with pytest.raises(DataError, match=r"\[4, 3\] per .* \[3, 4\]\. Transpose .* \(0, 2, 1\)"):
        source.check_layout({"x": out})
    with pytest.raises(DataError, match=r"\(0, 2, 1\)"):
        source.fill(np.array([0]), {"x": out})


def test_pictures_of_a_known_layout_are_refused_by_a_model_of_another(tmp_path):
    w.write_cifar10(tmp_path)
    source = open_data(f"cifar10:{tmp_path}")
    with pytest.raises(DataError, match=r"start the model with this Transpose"):
        source.check_layout({"x": np.empty((1, 32, 32, 3))})
    with pytest.raises(DataError, match="Flatten"):
        source.check_layout({"x": np.empty((1, 3072))})
    w.write_mnist(tmp_path)
    for shape in ((1, 4, 4), (4, 4), (4, 4, 1), (16,)):
        open_data(f"mnist:{tmp_path}").check_layout({"x": np.empty((1, *shape))})


def test_lines_of_a_csv_file_fill_a_models_axes_in_order(tmp_path):
    w.write_csv(tmp_path / "a.csv", X.reshape(20, -1), Y)
    out = np.empty((20, 4, 3), np.float32)
    open_data(f"csv:{tmp_path}/a.csv").fill(np.arange(20), {"x": out})
    np.testing.assert_array_equal(out, X)


def test_targets_must_have_the_models_axes():
    source = open_data((X, X))
    source.check_layout({"y": np.empty((1, 4, 1, 3))})
    with pytest.raises(DataError, match=r"field 'y' has shape \[4, 3\].* \(0, 2, 1\)"):
        source.check_layout({"y": np.empty((1, 3, 4))})


@pytest.mark.parametrize(("found", "advice"), [((6, 5), "class_axis"), ((4, 9), "as many targets")])
def test_advice_about_targets_is_about_their_number_or_their_shape(found, advice):
    with pytest.raises(DataError, match=rf"expected \[6, 9\]: 6 samples\. .*{advice}"):
        as_targets("target", np.zeros(found, np.int64), (9,), 6)
