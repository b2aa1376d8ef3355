"""A rate that drops at chosen steps."""

from .. import control
from ..language.prim import ld_f64, ld_i64, st_f64
from ..registry import kernel

STEP, WARMUP, LR, RATE = control.STEP, control.WARMUP, control.LR, control.RATE


@kernel("rate_drop", "ctl:m:i64[64] at=turns")
def rate_drop():
    """Multiply LR by RATE from step `at` on, except in warm-up; runs after another rate kernel."""

    def run(thread, nthreads, args):
        step = ld_i64(args.ctl, STEP)
        if thread == 0 and step >= args.at and step >= ld_i64(args.ctl, WARMUP):
            st_f64(args.ctl, LR, ld_f64(args.ctl, LR) * ld_f64(args.ctl, RATE))

    return run
