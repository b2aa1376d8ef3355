"""Every variant of gemm compared with the naive twin, over random shapes and strides."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from edgetrain.errors import ProgramError
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit
from edgetrain.kernels.gemm.panels import KC, STACK, small_panels
from edgetrain.kernels.language.prim import STORAGES
from edgetrain.kernels.language.vector import WIDTH

from . import naive_gemm, naive_rng
from .harness import DTYPES, call, control, same_for_threads

VARIANTS = [k.variant for k in registry.variants("gemm")]
HOST_VARIANT = f"tiles{jit.host().lanes}"
A_AXES = ("az1", "az2", "am", "ak2", "ak")
B_AXES = ("bz1", "bz2", "bn", "bk2", "bk")
# One ulp of the stored result, plus half an ulp of each partial sum of a chain. Partial sums grow
# like a random walk: five standard deviations of a high walk are below terms * 2^-22.
TOLERANCE = {"f32": 2.0**-23, "f16": 2.0**-11}


def strides_of(order, sizes, pad=0) -> dict[str, int]:
    """Strides of a dense array with axes in `order`, outermost first, rows padded by `pad`."""
    out, step = {}, 1
    for axis in reversed(order):
        out[axis] = step
        step = step * sizes[axis] + pad
    return out


def extent(sizes, strides) -> int:
    return 1 + sum((sizes[axis] - 1) * strides[axis] for axis in sizes)


def operands(rng, shape, a_order, b_order, storages, pad=0, broadcast=(), **more):
    """Return the operands of a call; the axes of a or b in `broadcast` get stride 0."""
    z1, z2, m, n, k2, k = shape
    a_sizes = dict(zip(A_AXES, (z1, z2, m, k2, k), strict=True))
    b_sizes = dict(zip(B_AXES, (z1, z2, n, k2, k), strict=True))
    c_sizes = {"cz1": z1, "cz2": z2, "cm": m, "j": n}
    a_strides, b_strides = strides_of(a_order, a_sizes, pad), strides_of(b_order, b_sizes, pad)
    c_strides = strides_of(("cz1", "cz2", "cm", "j"), c_sizes, pad)
    for axis in broadcast:
        (a_strides if axis in a_strides else b_strides)[axis] = 0
    na, nb = extent(a_sizes, a_strides), extent(b_sizes, b_strides)
    nc = extent(c_sizes, c_strides)
    del c_strides["j"]
    return {
        **{"z1": z1, "z2": z2, "m": m, "n": n, "k2": k2, "k": k},
        **{"a": rng.standard_normal(na).astype(DTYPES[storages["A"]])},
        **{"b": rng.standard_normal(nb).astype(DTYPES[storages["B"]])},
        **{"c": rng.standard_normal(nc).astype(DTYPES[storages["C"]])},
        **a_strides, **b_strides, **c_strides,
        **{"na": na, "nb": nb, "nc": nc, "alpha": 1.0, "acc": 0, "sr": 0, "key": 0},
        **more,
    }  # fmt: skip


def output_view(v, flat):
    shape = v["z1"], v["z2"], v["m"], v["n"]
    return naive_gemm.view(flat, shape, (v["cz1"], v["cz2"], v["cm"], 1))


def check(v, storages, variant):
    found = same_for_threads("gemm", storages, variant=variant, **v)["c"]
    expected = naive_gemm.gemm(v, float(np.float32(v["alpha"])))
    if v["acc"]:
        expected = expected + output_view(v, v["c"])
    scale = TOLERANCE[storages["C"]] * np.abs(expected) + 2.0**-22 * (v["k"] * v["k2"] + 8)
    assert np.all(np.abs(output_view(v, found) - expected) <= scale)


SIZES = st.one_of(st.integers(1, 9), st.integers(1, 70))


@pytest.mark.parametrize("variant", VARIANTS)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), SIZES, SIZES, st.integers(1, 3), SIZES),
    a_order=st.permutations(A_AXES),
    b_order=st.permutations(B_AXES),
    pad=st.sampled_from((0, 3)),
    broadcast=st.sampled_from(((), ("az1",), ("bz1", "bz2"), ("bz2",), ("ak",))),
    halves=st.sampled_from(("fff", "hhh", "hff", "ffh")),
    alpha=st.sampled_from((1.0, 0.125, -1.7)),
    acc=st.integers(0, 1),
    biased=st.booleans(),
    seed=st.integers(0, 99),
)
def test_gemm_equals_naive_twin(
    variant, shape, a_order, b_order, pad, broadcast, halves, alpha, acc, biased, seed
):
    rng = np.random.default_rng(seed)
    if variant not in ("plain", HOST_VARIANT):
        halves = "fff"  # these differ from the host's only in sizes: avoid compiling mixtures
    storages = {s: "f16" if h == "h" else "f32" for s, h in zip("ABC", halves, strict=True)}
    bias = rng.standard_normal(shape[3]).astype(np.float32) if biased else None
    v = operands(
        rng, shape, a_order, b_order, storages, pad, broadcast, alpha=alpha, acc=acc, bias=bias
    )
    check(v, storages, variant)


LARGE = (
    (1, 1, 130, 200, 1, 300),
    (1, 1, 1, 90, 1, 700),
    (1, 1, 150, 1, 1, 333),
    (2, 1, 70, 65, 3, 97),
)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("a_order", [A_AXES, ("az1", "az2", "ak2", "ak", "am")])
@pytest.mark.parametrize("b_order", [B_AXES, ("bz1", "bz2", "bk2", "bk", "bn")])
def test_gemm_equals_naive_twin_when_larger_than_blocks(rng, variant, shape, a_order, b_order):
    storages = dict.fromkeys("ABC", "f32")
    check(operands(rng, shape, a_order, b_order, storages), storages, variant)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "plain"])
@pytest.mark.parametrize("biased", [False, True])
def test_gemm_adds_chains_in_order_when_a_sum_is_made_in_parts(rng, variant, biased):
    storages, (m, n, k) = dict.fromkeys("ABC", "f32"), (130, 70, 2200)
    bias = rng.standard_normal(n).astype(np.float32) if biased else None
    v = operands(rng, (1, 1, m, n, 1, k), A_AXES, B_AXES, storages, 3, alpha=0.5, bias=bias)
    found = same_for_threads("gemm", storages, variant=variant, **v)["c"]
    total = np.zeros_like(found)
    for start in range(0, k, KC):  # one call per chain, added to the sum so far
        factors = {"a": v["a"][start:], "b": v["b"][start:], "k": min(KC, k - start)}
        extents = {"na": v["na"] - start, "nb": v["nb"] - start}
        part = v | factors | extents | {"c": total, "alpha": 1.0, "acc": 1, "bias": None}
        total = call("gemm", storages, variant=variant, **part)["c"]
    expected = output_view(v, total).astype(np.float32) * np.float32(0.5)
    expected = expected + bias if biased else expected
    np.testing.assert_array_equal(output_view(v, found), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("batch", ["z1", "z2"])
@pytest.mark.parametrize("acc", [0, 1])
def test_gemm_writes_rows_of_batches_in_turn(rng, variant, batch, acc):
    shape = (9, 1, 20, 40, 1, 150) if batch == "z1" else (1, 9, 20, 40, 1, 150)
    v = operands(rng, shape, A_AXES, B_AXES, dict.fromkeys("ABC", "f32"), 0, (f"b{batch}",))
    # time is the outer axis in c but not in a
    v |= {f"c{batch}": 40, "cm": 9 * 40, "acc": acc, "bias": rng.standard_normal(40)}
    v["bias"] = v["bias"].astype(np.float32)
    check(v, dict.fromkeys("ABC", "f32"), variant)


@pytest.mark.parametrize("variant", ["plain", HOST_VARIANT])
def test_gemm_accumulates_with_stochastic_rounding(rng, variant):
    storages = {"A": "f32", "B": "f32", "C": "f16"}
    v = operands(rng, (1, 1, 20, 33, 1, 5), A_AXES, B_AXES, storages, acc=1, sr=1, key=9)
    v["ctl"] = control(SEED=11, STEP=2, MICROBATCH=1)
    found = same_for_threads("gemm", storages, variant=variant, **v)["c"]
    exact = call("gemm", storages | {"C": "f32"}, variant=variant, **v | _plain_sum(v))["c"]
    key = naive_rng.stream(11, 9, 2, 1)
    expected = naive_rng.stochastic_f16(exact, naive_rng.hash32(key, np.arange(exact.size)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_gemm_panels_fit_their_stack(storage):
    place = small_panels(STORAGES[storage]).py_func
    for blocks, lie, summed in itertools.product((1, 3), (False, storage == "f32"), (False, True)):
        panels, rows, columns = place(0, blocks, lie, summed)
        tile = 4 * rows * columns
        assert panels.b >= (0 if storage == "f32" else 4 * WIDTH * WIDTH)
        assert panels.c >= panels.b + (0 if lie else 4 * panels.most * columns)
        assert panels.c + tile <= STACK
        if blocks > 1 and not lie:
            own_sums = storage == "f16" or not summed
            assert panels.chain >= panels.c + (tile if own_sums else 0)
            assert panels.chain + tile <= STACK


def _plain_sum(v):
    return {"c": v["c"].astype(np.float32), "sr": 0}


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "plain"])
@pytest.mark.parametrize("acc, sr", [(0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize("m, n", [(33, 784), (40, 45), (20, 16), (70, 9), (1, 200), (200, 1)])
def test_gemm_of_one_term_rounds_each_product_once(rng, variant, acc, sr, m, n):
    storages = dict.fromkeys("ABC", "f32")
    v = operands(rng, (1, 1, m, n, 1, 1), A_AXES, B_AXES, storages, 3, acc=acc, sr=sr, key=9)
    v["ctl"] = control(SEED=11, STEP=2, MICROBATCH=1)
    v["a"][0], v["b"][0], v["c"][: n + 1] = 1e-30, -1e-30, -0.0  # products and sums of -0
    found = same_for_threads("gemm", storages, variant=variant, **v)["c"]
    expected, reach = v["c"].copy(), [4 * v["cm"], 4]
    lines = as_strided(expected, (m, n), reach)
    a, b = v["a"][:: v["am"]][:m], v["b"][:: v["bn"]][:n]
    lines[...] = lines + np.multiply.outer(a, b) if acc else np.multiply.outer(a, b)
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def _chains(a, b):
    """Sum a[k] * b[n, k] over k in fma chains of KC terms; add the chains in order."""
    sums = []
    for start in range(0, len(a), KC):
        chain = np.zeros(len(b), np.float32)
        for x, column in zip(a[start : start + KC], b.T[start : start + KC], strict=True):
            chain = (np.float64(x) * column + chain).astype(np.float32)
        sums.append(chain)
    return functools.reduce(np.add, sums)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "plain"])
@pytest.mark.parametrize("acc, biased", [(0, False), (0, True), (1, False), (1, True)])
@pytest.mark.parametrize("n, k", [(48, 784), (32, 96), (20, 208), (64, 100), (16, 16), (90, 33)])
@pytest.mark.parametrize("as_column", [False, True])
def test_gemm_of_one_line_sums_chains_in_order(rng, variant, acc, biased, n, k, as_column):
    storages = dict.fromkeys("ABC", "f32")
    m, n = (n, 1) if as_column else (1, n)
    bias = rng.standard_normal(n).astype(np.float32) if biased else None
    v = operands(rng, (1, 1, m, n, 1, k), A_AXES, B_AXES, storages, acc=acc, bias=bias, sr=1)
    v["ctl"] = control(SEED=11, STEP=2, MICROBATCH=1)
    found = same_for_threads("gemm", storages, variant=variant, **v)["c"]
    a, b = v["a"].reshape(m, k), v["b"].reshape(n, k)
    expected = _chains(*((b[0], a) if as_column else (a[0], b)))
    expected = expected + bias if biased else expected
    np.testing.assert_array_equal(found, v["c"] + expected if acc else expected)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "plain"])
@pytest.mark.parametrize("acc, biased", [(0, False), (0, True), (1, False), (1, True)])
@pytest.mark.parametrize("n, k", [(512, 256), (208, 97), (64, 80), (144, 784), (90, 33)])
def test_gemm_of_one_line_of_rows_sums_chains_in_order(rng, variant, acc, biased, n, k):
    storages = dict.fromkeys("ABC", "f32")
    bias = rng.standard_normal(n).astype(np.float32) if biased else None
    order = ("bz1", "bz2", "bk2", "bk", "bn")
    v = operands(rng, (1, 1, 1, n, 1, k), A_AXES, order, storages, acc=acc, bias=bias)
    found = same_for_threads("gemm", storages, variant=variant, **v)["c"]
    expected = _chains(v["a"], v["b"].reshape(k, n).T)
    expected = expected + bias if biased else expected
    np.testing.assert_array_equal(found, v["c"] + expected if acc else expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gemm_passes_nan_and_infinity_on(rng, variant):
    storages = dict.fromkeys("ABC", "f32")
    v = operands(rng, (1, 1, 17, 19, 1, 21), A_AXES, B_AXES, storages)
    v["a"][3 * 21], v["b"][5 * 21 + 1] = np.nan, np.inf
    found = call("gemm", storages, variant=variant, **v)["c"].reshape(17, 19)
    bad = np.zeros((17, 19), bool)
    bad[3], bad[:, 5] = True, True
    np.testing.assert_array_equal(~np.isfinite(found), bad)


@pytest.mark.parametrize("change", [{"na": 5}, {"nb": 5}, {"nc": 5}, {"am": -1}, {"m": 0}])
def test_gemm_refuses_integers_that_reach_outside(rng, change):
    storages = dict.fromkeys("ABC", "f32")
    v = operands(rng, (1, 1, 17, 19, 1, 21), A_AXES, B_AXES, storages) | change
    values = {k: x for k, x in v.items() if isinstance(x, int)} | {"a": 0, "b": 0, "c": 0}
    spec = registry.choose("gemm", values | {"bias": -1, "ctl": -1}, storages, jit.host()).spec
    with pytest.raises(ProgramError):
        spec.extents(values | {"bias": -1, "ctl": -1}, storages, 1, 16)
