"""Loads, stores and conversions compared with numpy; bits and mean of stochastic rounding."""

import numpy as np
import pytest

from edgetrain.kernels.language.prim import STORAGES

from . import naive_rng
from .harness import call, declared


def _copier(X, Y):
    ld, st = X.ld, Y.st

    def run(thread, nthreads, args):
        for i in range(args.n):
            st(args.y, i, ld(args.x, i))

    return run


def _rounder(X, Y):
    from edgetrain.kernels.language.prim import u32

    ld, sr = X.ld, Y.sr

    def run(thread, nthreads, args):
        for i in range(args.n):
            sr(args.y, i, ld(args.x, i), u32(args.key))

    return run


def _upper(X, Y):
    from edgetrain.kernels.language.prim import u32

    ld, sr = X.ld, Y.sr_upper

    def run(thread, nthreads, args):
        for i in range(args.n):
            sr(args.y, i, ld(args.x, i), u32(args.key))

    return run


def _words():
    from edgetrain.kernels.language.number import fma
    from edgetrain.kernels.language.prim import (
        bits_float,
        div,
        float_bits,
        mod,
        real_to_int,
        st_f64,
        st_i64,
        to_float,
        to_int,
        to_real,
    )

    def run(thread, nthreads, args):
        st_i64(args.i, 0, div(args.a, args.b))
        st_i64(args.i, 1, mod(args.a, args.b))
        st_i64(args.i, 2, to_int(args.x))
        st_i64(args.i, 3, real_to_int(np.float64(args.y)))
        st_i64(args.i, 4, float_bits(args.x))
        st_f64(args.f, 0, to_float(args.a))
        st_f64(args.f, 1, to_real(args.a))
        st_f64(args.f, 2, bits_float(float_bits(args.x)))
        st_f64(args.f, 3, fma(args.x, args.x, args.y))
        st_f64(args.f, 4, fma(np.float64(args.x), np.float64(args.x), np.float64(args.y)))

    return run


COPY = declared("copies", "x:r:X[n] y:w:Y[n] n", _copier)
ROUND = declared("rounds", "x:r:X[n] y:w:Y[n] n key", _rounder)
UPPER = declared("rounds_upper", "x:r:X[n] y:w:Y[n] n key", _upper)
WORDS = declared("words", "i:w:i64[5] f:w:f64[5] a=compared b=compared x:f y:f", _words)
PATTERNS = np.arange(65536, dtype=np.uint16).view(np.float16)


def copied(x, to: str, dtype) -> np.ndarray:
    kind = {"float16": "f16", "float32": "f32"}.get(x.dtype.name) or (
        x.dtype.name.replace("uint", "u").replace("int", "i")
    )
    return call(COPY, {"X": kind, "Y": to}, x=x, y=np.empty(x.shape, dtype), n=x.size)["y"]


def rounded(x, key=1, kernel=ROUND) -> np.ndarray:
    return call(kernel, {"X": "f32", "Y": "f16"}, x=x, y=x.shape, n=x.size, key=key)["y"]


def floats(rng, count=100_000) -> np.ndarray:
    """Draw float32 patterns of every exponent, plus special values."""
    random = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    near = (rng.standard_normal(count) * 2.0 ** rng.integers(-30, 20, count)).astype(np.float32)
    edges = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 65536, 2**-24])
    edges = np.concatenate([edges, -edges, edges / 2, np.float32([2**-25, 2**-14, 6.0e-5])])
    return np.concatenate([random, near, edges.astype(np.float32)])


def assert_same(found, expected):
    """Assert equal bits; all NaNs count as equal."""
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(found[kept], expected[kept])
    np.testing.assert_array_equal(np.signbit(found[kept]), np.signbit(expected[kept]))


def test_load_f16_equals_numpy_for_all_patterns():
    with np.errstate(invalid="ignore"):  # signalling NaN
        expected = PATTERNS.astype(np.float32)
    assert_same(copied(PATTERNS, "f32", np.float32), expected)


def test_store_f16_gives_back_every_pattern():
    assert_same(copied(PATTERNS, "f16", np.float16), PATTERNS)


