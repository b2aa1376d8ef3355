"""Fast sparse convolutions against the plain ones: tiles, chunks, tails, strides, threads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .naive_conv import Conv
from .test_conv import FAST_CASES, convolutions
from .test_conv_csr import check_dw, check_dx, check_forward

SPARSE_CASES = [
    *(p for p in FAST_CASES if p.kh * p.kw <= 256),
    Conv(n=3, c=64, h=8, wd=8, k=150, kh=3, kw=3, ph=1, pw=1),
    Conv(n=1, c=130, h=4, wd=5, k=40, kh=3, kw=3, ph=1, pw=1),
    Conv(n=2, c=32, h=16, wd=16, k=20, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1),
    Conv(n=2, c=16, h=16, wd=16, k=32, sh=2, sw=2, extra_h=-1, extra_w=-1),
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


@pytest.mark.parametrize("kind", ["none", "norm"])
@VARIANTS
@EACH
def test_fast_conv_csr_dw_equals_naive(p, storage, variant, kind):
    check_dw(p, storage, kind, variant, (1, 3, 8))


@VARIANTS
@pytest.mark.parametrize("p", [p for p in SPARSE_CASES if max(p.sh, p.sw) <= 2])
def test_fast_conv_csr_dx_equals_plain_bit_for_bit(p, storage, variant):
    for acc in (0, 1):
        plain = check_dx(p, storage, acc, "plain", (1,))
        assert check_dx(p, storage, acc, variant, (1, 3, 8)).tobytes() == plain.tobytes()


@given(convolutions(), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_fast_sparse_convolutions_equal_naive_for_any_shape_and_density(p, density):
    check_forward(p, "f32", "norm", "wide", density=density)
    check_dw(p, "f32", "norm", "wide", density=density)
    check_dx(p, "f32", 1, density=density)
