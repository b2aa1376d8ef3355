"""Sparse convolutions against dense ones in numpy: any shape, storages, prologues, threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.formats import INT8, csr, decoded
from edgetrain.kernels import registry

from . import naive_conv
from .harness import DTYPES, control, same_for_threads
from .naive_conv import Conv
from .test_conv import CASES, _close, _normal, _prologue, convolutions

EACH = pytest.mark.parametrize("p", [*CASES, Conv(n=1, c=40, h=40, wd=37, k=3, kh=3, kw=3, sh=2)])
LEAD, TAIL = 3, 5  # slots of other layers before and after


def weights_of(p: Conv, storage: str, density: float, dtype: str = "u8", scale: float = 1.0):
    """Return (dense weight, mask, pool, operands) of a layer in the middle of a pool."""
    rng = np.random.default_rng(11)
    layer = csr.Layer("w", p.w_shape, 0, 0)
    mask = rng.random(p.w_shape) < density
    positions = np.flatnonzero(mask)
    columns, pointers = csr.encode(layer, positions, LEAD)
    weight = np.where(mask, _normal(rng, p.w_shape, storage, scale), DTYPES[storage](0))
    pool = _normal(rng, LEAD + len(positions) + TAIL, storage)
    pool[LEAD:-TAIL] = weight.reshape(-1)[positions]
    every = np.zeros(pool.shape, DTYPES[dtype])
    every[LEAD:-TAIL] = columns
    operands = {"columns": every, "pointers": pointers, "chunk": layer.chunk, "slots": pool.size}
    operands |= {"room": 0, "held": 0}
    return weight, mask, pool, operands


def _alone(pool, pattern):
    """Return the layer's own slots without the rest of the pool, and the matching pattern."""
    own = np.concatenate([pool[LEAD:-TAIL], pool[:2]])  # room to grow by two
    return own, pattern | {"room": own.size, "held": own.size}


def check_forward(
    p, storage, kind, variant="", threads=(1, 3), density=0.4, columns="u8", kernel="conv_csr"
):
    """Return y; it must match numpy, the layer alone and, in float32, weights in 8-bit blocks."""
    rng = np.random.default_rng(7)
    x, bias = _normal(rng, p.x_shape, storage), _normal(rng, p.k, "f32")
    scale = (p.c // p.g * p.kh * p.kw) ** -0.5
    weight, _, pool, pattern = weights_of(p, storage, density, columns, scale)
    operands, a = _prologue(rng, p, kind, x)

    def run(pool, pattern, threads, weights=storage):
        return same_for_threads(
            kernel,
            {"S": storage, "W": weights, "I": columns},
            threads=threads,
            variant=variant,
            x=x,
            w=pool,
            bias=None if kind == "clip" else bias,
            y=p.y_shape,
            **operands,
            **pattern,
            **p.integers,
        )

    out = run(pool, pattern, threads)
    assert run(*_alone(pool, pattern), threads[-1:])["y"].tobytes() == out["y"].tobytes()
    if storage == "f32" and "W" in registry.variants(kernel)[0].blocks:
        _check_blocks(run, pool, pattern, threads, "y")
    expected = naive_conv.forward(p, a, weight, None if kind == "clip" else bias)
    _close(out["y"], expected, storage)
    return out["y"]


def _check_blocks(run, pool, pattern, threads, result):
    """Check that weights in 8-bit blocks give the same bits as their decoded floats."""
    blocks, held = INT8.encode(pool), pattern | {"held": pool.size}
    read = run(decoded(blocks, pool.shape), pattern, threads[-1:])[result]
    assert run(blocks, held, threads[-1:], "q8")[result].tobytes() == read.tobytes()


def check_dx(
    p, storage, acc, variant="", threads=(1, 3), density=0.4, columns="u8", kernel="conv_csr_dx"
):
    """Return dx, checked as in `check_forward`."""
    rng = np.random.default_rng(8)
    dy, dx = _normal(rng, p.y_shape, storage), _normal(rng, p.x_shape, storage)
    scale = (p.k // p.g * p.kh * p.kw) ** -0.5
    weight, _, pool, pattern = weights_of(p, storage, density, columns, scale)

    def run(pool, pattern, threads, weights=storage):
        return same_for_threads(
            kernel,
            {"S": storage, "W": weights, "I": columns},
            threads=threads,
            variant=variant,
            dy=dy,
            w=pool,
            dx=dx,
            acc=acc,
            **pattern,
            **p.integers,
        )

    out = run(pool, pattern, threads)
    assert run(*_alone(pool, pattern), threads[-1:])["dx"].tobytes() == out["dx"].tobytes()
    if storage == "f32" and variant != "plain":
        _check_blocks(run, pool, pattern, threads, "dx")
    expected = naive_conv.input_gradient(p, dy, weight) + acc * dx.astype(np.float64)
    _close(out["dx"], expected, storage)
    return out["dx"]


def check_dw(p, storage, kind, variant="", threads=(1, 3), density=0.4, columns="u8"):
    rng = np.random.default_rng(9)
    x = _normal(rng, p.x_shape, storage)
    dy = _normal(rng, p.y_shape, storage, (p.n * p.oh * p.ow) ** -0.5)
    _, mask, before, pattern = weights_of(p, storage, density, columns)
    operands, a = _prologue(rng, p, kind, x)

    def run(before, pattern, threads):
        return same_for_threads(
            "conv_csr_dw",
            {"S": storage, "I": columns, "G": storage},
            threads=threads,
            variant=variant,
            x=x,
            dy=dy,
            dwt=before,
            ctl=control(SEED=3),
            key=5,
            **operands,
            **pattern,
            **p.integers,
        )

    out = run(before, pattern, threads)
    alone = run(*_alone(before, pattern), threads[-1:])["dwt"]
    assert alone[:-2].tobytes() == out["dwt"][LEAD:-TAIL].tobytes()
    expected = before.astype(np.float64)
    expected[LEAD:-TAIL] += naive_conv.weight_gradient(p, a, dy)[mask]
    _close(out["dwt"], expected, storage)
    others = np.r_[:LEAD, before.size - TAIL : before.size]
    assert out["dwt"][others].tobytes() == before[others].tobytes()


@pytest.mark.parametrize("kind", ["none", "clip", "norm"])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@EACH
def test_plain_conv_csr_equals_naive(p, storage, kind):
    check_forward(p, storage, kind, "plain")


@pytest.mark.parametrize("acc", [0, 1])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@EACH
def test_plain_conv_csr_dx_equals_naive(p, storage, acc):
    check_dx(p, storage, acc, "plain")


@pytest.mark.parametrize("kind", ["none", "clip", "norm"])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@EACH
def test_plain_conv_csr_dw_equals_naive(p, storage, kind):
    check_dw(p, storage, kind, "plain")


def test_conv_csr_takes_16_bit_columns_when_a_channel_has_more_than_256_elements():
    p = Conv(n=1, c=3, h=1, wd=400, k=2, kw=300, pw=10)
    check_forward(p, "f32", "none", columns="u16")
    check_dx(p, "f32", 1, columns="u16")
    check_dw(p, "f32", "none", columns="u16")


@given(convolutions(), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_sparse_convolutions_equal_naive_for_any_shape_and_density(p, density):
    check_forward(p, "f32", "norm", density=density)
    check_dx(p, "f32", 1, density=density)
    check_dw(p, "f32", "norm", density=density)
