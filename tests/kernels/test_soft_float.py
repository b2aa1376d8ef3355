"""Software float64 compared bit by bit with this machine's unit."""

import ctypes
import fractions
import math

import numpy as np
import pytest

from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.load import load
from edgetrain.kernels.emission import soft_float
from edgetrain.kernels.emission import text as emit_text

ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 1.5, 3.0, 2.0**-1022, 2.0**-1074, -(2.0**-1074), 1.7976931348623157e308,
    math.inf, -math.inf, math.nan, 2.0**53, 2.0**53 - 1, 1 + 2.0**-52, 2.0**-1023, 0.1, 1 / 3,
]  # fmt: skip


def operands(count: int, seed: int = 0) -> np.ndarray:
    """Draw numbers of all sizes, near each other and far apart, plus special values."""
    rng = np.random.default_rng(seed)
    any_bits = rng.integers(0, 2**64, count, np.uint64).view(np.float64)
    near = rng.standard_normal(count) * 2.0 ** rng.integers(-4, 4, count)
    sparse = np.float64(rng.integers(-(2**20), 2**20, count)) * 2.0 ** rng.integers(-40, 40, count)
    tiny = rng.integers(0, 2**53, count, np.uint64).view(np.float64)
    return np.concatenate([np.repeat(SPECIAL, 20), any_bits, near, sparse, tiny])


def computed(name: str, *columns: np.ndarray) -> np.ndarray:
    """Return the function's result bits for each row."""
    build, count = soft_float.FUNCTIONS[name]
    symbol = f"et_soft_{name}"
    kinds, here = "i" * (count + 1), [jit.host()]
    made = load({symbol: lambda: jit.objects_for(symbol, build, kinds, here, "soft_float")[0]})
    address = made[symbol]
    out, args = np.zeros(1, np.int64), np.zeros(count + 1, np.int64)
    args[0] = out.ctypes.data
    run, found = ENTRY(address), []
    for row in zip(*(c.view(np.int64) for c in columns), strict=True):
        args[1:] = row
        run(0, args.ctypes.data, 0, 1)
        found.append(out[0])
    return np.array(found, np.int64)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Assert equal bits; all NaNs count as equal."""
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    numbers = ~np.isnan(expected)
    kind = np.int64 if expected.dtype == np.float64 else np.int32
    np.testing.assert_array_equal(found[numbers].view(kind), expected[numbers].view(kind))


@pytest.mark.parametrize("name", ["add", "mul", "div"])
def test_arithmetic_has_the_bits_of_the_unit(name):
    a, b = operands(2000), operands(2000, 1)
    b = np.concatenate([np.random.default_rng(2).permutation(b), np.nextafter(a, 1), -a])
    a = np.concatenate([a, a, a])
    with np.errstate(all="ignore"):
        expected = {"add": np.add, "mul": np.multiply, "div": np.divide}[name](a, b)
    assert_same(computed(name, a, b).view(np.float64), expected)


def test_roots_have_the_bits_of_the_unit():
    a = operands(3000)
    with np.errstate(all="ignore"):
        assert_same(computed("sqrt", a).view(np.float64), np.sqrt(a))


def test_a_comparison_gives_the_order():
    a, b = operands(2000), operands(2000, 1)
    a, b = np.concatenate([a, a]), np.concatenate([b, a])
    expected = np.where(np.isnan(a) | np.isnan(b), 2, np.sign(np.where(a < b, -1, a > b)))
    np.testing.assert_array_equal(computed("compare", a, b), expected)


def test_conversions_have_the_bits_of_the_unit():
    a = operands(3000)
    with np.errstate(all="ignore"):
        narrow = a.astype(np.float32)
    assert_same(computed("to_f32", a).astype(np.uint32).view(np.float32), narrow)
    words = np.random.default_rng(3).integers(0, 2**32, 9000, np.uint32)
    with np.errstate(all="ignore"):
        wide = words.view(np.float32).astype(np.float64)
    assert_same(computed("from_f32", words.astype(np.int64)).view(np.float64), wide)
    whole = np.random.default_rng(4).integers(-(2**63), 2**63 - 1, 4000, np.int64)
    whole >>= np.random.default_rng(5).integers(0, 63, 4000)
    assert_same(computed("from_integer", whole).view(np.float64), whole.astype(np.float64))
    fitting = a[np.abs(a) < 2.0**62]
    np.testing.assert_array_equal(computed("to_integer", fitting), fitting.astype(np.int64))


def test_a_fused_product_is_rounded_once():
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal(3000), rng.standard_normal(3000)
    c = np.where(rng.random(3000) < 0.5, -a * b, rng.standard_normal(3000))
    c *= 2.0 ** rng.integers(-70, 70, 3000) ** (rng.random(3000) < 0.5)
    exact = [
        float(fractions.Fraction(x) * fractions.Fraction(y) + fractions.Fraction(z))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert_same(computed("fma", a, b, c).view(np.float64), np.array(exact))


def test_the_text_of_every_function_calls_nothing():
    for name, (build, count) in soft_float.FUNCTIONS.items():
        text = emit_text.text_of(f"soft_{name}", build, "i" * (count + 1), 32, "soft_float")
        assert "declare" not in text.replace("declare i64 @llvm", ""), name
