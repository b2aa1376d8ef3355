"""Sets a parameter's own learning rate, a multiple of the run's, around its update."""

import numpy as np

from .. import control
from ..language.prim import ld_f64, st_f64
from ..registry import kernel


@kernel("group_begin", "ctl:m:i64[64] high:f low:f")
def group_begin():
    """Save LR in RUN_LR, then LR *= high + low, which together have the digits of a float64."""

    def run(thread, nthreads, args):
        if thread == 0:
            rate = ld_f64(args.ctl, control.LR)
            st_f64(args.ctl, control.RUN_LR, rate)
            st_f64(args.ctl, control.LR, rate * (np.float64(args.high) + np.float64(args.low)))

    return run


@kernel("group_end", "ctl:m:i64[64]")
def group_end():
    """LR = RUN_LR."""

    def run(thread, nthreads, args):
        if thread == 0:
            st_f64(args.ctl, control.LR, ld_f64(args.ctl, control.RUN_LR))

    return run
