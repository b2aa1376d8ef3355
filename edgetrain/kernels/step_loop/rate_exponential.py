"""A rate that changes by the same factor at each step."""

from .. import control
from ..language.prim import ld_f64, ld_i64
from ..registry import kernel
from .rates import power, set_rate

STEP, RATE = control.STEP, control.RATE


@kernel("rate_exponential", "ctl:m:i64[64]")
def rate_exponential():
    """factor: RATE ** STEP."""

    def run(thread, nthreads, args):
        if thread == 0:
            set_rate(args.ctl, power(ld_f64(args.ctl, RATE), ld_i64(args.ctl, STEP)))

    return run