def test_store_f16_rounds_to_nearest_as_numpy(rng):
    x = floats(rng)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        assert_same(copied(x, "f16", np.float16), x.astype(np.float16))


@pytest.mark.parametrize("kind", ["i64", "i32", "u16", "u8"])
def test_integer_storages_keep_their_values(rng, kind):
    dtype = np.dtype(kind[0].replace("i", "int").replace("u", "uint") + kind[1:])
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, 100, dtype, endpoint=True)
    np.testing.assert_array_equal(copied(x, kind, dtype), x)
    np.testing.assert_array_equal(copied(x, "i64", np.int64), x.astype(np.int64))
    assert STORAGES[kind].nbytes == dtype.itemsize


def test_stochastic_rounding_leaves_what_fp16_has(rng):
    with np.errstate(invalid="ignore"):
        x = PATTERNS.astype(np.float32)
    for key in range(3):
        assert_same(rounded(x, key), PATTERNS)


@pytest.mark.parametrize("exponents", [(-14, 15), (-24, -14), (-28, -24)])
def test_stochastic_rounding_is_unbiased(rng, exponents):
    draws, count = 200_000, 24
    size = 2.0 ** rng.uniform(*exponents, count) * rng.choice([-1, 1], count)
    values = size.astype(np.float32)
    errors = []
    for key, value in enumerate(values):
        x = np.full(draws, value)
        out = rounded(x, key * 7919).astype(np.float64)
        step = np.ptp(out)
        deviation = out.std() / np.sqrt(draws)
        # the random number has 13 bits: the mean may be off by its resolution
        resolution = step * 2.0**-13
        bias = abs(out.mean() - np.float64(value))
        errors.append(max(0.0, bias - resolution) / deviation if step else 0.0)
        assert step > 0 or np.float16(value) == value
    assert max(errors) < 4.5


@pytest.mark.parametrize("kernel", [ROUND, UPPER], ids=["lower bits", "upper bits"])
@pytest.mark.parametrize(
    "value",
    [2e-8, 5.9e-8, 7e-7, 1.234e-6, 3e-5, 6.1035e-5, 6.1036e-5, -0.0312501, 1.0003, 2047.3, 65504],
)
def test_four_million_roundings_have_the_number_as_their_mean(value, kernel):
    keys, draws, value = (1, 2, 3, 17), 1 << 20, np.float32(value)
    found = [rounded(np.full(draws, value), key, kernel).astype(np.float64) for key in keys]
    out = np.concatenate(found)
    bias = abs(out.mean() - np.float64(value))
    assert bias <= 3 * out.std() / out.size**0.5  # exact if fp16 represents the number


@pytest.mark.parametrize("kernel", [ROUND, UPPER], ids=["lower bits", "upper bits"])
def test_halves_of_a_random_number_round_by_their_own_bits(rng, kernel):
    x = floats(rng)
    random = naive_rng.hash32(1, np.arange(x.size)) >> (19 if kernel is UPPER else 0)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = naive_rng.stochastic_f16(x, random)
    assert_same(rounded(x, 1, kernel), expected)


def test_stochastic_rounding_overflows_to_infinity():
    x = np.float32([65536, 1e38, np.inf, -65536, -1e38, -np.inf])
    np.testing.assert_array_equal(rounded(x), np.inf * np.sign(x).astype(np.float16))


def test_stochastic_rounding_of_f32_keeps_every_bit(rng):
    x = floats(rng)
    found = call(ROUND, {"X": "f32", "Y": "f32"}, x=x, y=x.shape, n=x.size, key=5)["y"]
    assert_same(found, x)


def test_words_equal_python():
    x, y = np.float32(1.0000001), np.float32(-1.0)
    out = call(WORDS, i=(5,), f=(5,), a=1_000_003, b=17, x=float(x), y=float(y))
    bits = int(x.view(np.uint32))
    np.testing.assert_array_equal(out["i"], [58823, 12, 1, -1, bits])
    exact = np.float64(x) * np.float64(x) - 1.0
    expected = [1000003.0, 1000003.0, x, np.float32(exact), exact]
    np.testing.assert_array_equal(out["f"], expected)
