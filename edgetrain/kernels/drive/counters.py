"""Counters that end a step, as instructions behind the update: loss scale, when to rewire.

Source of the loss scale: Micikevicius et al. 2018, section 3.2.
"""

from .. import control
from ..registry import kernel
from ..words.prim import ld_f64, ld_i64, mod, st_f64, st_i64

GOOD, BAD = control.GOOD_STEPS, control.BAD_STEPS
LOSS_SCALE, GRAD_NORM = control.LOSS_SCALE, control.GRAD_NORM
STEP, DUE = control.STEP, control.REWIRE_DUE
MAX_SCALE = 2.0**24


@kernel("loss_scale", "ctl:m:i64[64] dynamic interval", check="interval >= 1")
def loss_scale():
    """Halve the scale (to 1 at least) after a gradient that was not finite, double it after
    `interval` finite steps (to 2^24 at most); dynamic 0: it stays, steps are counted all the same.
    """

    def run(thread, nthreads, ctl, dynamic, interval):
        if thread != 0:
            return
        norm, scale = ld_f64(ctl, GRAD_NORM), ld_f64(ctl, LOSS_SCALE)
        good, bad = ld_i64(ctl, GOOD) + 1, 0
        if norm - norm != 0.0:
            good, bad = 0, ld_i64(ctl, BAD) + 1
            scale = max(1.0, scale * 0.5)
        elif dynamic != 0 and good >= interval:
            good, scale = 0, min(MAX_SCALE, scale * 2.0)
        if dynamic != 0:
            st_f64(ctl, LOSS_SCALE, scale)
        st_i64(ctl, GOOD, good)
        st_i64(ctl, BAD, bad)

    return run


@kernel("rewire_due", "ctl:m:i64[64] first after until interval", check="interval >= 1")
def rewire_due():
    """REWIRE_DUE where this step ends after + 1 to `until` minibatches, a multiple of `interval`.

    One instruction for each period of a method; first 1: it is the first and clears the flag.
    """

    def run(thread, nthreads, ctl, first, after, until, interval):
        if thread == 0:
            done = ld_i64(ctl, STEP) + 1
            if first != 0:
                st_i64(ctl, DUE, 0)
            if done > after and done <= until and mod(done, interval) == 0:
                st_i64(ctl, DUE, 1)

    return run
