"""Fast sparse convolutions against the plain ones: tiles, chunks, tails, strides, threads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .naive_conv import Conv
from .test_conv import FAST_CASES, convolutions
from .test_conv_csr import check_dw, check_dx, check_forward

# Tiles of whole vectors of a map (16 lanes) and of whole lines of 8.
DIRECT_CASES = [
    ("direct", Conv(n=2, c=12, h=32, wd=32, k=20, kh=3, kw=3, ph=1, pw=1)),
    ("direct", Conv(n=3, c=30, h=16, wd=16, k=140, kh=3, kw=3, ph=1, pw=1)),
    ("direct", Conv(n=1, c=5, h=9, wd=48, k=7, kh=3, kw=3, ph=1, pw=1)),
    ("direct", Conv(n=3, c=8, h=4, wd=32, k=8, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1)),
    ("direct", Conv(n=2, c=10, h=20, wd=20, k=12, kh=1, kw=1)),
    ("direct", Conv(n=1, c=3, h=2, wd=400, k=5, kh=1, kw=3, ph=0, pw=1)),
    ("direct8", Conv(n=6, c=40, h=8, wd=8, k=30, kh=3, kw=3, ph=1, pw=1)),
    ("direct8", Conv(n=8, c=20, h=8, wd=8, k=30, kh=3, kw=3, ph=1, pw=1)),
    ("direct8", Conv(n=3, c=12, h=6, wd=40, k=9, kh=3, kw=3, ph=1, pw=1)),
    ("direct8", Conv(n=5, c=8, h=4, wd=24, k=8, kh=3, kw=3, g=2, ph=1, pw=1)),
    ("direct8", Conv(n=9, c=6, h=16, wd=16, k=10, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1)),
]
SPARSE_CASES = [
    *(p for _, p in DIRECT_CASES),
    *(p for p in FAST_CASES if p.kh * p.kw <= 256),
    Conv(n=3, c=64, h=8, wd=8, k=150, kh=3, kw=3, ph=1, pw=1),
    Conv(n=1, c=130, h=4, wd=5, k=40, kh=3, kw=3, ph=1, pw=1),
    Conv(n=2, c=32, h=16, wd=16, k=20, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),
    Conv(n=2, c=80, h=8, wd=8, k=40, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),  # blocks of channels
    Conv(n=2, c=16, h=16, wd=16, k=32, sh=2, sw=2, extra_h=-1, extra_w=-1),
    Conv(n=4, c=600, h=2, wd=2, k=8, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),  # more than cursors hold
    Conv(n=2, c=6, h=9, wd=17, k=5, kh=3, kw=3, sh=2, sw=2, dh=2, dw=2, ph=2, pw=2),
    Conv(n=2, c=6, h=9, wd=17, k=5, kh=1, kw=1, sh=2, sw=2, ph=1, pw=1),
]
# Lines that end anywhere in a vector: one image, and two images at once for maps 8 wide.
LINES = [
    *(Conv(n=2, c=3, h=5, wd=wd, k=4, kh=3, kw=3, ph=1, pw=1) for wd in (9, 12, 15, 17, 31, 33)),
    *(Conv(n=n, c=5, h=9 - n, wd=8, k=6, kh=3, kw=3, ph=1, pw=1) for n in (1, 2, 3, 4)),
    Conv(n=1, c=2, h=3, wd=16, k=3, kh=3, kw=3, ph=2, pw=1, extra_h=-1),
    Conv(n=1, c=2, h=4, wd=20, k=3, kh=5, kw=3, ph=4, pw=1),
    Conv(n=2, c=2, h=1, wd=64, k=3, kh=1, kw=3, pw=1),
    Conv(n=2, c=3, h=6, wd=20, k=4, kh=2, kw=2, extra_h=1, extra_w=1),
    Conv(n=2, c=3, h=18, wd=18, k=4, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),
    Conv(n=4, c=3, h=16, wd=16, k=4, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),
    Conv(n=1, c=3, h=22, wd=44, k=4, kh=3, kw=5, sh=2, sw=2, ph=1, pw=2),
    Conv(n=2, c=3, h=21, wd=43, k=4, kh=3, kw=3, sh=1, sw=2, ph=1, pw=1),
]
EACH = pytest.mark.parametrize("p", SPARSE_CASES)
VARIANTS = pytest.mark.parametrize(
    ("variant", "storage"), [("wide", "f32"), ("wide", "f16"), ("narrow", "f32")]
)


@VARIANTS
@EACH
def test_fast_conv_csr_equals_plain_bit_for_bit(p, storage, variant):
    for kind in ("clip", "norm"):
        plain = check_forward(p, storage, kind, "plain", (1,))
        assert check_forward(p, storage, kind, variant, (1, 3, 8)).tobytes() == plain.tobytes()


@pytest.mark.parametrize("kind", ["none", "relu", "affine", "norm"])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", LINES)
def test_lines_that_end_anywhere_give_the_plain_bits(p, storage, kind):
    plain = check_forward(p, storage, kind, "plain", (1,))
    assert check_forward(p, storage, kind, "wide", (1, 3)).tobytes() == plain.tobytes()
    check_dw(p, storage, kind, "wide", (1, 3))
    plain = check_dx(p, storage, 0, "plain", (1,))
    assert check_dx(p, storage, 0, "wide", (1, 3)).tobytes() == plain.tobytes()


@pytest.mark.parametrize("kind", ["none", "norm"])
@VARIANTS
@EACH
def test_fast_conv_csr_dw_equals_naive(p, storage, variant, kind):
    check_dw(p, storage, kind, variant, (1, 3, 8))


@pytest.mark.parametrize("kind", ["none", "norm"])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize(("variant", "p"), DIRECT_CASES)
def test_conv_csr_dw_that_reads_dy_in_place_equals_naive(variant, p, storage, kind):
    check_dw(p, storage, kind, variant, (1, 3, 8))


@VARIANTS
@pytest.mark.parametrize("p", [p for p in SPARSE_CASES if max(p.sh, p.sw) <= 2])
def test_fast_conv_csr_dx_equals_plain_bit_for_bit(p, storage, variant):
    for acc in (0, 1):
        plain = check_dx(p, storage, acc, "plain", (1,))
        assert check_dx(p, storage, acc, variant, (1, 3, 8)).tobytes() == plain.tobytes()


def test_fast_conv_csr_dx_of_many_channels_stays_in_its_scratch():
    check_dx(Conv(n=4, c=2048, h=2, wd=2, k=512), "f32", 0, "wide", (1,))


@given(convolutions(), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_fast_sparse_convolutions_equal_naive_for_any_shape_and_density(p, density):
    check_forward(p, "f32", "norm", "wide", density=density)
    check_dw(p, "f32", "norm", "wide", density=density)
    check_dx(p, "f32", 1, density=density)
