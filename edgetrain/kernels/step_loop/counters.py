"""Counters that end a step, as instructions after the update: loss scale, when to rewire.

Source of the loss scale: Micikevicius et al. 2018, section 3.2.
"""

import numpy as np

from .. import control
from ..language.inlining import inline
from ..language.prim import ld_f64, ld_i64, mod, real_to_int, st_f64, st_i64, to_real
from ..registry import kernel

GOOD, BAD, TARGETS = control.GOOD_STEPS, control.BAD_STEPS, control.TARGETS
LOSS_SCALE, GRAD_NORM = control.LOSS_SCALE, control.GRAD_NORM
STEP, DUE, TOTAL = control.STEP, control.REWIRE_DUE, control.TOTAL_STEPS
MAX_SCALE = 2.0**24
WHOLE = 1_000_000_000  # ends of periods are in billionths of the run


@kernel("loss_scale", "ctl:m:i64[64] dynamic=flag interval=turns", check="interval >= 1")
def loss_scale():
    """Halve the scale (to 1 at least) after a gradient that is not finite, double it after
    `interval` finite steps (to 2^24 at most). With dynamic 0 the scale is fixed, but steps are
    still counted.

    A step without targets moves no weights and says nothing about the scale.
    """

    def run(thread, nthreads, args):
        if thread != 0:
            return
        norm, scale = ld_f64(args.ctl, GRAD_NORM), ld_f64(args.ctl, LOSS_SCALE)
        good, bad = ld_i64(args.ctl, GOOD), ld_i64(args.ctl, BAD) + 1
        if ld_i64(args.ctl, TARGETS) > 0:
            if norm - norm != 0.0:
                good = 0
                scale = max(1.0, scale * 0.5)
            else:
                good, bad = good + 1, 0
                if args.dynamic != 0 and good >= args.interval:
                    good, scale = 0, min(MAX_SCALE, scale * 2.0)
        if args.dynamic != 0:
            st_f64(args.ctl, LOSS_SCALE, scale)
        st_i64(args.ctl, GOOD, good)
        st_i64(args.ctl, BAD, bad)

    return run


@inline
def rounded(x):
    """The integer nearest to x >= 0; ties go to the even one."""
    low = real_to_int(x)
    rest = x - to_real(low)
    if rest > 0.5 or (rest == 0.5 and mod(low, 2) == 1):
        low += 1
    return low


@kernel(
    "rewire_due",
    "ctl:m:i64[64] first=flag after=share until=share interval=turns short=turns "
    "last=share base=turns least=turns often:f",
    check="interval >= 1; base >= 1; short >= 1",
)
def rewire_due():
    """Set REWIRE_DUE if this step ends between `after` and `until` billionths of the run, and its
    number is a multiple of `interval`.

    One instruction for each period of a method. `first` 1: it is the first and clears the flag. In
    runs of fewer than `short` steps, the interval is `base`; if `least` is not 0, it is instead
    base * TOTAL / short / often, at least `least`, and nothing is due after `last` billionths.
    """

    def run(thread, nthreads, args):
        if thread != 0:
            return
        done, total = ld_i64(args.ctl, STEP) + 1, ld_i64(args.ctl, TOTAL)
        if args.first != 0:
            st_i64(args.ctl, DUE, 0)
        every, end = args.interval, args.until
        if total < args.short:
            every = args.base
            if args.least != 0:
                share = to_real(total) / to_real(args.short) / np.float64(args.often)
                every = max(args.least, rounded(to_real(args.base) * share))
                end = min(args.until, args.last)
        if (
            done * WHOLE > args.after * total
            and done * WHOLE <= end * total
            and mod(done, every) == 0
        ):
            st_i64(args.ctl, DUE, 1)

    return run
