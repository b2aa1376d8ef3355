"""Table-driven resampling compared with dense matrix products; damaged tables."""

import numpy as np
import pytest

from .harness import DTYPES, same_for_threads


def _table(matrix: np.ndarray) -> np.ndarray:
    """Return the kernel's table for a matrix [outputs, inputs]."""
    rows, columns = np.nonzero(matrix)
    starts = np.searchsorted(rows, np.arange(len(matrix) + 1)).astype(np.int32)
    weights = matrix[rows, columns].astype(np.float32).view(np.int32)
    return np.concatenate([starts, columns.astype(np.int32), weights])


def _sparse(rng, outputs, inputs) -> np.ndarray:
    matrix = rng.normal(size=(outputs, inputs)).astype(np.float32)
    return matrix * (rng.random(matrix.shape) < 0.5)


@pytest.mark.parametrize("storage, tolerance", [("f32", 1e-5), ("f16", 5e-3)])
@pytest.mark.parametrize("acc", [0, 1])
@pytest.mark.parametrize("absent", ["", "rows", "cols"])
def test_resample_equals_matrices(rng, storage, tolerance, acc, absent):
    outer, h, wd, oh, ow = 3, 5, 6, 7, 4
    rows = np.eye(h, dtype=np.float32) if absent == "rows" else _sparse(rng, oh, h)
    cols = np.eye(wd, dtype=np.float32) if absent == "cols" else _sparse(rng, ow, wd)
    oh, ow = len(rows), len(cols)
    x = rng.normal(size=(outer, h, wd)).astype(DTYPES[storage])
    y = rng.normal(size=(outer, oh, ow)).astype(DTYPES[storage])
    tables = {"rows": _table(rows), "cols": _table(cols)}
    counts = {"rt": np.count_nonzero(rows), "ct": np.count_nonzero(cols)}
    if absent:
        tables[absent] = None
        counts[f"{absent[0]}t"] = 0
    expected = rows @ x.astype(np.float64) @ cols.T + acc * y.astype(np.float64)
    found = same_for_threads(
        "resample", {"S": storage}, x=x, y=y, outer=outer, h=h, wd=wd, oh=oh, ow=ow, acc=acc,
        **tables, **counts,
    )["y"]  # fmt: skip
    np.testing.assert_allclose(found.astype(np.float64), expected, tolerance, tolerance)


def test_resample_reads_nothing_outside_with_a_damaged_table(rng):
    x = rng.normal(size=(1, 1, 4)).astype(np.float32)
    table = np.array([0, 99, -7, 2**31 - 1, -(2**31), 1, 0, 0, 0], np.int32)
    found = same_for_threads(
        "resample", {"S": "f32"}, x=x, y=np.zeros((1, 1, 2), np.float32), rows=None, cols=table,
        outer=1, h=1, wd=4, oh=1, ow=2, rt=0, ct=3, acc=0,
    )["y"]  # fmt: skip
    assert np.all(np.isfinite(found))
