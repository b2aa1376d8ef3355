"""Convolutions compared with numpy in float64: any shape, both storages, prologues, threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import naive_conv, naive_norm
from .harness import DTYPES, control, same_for_threads
from .naive_conv import Conv

# Float32 sums of a few hundred products near 1; fp16 storage adds an error of 2^-11.
TOLERANCE = {"f32": 2e-5, "f16": 1e-3}

CASES = [
    Conv(n=2, c=3, h=8, wd=8, k=4, kh=3, kw=3, ph=1, pw=1),
    Conv(n=2, c=4, h=9, wd=7, k=6, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),
    Conv(n=1, c=4, h=8, wd=8, k=6, sh=2, sw=2, extra_h=-1),
    Conv(n=2, c=5, h=1, wd=19, k=3, kw=5, sw=2, pw=2, dw=2),
    Conv(n=1, c=6, h=7, wd=11, k=9, kh=2, kw=3, dh=2, ph=1, pw=2, g=3, extra_w=1),
    Conv(n=2, c=8, h=6, wd=6, k=8, kh=3, kw=3, ph=1, pw=1, g=8),
    Conv(n=2, c=17, h=5, wd=5, k=18),
    Conv(n=1, c=1, h=4, wd=4, k=1, kh=4, kw=4),
]


@st.composite
def convolutions(draw) -> Conv:
    small = st.integers(1, 3)
    g = draw(st.sampled_from([1, 1, 2, 3]))
    kh, kw, dh, dw = draw(small), draw(st.integers(1, 5)), draw(small), draw(small)
    return Conv(
        n=draw(small),
        c=g * draw(st.integers(1, 5)),
        h=draw(st.integers(1, 9)) + (kh - 1) * dh,
        wd=draw(st.integers(1, 20)) + (kw - 1) * dw,
        k=g * draw(st.integers(1, 5)),
        kh=kh,
        kw=kw,
        sh=draw(small),
        sw=draw(small),
        ph=draw(st.integers(0, 3)),
        pw=draw(st.integers(0, 3)),
        dh=dh,
        dw=dw,
        g=g,
    )


def _normal(rng, shape, storage, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(DTYPES[storage])


def _close(found, expected, storage):
    scale = max(float(np.abs(expected).max(initial=0)), 1.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[storage] * scale)


def _prologue(rng, p, kind, x):
    """Return (operands, input after the prologue); `kind` is none, an activation, batch-norm with
    relu, or batch-norm alone."""
    if kind == "none":
        return {"act": 0, "lo": 0.0, "hi": 0.0}, x
    if kind == "relu":
        return {"act": 1, "lo": 0.0, "hi": 0.0}, naive_norm.act(1, x)
    if kind == "clip":
        return {"act": 2, "lo": -0.5, "hi": 0.75}, naive_norm.act(2, x, -0.5, 0.75)
    stat = rng.standard_normal((3, p.c)).astype(np.float32)
    gamma, beta = rng.standard_normal((2, p.c)).astype(np.float32)
    z = naive_norm.normalised(x.reshape(p.n, p.c, -1), stat, gamma, beta).reshape(x.shape)
    act = 0 if kind == "affine" else 1
    operands = {"stat": stat, "gamma": gamma, "beta": beta, "act": act, "lo": 0.0, "hi": 0.0}
    return operands, naive_norm.act(act, z)


def check_forward(p, storage, kind, variant="", threads=(1, 3)):
    rng = np.random.default_rng(7)
    x, bias = _normal(rng, p.x_shape, storage), _normal(rng, p.k, "f32")
    w = _normal(rng, p.w_shape, storage, (p.c // p.g * p.kh * p.kw) ** -0.5)
    operands, a = _prologue(rng, p, kind, x)
    out = same_for_threads(
        "conv",
        {"S": storage, "W": storage},
        threads=threads,
        variant=variant,
        x=x,
        w=w,
        bias=None if kind == "clip" else bias,
        y=p.y_shape,
        **operands,
        **p.integers,
    )
    expected = naive_conv.forward(p, a, w, None if kind == "clip" else bias)
    _close(out["y"], expected, storage)
    return out["y"]


def check_dx(p, storage, acc, variant="", threads=(1, 3)):
    rng = np.random.default_rng(8)
    dy, dx = _normal(rng, p.y_shape, storage), _normal(rng, p.x_shape, storage)
    w = _normal(rng, p.w_shape, storage, (p.k // p.g * p.kh * p.kw) ** -0.5)
    out = same_for_threads(
        "conv_dx",
        {"S": storage, "W": storage},
        threads=threads,
        variant=variant,
        dy=dy,
        w=w,
        dx=dx,
        acc=acc,
        **p.integers,
    )
    expected = naive_conv.input_gradient(p, dy, w) + acc * dx.astype(np.float64)
    _close(out["dx"], expected, storage)
    return out["dx"]


def check_dw(p, storage, kind, variant="", threads=(1, 3)):
    rng = np.random.default_rng(9)
    x = _normal(rng, p.x_shape, storage)
    dy = _normal(rng, p.y_shape, storage, (p.n * p.oh * p.ow) ** -0.5)
    dwt = _normal(rng, p.w_shape, storage)
    operands, a = _prologue(rng, p, kind, x)
    out = same_for_threads(
        "conv_dw",
        {"S": storage, "G": storage},
        threads=threads,
        variant=variant,
        x=x,
        dy=dy,
        dwt=dwt,
        ctl=control(SEED=3),
        key=5,
        **operands,
        **p.integers,
    )
    expected = naive_conv.weight_gradient(p, a, dy) + dwt.astype(np.float64)
    _close(out["dwt"], expected, storage)
    return out["dwt"]


# Corner cases of the fast kernels: several tiles, several images in a tile, channel chunks,
# output blocks, partial columns, stride classes, kernels wider than the map.
FAST_CASES = [
    Conv(n=3, c=20, h=18, wd=18, k=21, kh=3, kw=3, ph=1, pw=1),
    Conv(n=7, c=33, h=4, wd=4, k=70, kh=3, kw=3, ph=1, pw=1),
    Conv(n=2, c=70, h=5, wd=9, k=6, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),
    Conv(n=2, c=6, h=13, wd=10, k=5, kh=5, kw=4, sh=3, sw=3, ph=2, pw=1, dh=2, dw=2),
    Conv(n=2, c=4, h=1, wd=300, k=4, kw=9, sw=2, pw=4),
    Conv(n=3, c=40, h=9, wd=9, k=24),
    Conv(n=1, c=3, h=40, wd=37, k=8, kh=7, kw=7, sh=2, sw=2, ph=3, pw=3),
    Conv(n=2, c=12, h=6, wd=6, k=8, kh=3, kw=3, ph=2, pw=2, dh=2, dw=2, g=2),
    Conv(n=2, c=3, h=4, wd=4, k=4, kh=9, kw=11, ph=6, pw=8),
    # column strides above two
    Conv(n=2, c=3, h=35, wd=38, k=5, kh=4, kw=4, sh=4, sw=4),
    Conv(n=1, c=3, h=65, wd=71, k=4, kh=11, kw=11, sh=4, sw=4, ph=2, pw=2),
    Conv(n=1, c=2, h=40, wd=66, k=4, kh=17, kw=19, sh=16, sw=17, ph=9, pw=18),
    Conv(n=3, c=5, h=7, wd=55, k=6, kh=2, kw=1, sh=1, sw=3, ph=1),
    Conv(n=1, c=2, h=3, wd=1100, k=3, kh=2, kw=5, sh=2, sw=4, ph=1, pw=3),
    # column stride two: one tap, lines of several vectors, odd lines, more places than columns,
    # other row strides, maps of a few pixels, taps entirely in the padding
    Conv(n=2, c=9, h=16, wd=16, k=5, sh=2, sw=2),
    Conv(n=1, c=3, h=9, wd=75, k=6, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),
    Conv(n=2, c=4, h=7, wd=6, k=5, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1, extra_h=3, extra_w=9),
    Conv(n=2, c=3, h=10, wd=33, k=4, kh=3, kw=5, sh=1, sw=2, ph=1, pw=2),
    Conv(n=5, c=19, h=4, wd=4, k=6, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),
    Conv(n=2, c=3, h=9, wd=18, k=4, kh=2, kw=2, sh=2, sw=2),
    Conv(n=2, c=3, h=9, wd=17, k=4, kh=3, kw=3, sh=2, sw=2),
    Conv(n=1, c=3, h=12, wd=64, k=4, kh=3, kw=17, sh=3, sw=2, ph=1, pw=8),
]


@pytest.mark.parametrize("kind", ["none", "clip", "norm"])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", CASES)
def test_plain_conv_equals_naive(p, storage, kind):
    check_forward(p, storage, kind, "plain")


@pytest.mark.parametrize("acc", [0, 1])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", CASES)
def test_plain_conv_dx_equals_naive(p, storage, acc):
    check_dx(p, storage, acc, "plain")


@pytest.mark.parametrize("kind", ["none", "clip", "norm"])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", CASES)
def test_plain_conv_dw_equals_naive(p, storage, kind):
    check_dw(p, storage, kind, "plain")


@pytest.mark.parametrize(
    ("variant", "storage"), [("wide", "f32"), ("wide", "f16"), ("narrow", "f32")]
)
@pytest.mark.parametrize("p", FAST_CASES)
def test_fast_conv_equals_plain_bit_for_bit(p, storage, variant):
    for kind in ("none", "relu", "clip", "norm", "affine"):
        plain = check_forward(p, storage, kind, "plain", (1,))
        assert check_forward(p, storage, kind, variant).tobytes() == plain.tobytes()
    for acc in (0, 1):
        plain = check_dx(p, storage, acc, "plain", (1,))
        assert check_dx(p, storage, acc, variant).tobytes() == plain.tobytes()


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", CASES + FAST_CASES)
def test_scalar_conv_equals_plain_bit_for_bit(p, storage):
    for kind in ("clip", "norm"):
        plain = check_forward(p, storage, kind, "plain", (1,))
        assert check_forward(p, storage, kind, "scalar").tobytes() == plain.tobytes()
        check_dw(p, storage, kind, "scalar", (1, 3, 8))
    for acc in (0, 1):
        plain = check_dx(p, storage, acc, "plain", (1,))
        assert check_dx(p, storage, acc, "scalar").tobytes() == plain.tobytes()


@pytest.mark.parametrize("kind", ["none", "norm"])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", CASES + FAST_CASES)
def test_fast_conv_dw_equals_naive(p, storage, kind):
    check_dw(p, storage, kind, "wide", (1, 3, 8))


@pytest.mark.parametrize("p", FAST_CASES)
def test_fast_conv_dw_does_not_depend_on_register_tiles(p):
    wide, narrow = (check_dw(p, "f32", "norm", variant) for variant in ("wide", "narrow"))
    assert wide.tobytes() == narrow.tobytes()


DEPTHWISE = [
    Conv(n=11, c=8, h=6, wd=6, k=8, kh=3, kw=3, ph=1, pw=1, g=8),
    Conv(n=3, c=5, h=23, wd=31, k=5, kh=5, kw=5, sh=2, sw=2, ph=2, pw=2, g=5),
    Conv(n=2, c=3, h=1, wd=700, k=3, kw=31, pw=15, g=3),
    Conv(n=2, c=3, h=12, wd=40, k=3, kh=3, kw=3, ph=2, pw=2, dh=2, dw=2, g=3),
    # output as large as input: several channels in a vector, one, bands of rows, several images
    *(
        Conv(n=n, c=c, h=h, wd=wd, k=c, kh=3, kw=3, ph=1, pw=1, g=c)
        for n, c, h, wd in (
            (8, 13, 2, 2),
            (5, 7, 4, 4),
            (3, 5, 1, 3),
            (3, 2, 8, 8),
            (1, 2, 1, 16),
            (3, 2, 16, 16),
            (2, 2, 32, 32),
            (2, 2, 7, 9),
            (2, 1, 20, 33),
            (1, 1, 3, 300),
        )
    ),
    # output half as large
    *(
        Conv(n=2, c=3, h=h, wd=wd, k=3, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1, g=3)
        for h, wd in ((4, 4), (8, 8), (6, 8), (16, 16), (34, 32), (6, 48), (6, 6), (7, 16))
    ),
]


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", DEPTHWISE)
def test_depthwise_conv_equals_plain_bit_for_bit(p, storage):
    for kind in ("none", "norm"):
        plain = check_forward(p, storage, kind, "plain", (1,))
        assert check_forward(p, storage, kind, "depthwise").tobytes() == plain.tobytes()
        check_dw(p, storage, kind, "depthwise", (1, 3, 8))
    for acc in (0, 1):
        plain = check_dx(p, storage, acc, "plain", (1,))
        assert check_dx(p, storage, acc, "depthwise").tobytes() == plain.tobytes()


def test_fast_conv_reads_other_activations():
    p = Conv(n=1, c=5, h=6, wd=6, k=4, kh=3, kw=3, ph=1, pw=1)
    rng = np.random.default_rng(4)
    x, w = _normal(rng, p.x_shape, "f32"), _normal(rng, p.w_shape, "f32")
    for code in (3, 5):
        operands = {"x": x, "w": w, "y": p.y_shape, "act": code, "lo": 0.0, "hi": 0.0}
        out = same_for_threads("conv", {"S": "f32", "W": "f32"}, **operands, **p.integers)
        _close(out["y"], naive_conv.forward(p, naive_norm.act(code, x), w, None), "f32")


@given(convolutions())
def test_convolutions_equal_naive_for_any_shape(p):
    check_forward(p, "f32", "norm")
    check_dx(p, "f32", 1)
    check_dw(p, "f32", "norm")
