"""F(4 x 4, 3 x 3) convolutions against numpy in float64: any shape, and the error vs direct."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.kernels import registry, targets

from . import naive_conv
from .harness import call, control, same_for_threads
from .naive_conv import Conv
from .test_conv import _close, _normal, _prologue
from .test_conv_csr import check_dx, check_forward
from .test_conv_csr import weights_of as rows_of

VARIANTS = ("wide", "plain")


def _conv(n: int, c: int, h: int, wd: int, k: int, ph: int = 1, pw: int = 1, **more: int) -> Conv:
    return Conv(n=n, c=c, h=h, wd=wd, k=k, kh=3, kw=3, ph=ph, pw=pw, **more)


# Whole tiles; one pixel in one tile; tails of channels and tiles; several images in a panel;
# several panels; padding 0 to 2, more below and right; several blocks of channels.
CASES = [
    _conv(2, 32, 8, 8, 32),
    _conv(1, 1, 1, 1, 1),
    _conv(3, 17, 7, 9, 5),
    _conv(2, 33, 5, 70, 40),
    _conv(1, 3, 4, 3, 20, 0, 1),
    _conv(2, 70, 6, 6, 9, 2, 2),
    _conv(5, 16, 2, 2, 16),
    _conv(1, 5, 9, 4, 130, 2, 0, extra_h=1, extra_w=1),
    _conv(1, 140, 5, 5, 33),
    _conv(11, 2, 3, 3, 2, 0, 0),
    _conv(9, 130, 9, 7, 90),  # three pieces of channels, several groups of panels
]


def forward(
    p: Conv, storage: str, kind: str, variant: str, kernel="winograd", threads=(1, 3, 8), w=None
):
    """Return (y, y in float64)."""
    rng = np.random.default_rng(7)
    x, bias = _normal(rng, p.x_shape, storage), _normal(rng, p.k, "f32")
    w = _normal(rng, p.w_shape, storage, (p.c * 9) ** -0.5) if w is None else w
    operands, a = _prologue(rng, p, kind, x)
    bias = None if kind == "clip" else bias
    out = same_for_threads(
        kernel,
        {"S": storage, "W": storage},
        threads=threads,
        variant=variant,
        x=x,
        w=w,
        bias=bias,
        y=p.y_shape,
        **operands,
        **p.integers,
    )
    return out["y"], naive_conv.forward(p, a, w, bias)


def back(
    p: Conv, storage: str, acc: int, variant: str, kernel="winograd_dx", threads=(1, 3, 8), w=None
):
    """Return (dx, dx in float64)."""
    rng = np.random.default_rng(8)
    dy, dx = _normal(rng, p.y_shape, storage), _normal(rng, p.x_shape, storage)
    w = _normal(rng, p.w_shape, storage, (p.k * 9) ** -0.5) if w is None else w
    out = same_for_threads(
        kernel,
        {"S": storage, "W": storage},
        threads=threads,
        variant=variant,
        dy=dy,
        w=w,
        dx=dx,
        acc=acc,
        **p.integers,
    )
    return out["dx"], naive_conv.input_gradient(p, dy, w) + acc * dx.astype(np.float64)


def weights(p: Conv, storages, kind: str, variant: str, kernel="winograd_dw", threads=(1, 3, 8)):
    """Return (dwt, dwt in float64); `storages` are those of the maps and of the accumulator."""
    rng = np.random.default_rng(9)
    x = _normal(rng, p.x_shape, storages[0])
    dy = _normal(rng, p.y_shape, storages[0], (p.n * p.oh * p.ow) ** -0.5)
    dwt = _normal(rng, p.w_shape, storages[1])
    operands, a = _prologue(rng, p, kind, x)
    out = same_for_threads(
        kernel,
        dict(zip("SG", storages, strict=True)),
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
    return out["dwt"], naive_conv.weight_gradient(p, a, dy) + dwt.astype(np.float64)


def _alike(found, storage: str) -> None:
    """Check that every result is close to float64's and that all have the same bits."""
    for y, expected in found:
        _close(y, expected, storage)
    assert len({y.tobytes() for y, _ in found}) == 1


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", CASES)
def test_winograd_equals_naive_with_the_same_bits_for_any_registers(p, storage) -> None:
    for kind in ("none", "relu", "clip", "norm", "affine"):
        _alike([forward(p, storage, kind, variant) for variant in VARIANTS], storage)
    for acc in (0, 1):
        _alike([back(p, storage, acc, variant) for variant in VARIANTS], storage)


@pytest.mark.parametrize("storages", [("f32", "f32"), ("f16", "f32"), ("f16", "f16")])
@pytest.mark.parametrize("p", CASES)
def test_winograd_dw_equals_naive_with_the_same_bits_for_any_registers(p, storages) -> None:
    for kind in ("none", "norm"):
        found = [weights(p, storages, kind, variant) for variant in VARIANTS]
        _alike(found, "f16" if "f16" in storages else "f32")


