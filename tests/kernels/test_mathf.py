"""Our float32 functions compared with numpy and scipy in float64: maximum error in ulp."""

import numpy as np
import pytest
from scipy import special

from edgetrain.kernels.registry import kernel

from .harness import call

RNG = np.random.default_rng(5)
EDGES = np.array([0, -0.0, 1, -1, 1e-45, -1e-45, 1e-38, 3e38, -3e38, np.inf, -np.inf, np.nan])
WIDE = np.concatenate([RNG.normal(size=20000) * 10.0 ** RNG.uniform(-30, 30, 20000), EDGES])
NEAR = np.concatenate([RNG.uniform(-110, 110, 40000), RNG.normal(size=40000), EDGES])
POSITIVE = np.concatenate([np.abs(WIDE), RNG.uniform(0.4, 2.2, 40000), EDGES])
ANGLES = np.concatenate([NEAR[~(np.abs(NEAR) > 1e9)], [np.inf], RNG.uniform(-1e9, 1e9, 20000)])


def _softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


# name: numpy function, arguments, maximum error in ulp
CASES = {
    "exp": (np.exp, NEAR, 1.0),
    "expm1": (np.expm1, NEAR, 3.0),
    "log": (np.log, POSITIVE, 1.0),
    "log1p": (np.log1p, POSITIVE, 3.0),
    "tanh": (np.tanh, NEAR, 2.0),
    "sigmoid": (_sigmoid, NEAR, 3.0),
    "atan": (np.arctan, NEAR, 3.0),
    "softplus": (_softplus, NEAR, 3.0),
    "erf": (special.erf, NEAR, 2.0),
    "sin": (np.sin, ANGLES, 2.0),
    "cos": (np.cos, ANGLES, 2.0),
}


def _register(name):
    @kernel(f"test_mathf_{name}", "x:r:f32[n] y:w:f32[n] n")
    def factory():
        from edgetrain.kernels.language import mathf
        from edgetrain.kernels.language.prim import FP32

        function, ld, st = getattr(mathf, name), FP32.ld, FP32.st

        def run(thread, nthreads, args):
            for i in range(args.n):
                st(args.y, i, function(ld(args.x, i)))

        return run


for _name in CASES:
    _register(_name)


@kernel("test_mathf_power", "x:r:f32[n] y:r:f32[n] z:w:f32[n] n")
def _power():
    from edgetrain.kernels.language.power import power
    from edgetrain.kernels.language.prim import FP32

    ld, st = FP32.ld, FP32.st

    def run(thread, nthreads, args):
        for i in range(args.n):
            st(args.z, i, power(ld(args.x, i), ld(args.y, i)))

    return run


def _ulps(found, exact):
    """Distance in float32 ulps at `exact`; 0 if both overflow."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        ulp = np.spacing(np.abs(rounded)).astype(np.float64)
        error = np.abs(found.astype(np.float64) - exact) / ulp
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(same, 0, np.where(np.isnan(error), np.inf, error))


@pytest.mark.parametrize("name", CASES)
def test_mathf_function_is_within_its_ulps(name):
    reference, x, bound = CASES[name]
    x = x.astype(np.float32)
    found = call(f"test_mathf_{name}", x=x, y=x.shape, n=x.size)["y"]
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    error = _ulps(found, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (x[worst], found[worst], exact[worst], error[worst])


def test_power_is_within_one_ulp_and_has_the_special_cases_of_c():
    ends = np.array([0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, 1e30, -1e30, np.inf, -np.inf, np.nan])
    x, y = (part.ravel() for part in np.meshgrid(ends, ends))
    x = np.concatenate([x, np.abs(RNG.normal(size=40000)) * 10.0 ** RNG.uniform(-5, 5, 40000)])
    y = np.concatenate([y, RNG.normal(size=40000) * 8])
    x, y = x.astype(np.float32), y.astype(np.float32)
    found = call("test_mathf_power", x=x, y=y, z=x.shape, n=x.size)["z"]
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    error = _ulps(found, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= 1, (x[worst], y[worst], found[worst], exact[worst])
