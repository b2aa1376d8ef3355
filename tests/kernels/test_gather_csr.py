"""Rows of a sparse table and their gradient, against the dense twins of indexing/gather.py."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.formats import INT8, csr, decoded

from . import naive_gather as naive
from .harness import DTYPES, control, same_for_threads

LEAD, TAIL = 3, 5  # slots of other layers before and after


def _case(rows: int, channels: int, count: int, density: float, storage: str, columns: str):
    rng = np.random.default_rng([rows, channels, count])
    mask = rng.random((rows, channels)) < density
    layer = csr.Layer("w", mask.shape, 0, 0)
    positions = np.flatnonzero(mask)
    found, pointers = csr.encode(layer, positions, LEAD)
    pool = rng.normal(size=LEAD + positions.size + TAIL).astype(DTYPES[storage])
    every = np.zeros(pool.size, DTYPES[columns])
    every[LEAD:-TAIL] = found
    idx = rng.integers(-rows - 1, rows + 2, count).astype(np.int32)
    idx[:2] = [2**31 - 1, -(2**31)][: idx[:2].size]
    operands = {"columns": every, "pointers": pointers, "idx": idx, "count": count, "taps": 1}
    operands |= {"rows": rows, "channels": channels, "chunk": layer.chunk, "slots": pool.size}
    return rng, mask, pool, operands


@st.composite
def tables(draw):
    rows, count = draw(st.integers(1, 20)), draw(st.integers(1, 30))
    density = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    return rows, draw(st.sampled_from([1, 7, 64, 256, 257, 600])), count, density


def _check_rows(table, storage: str, columns: str = "u8") -> None:
    _, mask, pool, operands = _case(*table, storage, columns)
    weight = np.zeros(mask.shape, pool.dtype)
    weight[mask] = pool[LEAD:-TAIL]
    expected = naive.gather(weight[None], operands["idx"])[0]
    storages = {"W": storage, "I": columns, "S": storage}
    y = same_for_threads("gather_csr", storages, w=pool, y=expected.shape, **operands)["y"]
    np.testing.assert_array_equal(y, expected)


def _check_gradient(table, storage: str, columns: str = "u8") -> None:
    rng, mask, pool, operands = _case(*table, storage, columns)
    idx = operands["idx"]
    dy = rng.normal(size=(idx.size, mask.shape[1])).astype(DTYPES[storage])
    before = rng.normal(size=pool.size).astype(np.float32)
    found = same_for_threads(
        "gather_csr_bwd", {"S": storage, "I": columns, "G": "f32"}, dy=dy, dwt=before,
        ctl=control(SEED=1), key=1, **operands,
    )["dwt"]  # fmt: skip
    dense = np.zeros((1, *mask.shape))
    expected = before.astype(np.float64)
    expected[LEAD:-TAIL] += naive.gather_bwd(idx, dy[None], dense, -1)[0][mask]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # sums of 30 terms


@given(table=tables())
def test_rows_and_gradient_equal_the_dense_twins(table):
    _check_rows(table, "f32")
    _check_gradient(table, "f32")


@pytest.mark.parametrize("channels", [7, 64, 300])
def test_rows_of_a_pool_in_blocks_and_their_gradient_are_near_the_dense_twins(channels):
    rng, mask, pool, operands = _case(20, channels, 30, 0.4, "f32", "u8")
    stored, idx = INT8.encode(pool), operands["idx"]
    pool = decoded(stored, pool.shape)
    weight = np.zeros(mask.shape, np.float32)
    weight[mask] = pool[LEAD:-TAIL]
    expected = naive.gather(weight[None], idx)[0]
    storages = {"W": "q8", "I": "u8", "S": "f32"}
    y = same_for_threads("gather_csr", storages, w=stored, y=expected.shape, **operands)["y"]
    np.testing.assert_array_equal(y, expected)
    dy = rng.normal(size=(idx.size, channels)).astype(np.float32)
    storages = {"S": "f32", "I": "u8", "G": "q8"}
    found = same_for_threads(
        "gather_csr_bwd", storages, dy=dy, dwt=stored, ctl=control(SEED=1), key=1, **operands
    )["dwt"]
    found, exact = decoded(found, pool.shape), pool.astype(np.float64)
    exact[LEAD:-TAIL] += naive.gather_bwd(idx, dy[None], np.zeros((1, *mask.shape)), -1)[0][mask]
    step = np.abs(exact).max() / 64
    assert np.abs(found - exact).max() < 30 * step and abs((found - exact).mean()) < step / 2


@pytest.mark.parametrize(("storage", "columns"), [("f16", "u8"), ("f32", "u16")])
def test_rows_and_gradient_in_other_storages(storage, columns):
    _check_rows((11, 300, 40, 0.3), storage, columns)
    _check_gradient((11, 300, 40, 0.3), storage, columns)


def test_gradient_rounds_without_bias_in_half_precision():
    count, channels = 3000, 64
    found = same_for_threads(
        "gather_csr_bwd", {"S": "f16", "I": "u8", "G": "f16"},
        idx=np.zeros(count, np.int32), dy=np.full((count, channels), 2.0**-12, np.float16),
        columns=np.arange(channels, dtype=np.uint8), pointers=np.array([0, channels], np.int32),
        dwt=np.ones(channels, np.float16), ctl=control(SEED=1), key=1, count=count, rows=1,
        channels=channels, taps=1, chunk=channels, slots=channels,
    )["dwt"]  # fmt: skip
    # Rounding to nearest would lose every term. One step is 2^-10 with probability 1/4: the mean of
    # 64 columns has a standard deviation below 0.003.
    assert abs(found.astype(np.float64).mean() - (1 + count * 2.0**-12)) < 0.015
