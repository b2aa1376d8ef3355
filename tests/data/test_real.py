"""The full data sets, if they are beside the checkout; and the digits against their source."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgetrain.data.registry import open_data

from . import writers as w

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
STATUS = Path("/proc/self/status")


def shared(name):
    if not (SHARED / name).exists():
        pytest.skip(f"needs {name} in shared/data beside the checkout")
    return SHARED / name


def resident_kib():
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.shared
def test_mnist_is_read_whole_without_growing(tmp_path):
    arrays = np.load(shared("mnist.npz"))
    for kind, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = arrays[f"{kind}_images"], arrays[f"{kind}_labels"]
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(w.idx_bytes(images))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(w.idx_bytes(labels))
    source = open_data(f"mnist:{tmp_path}")
    assert (source.n, source.for_split("test").n, source.classes) == (60_000, 10_000, 10)
    out = {"x": np.empty((100, 1, 28, 28), np.float32), "y": np.empty(100, np.int32)}
    total, before = 0.0, 0
    for start in range(0, 60_000, 100):
        if start == 1000:
            before = resident_kib()
        source.fill(np.arange(start, start + 100), out)
        total += out["x"].mean(dtype=np.float64)
    assert abs(total / 600) < 1e-3
    if STATUS.exists():
        assert resident_kib() - before < 1024


def test_digits_are_those_of_scikit_learn(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")
    images, labels = datasets.load_digits(return_X_y=True)
    found = [w.read_all(open_data("digits", split=split), np.int32) for split in ("train", "test")]
    rows = [(*x.ravel(), y) for part in found for x, y in zip(part["x"], part["y"], strict=True)]
    assert sorted(rows) == sorted((*x, y) for x, y in zip(images, labels, strict=True))


def test_opening_data_imports_nothing_of_the_compiler():
    program = (
        "import sys\n"
        "from edgetrain.data.registry import open_data\n"
        "open_data('digits')\n"
        "print(sorted({'onnx', 'scipy', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