@given(
    st.builds(
        _conv,
        *(st.integers(1, most) for most in (3, 70, 9, 9, 70)),
        st.integers(0, 2),
        st.integers(0, 2),
    )
)
@settings(max_examples=40)
def test_winograd_equals_naive_for_any_shape(p) -> None:
    if min(p.oh, p.ow) > 0:
        _alike([forward(p, "f32", "norm", variant) for variant in VARIANTS], "f32")
        _alike([back(p, "f32", 1, variant) for variant in VARIANTS], "f32")
        found = [weights(p, ("f32", "f32"), "norm", variant) for variant in VARIANTS]
        _alike(found, "f32")


def _sparse(p: Conv, storage: str, kind: str, variant: str, density: float, columns="u8") -> None:
    """Check both products of a layer in compressed rows: close to float64, and the same bits as the
    dense kernels with the same weights."""
    for name, check, dense, how, channels in (
        ("winograd_csr", check_forward, forward, kind, p.c),
        ("winograd_csr_dx", check_dx, back, int(kind == "none"), p.k),
    ):
        found = check(p, storage, how, variant, (1, 3), density, columns, name)
        w = rows_of(p, storage, density, columns, (9 * channels) ** -0.5)[0]
        assert dense(p, storage, how, variant, threads=(1,), w=w)[0].tobytes() == found.tobytes()


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", CASES)
def test_sparse_winograd_has_the_bits_of_the_dense_kernels(p, storage) -> None:
    for kind in ("none", "relu", "clip", "norm", "affine"):
        for variant in VARIANTS:
            _sparse(p, storage, kind, variant, 0.4)
    for density, columns in ((0.0, "u8"), (1.0, "u16")):
        _sparse(p, storage, "norm", "", density, columns)


@given(
    st.builds(
        _conv,
        *(st.integers(1, most) for most in (3, 70, 9, 9, 70)),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    st.sampled_from([0.05, 0.3, 1.0]),
)
@settings(max_examples=40)
def test_sparse_winograd_has_the_bits_of_the_dense_kernels_for_any_shape(p, density) -> None:
    if min(p.oh, p.ow) > 0:
        for variant in VARIANTS:
            _sparse(p, "f32", "norm", variant, density)


def _error(found) -> float:
    """Return the relative root mean square error."""
    y, expected = found
    return float(np.sqrt(((y - expected) ** 2).mean() / (expected**2).mean()))


# Shapes of WRN-28-2, ResNet-18 at 64 x 64 and a wide network, with smaller batches.
ZOO = [
    _conv(10, 32, 32, 32, 32),
    _conv(2, 64, 16, 16, 64),
    _conv(4, 128, 8, 8, 128),
    _conv(4, 256, 8, 8, 256),
    _conv(1, 32, 28, 28, 64, 0, 0),
    _conv(1, 64, 14, 14, 48, 2, 2),
]


@pytest.mark.parametrize("p", ZOO)
def test_winograd_is_within_eight_times_the_direct_kernels_error(p) -> None:
    for kind in ("none", "norm"):
        pair = [forward(p, "f32", kind, "", name, (1,)) for name in ("winograd", "conv")]
        assert _error(pair[0]) <= 8 * _error(pair[1])
    pair = [back(p, "f32", 0, "", name, (1,)) for name in ("winograd_dx", "conv_dx")]
    assert _error(pair[0]) <= 8 * _error(pair[1])
    names = ("winograd_dw", "conv_dw")
    pair = [weights(p, ("f32", "f32"), "none", "", name, (1,)) for name in names]
    assert _error(pair[0]) <= 8 * _error(pair[1])


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_winograd_shows_a_pixel_that_is_not_finite(value) -> None:
    """Every output that reads the pixel is not finite; others in the same tiles may be too."""
    p = _conv(1, 32, 16, 16, 32)
    x, w = np.ones(p.x_shape, np.float32), np.ones(p.w_shape, np.float32)
    x[0, 3, 8, 5] = value
    none = {"act": 0, "lo": 0.0, "hi": 0.0}
    y = call("winograd", {"S": "f32", "W": "f32"}, x=x, w=w, y=p.y_shape, **none, **p.integers)["y"]
    assert not np.isfinite(y[0, :, 7:10, 4:7]).any()
    beyond = np.ones((16, 16), bool)
    beyond[4:12, 4:8] = False
    assert np.isfinite(y[0][:, beyond]).all()


def test_winograd_takes_a_megabyte_of_scratch_at_most_for_256_channels() -> None:
    for name in ("winograd", "winograd_dx", "winograd_dw"):
        for c, k in ((32, 32), (256, 256), (32, 256), (256, 32)):
            values = {o.name: 0 for o in registry.variants(name)[0].spec.operands if o.mode == "i"}
            values |= _conv(100, c, 256, 256, k).integers
            for kernel in registry.variants(name):
                for lanes in targets.LANES:
                    assert kernel.spec.scratch_nbytes(values, 1, lanes) <= 2**20
