"""A rate that falls with the inverse square root of the step."""

from .. import control
from ..language.mathf import sqrt
from ..language.prim import ld_i64, to_real
from ..registry import kernel
from .rates import set_rate

STEP, WARMUP = control.STEP, control.WARMUP


@kernel("rate_inverse_sqrt", "ctl:m:i64[64] scale=turns", check="scale >= 1")
def rate_inverse_sqrt():
    """factor: sqrt(scale / (scale + STEP - WARMUP)), so 1 after warm-up and 1 / 2 after another 3 *
    scale steps."""

    def run(thread, nthreads, args):
        if thread == 0:
            done = to_real(args.scale + max(0, ld_i64(args.ctl, STEP) - ld_i64(args.ctl, WARMUP)))
            set_rate(args.ctl, sqrt(to_real(args.scale) / done))

    return run
