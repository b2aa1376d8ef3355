"""Files that change after they were opened, and checksums: an error, never a signal or a guess."""

import os
import zlib

import numpy as np
import pytest

from edgetrain.data.registry import open_data
from edgetrain.data.sources import npz as npz_module
from edgetrain.errors import DataError
from tests.fuzz.children import fault, run

from . import writers as w

ROWS, VALUES = 3000, 40  # more than a page of each
X = np.arange(ROWS * VALUES, dtype=np.float32).reshape(ROWS, VALUES)
Y = np.arange(ROWS) % 10


def npy(folder):
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    return f"npy:{folder}", folder / "x.npy"


def npy_fortran(folder):
    np.save(folder / "x.npy", np.asfortranarray(X))
    np.save(folder / "y.npy", Y)
    return f"npy:{folder}", folder / "x.npy"


def npy_fortran_target(folder):
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", np.asfortranarray(X))
    return f"npy:{folder}", folder / "y.npy"


def npz(folder):
    np.savez(folder / "a.npz", y=Y, x=X)
    return f"npz:{folder}/a.npz", folder / "a.npz"


def npz_fortran(folder):
    np.savez(folder / "a.npz", y=Y, x=np.asfortranarray(X))
    return f"npz:{folder}/a.npz", folder / "a.npz"


def npz_fortran_compressed(folder):
    np.savez_compressed(folder / "a.npz", y=Y, x=np.asfortranarray(X))
    return f"npz:{folder}/a.npz", folder / "a.npz.unpacked" / "x.npy"


def arrays_mapped(folder):
    np.save(folder / "x.npy", X)
    mapped = np.load(folder / "x.npy", mmap_mode="r")
    return (mapped[::2].reshape(-1, 5, 8), Y[::2]), folder / "x.npy"


def csv(folder):
    w.write_csv(folder / "a.csv", X.astype(int), Y)
    return f"csv:{folder}/a.csv", folder / "a.csv"


def mnist(folder):
    w.write_mnist(folder, n=200, shape=(28, 28))
    return f"mnist:{folder}", folder / "train-images-idx3-ubyte"


def cifar10(folder):
    w.write_cifar10(folder)
    return f"cifar10:{folder}", folder / "data_batch_5.bin"


def folders(folder):
    w.write_folders(folder, X[:40], Y[:40])
    return f"dir:{folder}", folder / "class9" / "039.npy"


CASES = [
    arrays_mapped, npy, npy_fortran, npy_fortran_target, npz, npz_fortran, npz_fortran_compressed,
    csv, mnist, cifar10, folders,
]  # fmt: skip


@pytest.mark.parametrize("left", [0.0, 0.5])
@pytest.mark.parametrize("make", CASES, ids=lambda case: case.__name__)
def test_a_file_cut_short_after_opening_is_an_error(tmp_path, make, left):
    spec, path = make(tmp_path)
    source = open_data(spec)
    os.truncate(path, int(path.stat().st_size * left))

    def one_by_one():
        for index in range(source.n - 1, -1, -97):
            names = {n: np.empty((1, *f.shape), np.float32) for n, f in source.fields.items()}
            source.fill(np.array([index]), names)

    for read in (lambda: w.read_all(source) and None, one_by_one):
        ended = run(read)
        assert fault(ended) == "" and ended.how == "refused", ended
        assert "DataError" in ended.detail


def test_a_number_cut_in_two_is_not_read_as_another(tmp_path):
    (tmp_path / "a.csv").write_text("1,10\n2,25\n")
    source = open_data(f"csv:{tmp_path}/a.csv")
    os.truncate(tmp_path / "a.csv", 9)
    with pytest.raises(DataError, match="sample 1 is missing"):
        w.read_all(source)


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 2), (1, 5), (5, 1)])
@pytest.mark.parametrize("near", [0, 2**13])
def test_arrays_in_fortran_order_are_read_as_they_are(tmp_path, shape, near, monkeypatch):
    """Both ways to read: value by value, and everything between the first and last sample."""
    monkeypatch.setattr("edgetrain.data.rows._READ_NBYTES", near)
    x = np.random.default_rng(0).integers(-9, 9, (50, *shape)).astype(">i4")
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(x), y=x)
    source = open_data(f"npz:{tmp_path}/a.npz")
    for indices in (np.arange(50), np.array([49, 0, 7, 7]), np.array([3])):
        out = np.empty((len(indices), *shape), np.int64)
        source.fill(indices, {"x": out})
        np.testing.assert_array_equal(out, x[indices])


def test_a_stored_arrays_checksum_is_verified_once(tmp_path, monkeypatch):
    path, summed = tmp_path / "a.npz", []

    def crc32(data, start=0):
        summed.append(len(data))
        return zlib.crc32(data, start)

    np.savez(path, x=X, y=Y)
    monkeypatch.setattr(npz_module, "crc32", crc32)
    for _ in range(2):
        w.read_all(open_data(f"npz:{path}"))
    nbytes = X.nbytes + Y.nbytes
    assert nbytes < sum(summed) < nbytes + 1000
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1  # within x: another number, equally valid
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a.npz: not a readable npz file .*checksum of x.npy"):
        open_data(f"npz:{path}")
