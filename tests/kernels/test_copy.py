"""Strided copies compared with numpy views, and fills."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import ProgramError

from . import geometry, naive_rng
from .harness import DTYPES, call, control, same_for_threads

PAIRS = [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32"), ("i32", "i32")]
PAIRS += [("i32", "f32"), ("f32", "i32"), ("u8", "f32")]


@st.composite
def views(draw):
    """Draw a shape, (start, step) of a slice along each axis, and a permutation of the axes."""
    shape, _ = draw(geometry.masked_shapes())
    slices = []
    for d in shape:
        step = draw(st.sampled_from([1, 1, 1, 2, -1]))
        start = draw(st.integers(0, (d - 1) // 2)) if step > 0 else d - 1
        slices.append((start, step))
    return shape, slices, draw(st.permutations(range(len(shape))))


def _view(shape, slices, order):
    """Return origin, dims and strides of the view, and the view as indices into the dense array."""
    flat = np.arange(int(np.prod(shape))).reshape(shape)
    flat = flat[tuple(slice(start, None, step) for start, step in slices)].transpose(order)
    dims = flat.shape
    steps = [s // flat.itemsize for s in flat.strides]
    return int(flat.ravel()[0]), dims, steps, flat


def _operands(dims, xo, xs, yo, ys, nx, ny):
    return geometry.integers(("d", "xs", "ys"), dims, xs, ys) | {
        "xo": xo, "yo": yo, "nx": nx, "ny": ny, "ctl": None, "key": 0, "sr": 0,
    }  # fmt: skip


def _values(rng, shape, storage):
    if storage in ("f32", "f16"):
        return rng.normal(size=shape).astype(DTYPES[storage]) * 4
    return rng.integers(0, 200, shape).astype(DTYPES[storage])


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=15)
@given(case=views(), acc=st.integers(0, 1), scale=st.sampled_from([1.0, -0.5]))
def test_copy_reads_any_view_and_writes_any_view(pair, case, acc, scale):
    shape, slices, order = case
    rng = np.random.default_rng(sum(shape))
    x = _values(rng, shape, pair[0])
    xo, dims, steps, index = _view(shape, slices, order)
    factor = 1 if pair[0] == pair[1] == "i32" else np.float32(scale)
    term = x.ravel()[index].astype(np.float64) * factor
    term = np.trunc(term) if pair[1] == "i32" else term
    old = _values(rng, dims, pair[1])
    expected = (term + acc * old.astype(np.float64)).astype(old.dtype)
    found = same_for_threads(
        "copy", dict(zip("ST", pair, strict=True)), x=x, y=old, scale=scale, acc=acc,
        **_operands(dims, xo, steps, 0, geometry.dense(dims), x.size, old.size),
    )["y"]  # fmt: skip
    rtol = {"f16": 1e-3, "f32": 2e-7, "i32": 0}[pair[1]]
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)
    if acc == 0 and scale == 1.0:
        target = np.zeros(shape, DTYPES[pair[1]])
        back = same_for_threads(
            "copy", {"S": pair[1], "T": pair[1]}, x=found, y=target, scale=1.0, acc=0,
            **_operands(dims, 0, geometry.dense(dims), xo, steps, found.size, target.size),
        )["y"]  # fmt: skip
        target.ravel()[index] = found
        np.testing.assert_array_equal(back, target)


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_copy_rounds_stochastically_by_the_element_it_writes(storage):
    rng = np.random.default_rng(0)
    x, old = rng.normal(size=(6, 50)).astype(np.float32), rng.normal(size=(50, 6))
    old = old.astype(DTYPES[storage])
    operands = _operands((6, 50), 0, (50, 1), 0, (1, 6), x.size, old.size)
    operands |= {"ctl": control(SEED=11, STEP=2, MICROBATCH=1), "key": 9, "sr": 1}
    found = same_for_threads(
        "copy", {"S": "f32", "T": storage}, x=x, y=old, scale=1.0, acc=1, **operands
    )["y"]
    exact = x.T + old.astype(np.float32)
    random = naive_rng.hash32(naive_rng.stream(11, 9, 2, 1), np.arange(old.size))
    rounded = naive_rng.stochastic_f16(exact, random.reshape(old.shape))
    np.testing.assert_array_equal(found, rounded if storage == "f16" else exact)


def test_copy_of_whole_numbers_is_exact_beyond_floats():
    x = np.array([2**31 - 1, -(2**31), 16777217], np.int32)
    operands = _operands((3,), 0, (1,), 0, (1,), 3, 3)
    found = call("copy", {"S": "i32", "T": "i32"}, x=x, y=x * 0, scale=1.0, acc=0, **operands)["y"]
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    "wrong", [{"xo": 1}, {"xs5": 2}, {"yo": -1}, {"ys5": -1}, {"d4": 2, "xs4": 1}]
)
def test_copy_refuses_views_that_leave_a_tensor(wrong):
    x = np.zeros(8, np.float32)
    operands = _operands((8,), 0, (1,), 0, (1,), 8, 8) | wrong
    with pytest.raises(ProgramError):
        call("copy", {"S": "f32", "T": "f32"}, x=x, y=x, scale=1.0, acc=0, **operands)


@pytest.mark.parametrize(
    "storage, n", list(itertools.product(["f32", "f16", "i32"], [1, 65, 1000]))
)
def test_fill_writes_every_element(storage, n):
    found = same_for_threads("fill", {"S": storage}, y=(n,), value=-3.0, n=n)["y"]
    np.testing.assert_array_equal(found, np.full(n, -3, DTYPES[storage]))
