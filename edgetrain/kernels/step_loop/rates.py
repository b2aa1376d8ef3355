"""The learning rate of a step: LR = BASE_LR * factor(STEP), one kernel for each schedule.

They run before a minibatch, as the only instruction of the `rate` tape. In the first WARMUP steps
the factor rises linearly. Parameters that are not integers are in ctl RATE, RATE + 1, ... as
float64. Arithmetic is in float64 without libm.
"""

from .. import control
from ..language.inlining import inline
from ..language.prim import div, ld_f64, ld_i64, st_f64, to_real
from ..registry import kernel

STEP, WARMUP, TOTAL = control.STEP, control.WARMUP, control.TOTAL_STEPS
BASE_LR, LR, RATE = control.BASE_LR, control.LR, control.RATE
PI = 3.141592653589793
# sin(x) / x in powers of x^2, highest first: Taylor; relative error < 1e-18 for |x| <= pi / 2.
_S10, _S9, _S8 = 1.957294106339126e-20, -8.220635246624329e-18, 2.8114572543455206e-15
_S7, _S6, _S5 = -7.647163731819816e-13, 1.6059043836821613e-10, -2.505210838544172e-8
_S4, _S3, _S2, _S1 = 2.7557319223985893e-6, -1.984126984126984e-4, 1 / 120, -1 / 6


@inline
def cospi(t):
    """cos(pi * t) for t in [0, 1]; error at most 4e-16."""
    x = PI * (0.5 - t)
    z = x * x
    p = _S10 * z + _S9
    p = p * z + _S8
    p = p * z + _S7
    p = p * z + _S6
    p = p * z + _S5
    p = p * z + _S4
    p = p * z + _S3
    p = p * z + _S2
    p = p * z + _S1
    return x + x * z * p


@inline
def power(base, exponent):
    """base ** exponent for an integer exponent >= 0; relative error below exponent * 2.3e-16."""
    out = 1.0
    while exponent > 0:
        if exponent & 1:
            out *= base
        base *= base
        exponent >>= 1
    return out


@inline
def set_rate(ctl, factor):
    """Set LR of this step, including warm-up."""
    step, warmup = ld_i64(ctl, STEP), ld_i64(ctl, WARMUP)
    if step < warmup:
        factor = to_real(step + 1) / to_real(warmup)
    st_f64(ctl, LR, ld_f64(ctl, BASE_LR) * factor)


@kernel("rate_constant", "ctl:m:i64[64]")
def rate_constant():
    """factor: 1."""

    def run(thread, nthreads, args):
        if thread == 0:
            set_rate(args.ctl, 1.0)

    return run


@kernel("rate_step", "ctl:m:i64[64] size", check="size >= 1")
def rate_step():
    """factor: RATE ** (STEP // size)."""

    def run(thread, nthreads, args):
        if thread == 0:
            set_rate(
                args.ctl, power(ld_f64(args.ctl, RATE), div(ld_i64(args.ctl, STEP), args.size))
            )

    return run


@kernel("rate_cosine", "ctl:m:i64[64]")
def rate_cosine():
    """factor: from 1 after warm-up to 0 at TOTAL_STEPS. Source: Loshchilov and Hutter 2017."""

    def run(thread, nthreads, args):
        if thread == 0:
            warmup = ld_i64(args.ctl, WARMUP)
            span = max(1, ld_i64(args.ctl, TOTAL) - warmup)
            done = to_real(max(0, ld_i64(args.ctl, STEP) - warmup)) / to_real(span)
            set_rate(args.ctl, 0.5 * (1.0 + cospi(min(1.0, done))))

    return run
