"""A function written once compiles to the same bits for float32 and for vectors."""

import numpy as np
import pytest

from edgetrain.kernels.registry import kernel

from .harness import call

RNG = np.random.default_rng(3)
EDGES = np.array([0, -0.0, 1, -1, 3, -3, 89, -104, 1e-45, -1e-45, 3e38, np.inf, -np.inf, np.nan])
X = np.concatenate(
    [RNG.normal(size=4000) * 4, RNG.normal(size=4000) * 10.0 ** RNG.uniform(-38, 38, 4000), EDGES]
)
X = np.resize(X, -(-X.size // 16) * 16).astype(np.float32)


def _operators():
    from edgetrain.kernels.language.inlining import inline
    from edgetrain.kernels.language.mathf import HALF, ONE, TWO, ZERO, copysign, fabs, sqrt
    from edgetrain.kernels.language.number import fma, where

    @inline
    def operators(x):
        y = (x + ONE) * (ONE - x) / (TWO + x * x) - x
        near = (x > -TWO) & (x <= TWO) | (x == TWO)
        y = where(near, y, -fma(x, HALF, y))
        y = where(~(x >= ZERO), y, where(x != x, x, ONE)) + where(x < ZERO, HALF, sqrt(fabs(x)))
        return copysign(y, x)

    return operators


def _of(name):
    """Return the named function of language/mathf.py, or one of fused_activation.py by its code."""
    from edgetrain.kernels.language import fused_activation, mathf
    from edgetrain.kernels.language.inlining import inline

    if name == "operators":
        return _operators()
    kind, _, code = name.partition(" ")
    if not code:
        return getattr(mathf, name)
    number, function = int(code), getattr(fused_activation, f"act_{kind}")
    lo, hi = np.float32(-0.5), np.float32(2.5)

    def with_code(x):
        return function(number, x, lo, hi)

    return inline(with_code)


MATHS = ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "softplus", "erf", "sqrt", "floor")
NAMES = ("operators", *MATHS, *(f"{kind} {n}" for kind in ("value", "slope") for n in range(7)))


def _register(name: str) -> None:
    own = name.replace(" ", "_")

    @kernel(f"test_number_{own}", "x:r:f32[n] y:w:f32[n] n", variant="vector", when="lanes >= 1")
    def vector():
        from edgetrain.kernels.language.prim import FP32
        from edgetrain.kernels.language.vector import WIDTH, loads, stores

        function, ld, st = _of(name), loads(FP32), stores(FP32)

        def run(thread, nthreads, args):
            for i in range(0, args.n, WIDTH):
                st(args.y, i, function(ld(args.x, i)), WIDTH)

        return run

    @kernel(f"test_number_{own}", "x:r:f32[n] y:w:f32[n] n")
    def number():
        from edgetrain.kernels.language.prim import FP32

        function, ld, st = _of(name), FP32.ld, FP32.st

        def run(thread, nthreads, args):
            for i in range(args.n):
                st(args.y, i, function(ld(args.x, i)))

        return run


for _name in NAMES:
    _register(_name)


@pytest.mark.parametrize("name", NAMES)
def test_a_vector_has_the_bits_of_its_numbers(name: str) -> None:
    own = f"test_number_{name.replace(' ', '_')}"
    one, many = (
        call(own, {}, variant=variant, x=X, y=X.shape, n=X.size)["y"]
        for variant in ("plain", "vector")
    )
    same = (one.view(np.uint32) == many.view(np.uint32)) | (np.isnan(one) & np.isnan(many))
    assert same.all(), X[~same][:5]


def _lanes_of_integers():
    """Return a function of integer lanes and two kinds of masks; results are int32 in 16 lanes."""
    from edgetrain.kernels.language.number import alike, lane, shuffled, to, together, where
    from edgetrain.kernels.language.vector import floats, ints, numbers16, unsigned

    turned, third, real = shuffled(tuple(range(15, -1, -1))), lane(3), to("float32")

    def results(x):
        n = numbers16()
        bits = ints(x) ^ (n << 5)
        low = where(unsigned(bits) < unsigned(n - 8), bits >> 3, -n & 7)
        swapped = turned(low, low)
        last = alike(n, third(swapped)) * (1 + n) | n
        four = together(x0(x), x0(x), x0(x), x0(x))
        return low, swapped, last, ints(real(n) * x0(four)), ints(floats(~bits))

    x0 = lane(0)
    return results


@kernel("test_number_integers", "x:r:f32[n] y:w:f32[5*n] n")
def _integers():
    from edgetrain.kernels.language.inlining import inline
    from edgetrain.kernels.language.prim import FP32
    from edgetrain.kernels.language.vector import WIDTH, floats, loads, stores

    function, ld, st = inline(_lanes_of_integers()), loads(FP32), stores(FP32)

    def run(thread, nthreads, args):
        for i in range(0, args.n, WIDTH):
            a, b, c, d, e = function(ld(args.x, i))
            st(args.y, 5 * i, floats(a), WIDTH)
            st(args.y, 5 * i + 16, floats(b), WIDTH)
            st(args.y, 5 * i + 32, floats(c), WIDTH)
            st(args.y, 5 * i + 48, floats(d), WIDTH)
            st(args.y, 5 * i + 64, floats(e), WIDTH)

    return run


def test_lanes_of_integers_wrap_and_compare_as_their_type_does():
    x = X[:1024]
    y = call("test_number_integers", {}, x=x, y=(5 * x.size,), n=x.size)["y"]
    found = y.view(np.int32).reshape(-1, 5, 16)
    n, rows = np.arange(16, dtype=np.int32), x.reshape(-1, 16)
    bits = rows.view(np.int32) ^ (n << 5)
    low = np.where(bits.view(np.uint32) < (n - 8).view(np.uint32), bits >> 3, -n & 7)
    swapped = low[:, ::-1]
    last = swapped[:, 3:4] * (1 + n) | n
    with np.errstate(all="ignore"):
        scaled = (n.astype(np.float32) * rows[:, :1]).view(np.int32)
    np.testing.assert_array_equal(found[:, 0], low)
    np.testing.assert_array_equal(found[:, 1], swapped)
    np.testing.assert_array_equal(found[:, 2], last)
    same = (found[:, 3] == scaled) | (np.isnan(scaled.view(np.float32)))
    assert same.all()
    np.testing.assert_array_equal(found[:, 4], ~bits)
