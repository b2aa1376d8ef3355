"""A rate that rises once and falls once, both along half a cosine."""

from .. import control
from ..language.inlining import inline
from ..language.prim import ld_f64, ld_i64, to_real
from ..registry import kernel
from .rates import cospi, set_rate

STEP, TOTAL, RATE = control.STEP, control.TOTAL_STEPS, control.RATE


@inline
def between(start, end, done):
    """From start to end along half a cosine; done is in [0, 1]."""
    return end + (start - end) * 0.5 * (1.0 + cospi(min(1.0, max(0.0, done))))


@kernel("rate_one_cycle", "ctl:m:i64[64]")
def rate_one_cycle():
    """factor: from the value at RATE + 1 to 1 over a share (at RATE) of TOTAL_STEPS, then to the
    value at RATE + 2 at the last step.

    Source: Smith and Topin 2018; the steps are those of torch's OneCycleLR.
    """

    def run(thread, nthreads, args):
        if thread == 0:
            step, total = to_real(ld_i64(args.ctl, STEP)), to_real(ld_i64(args.ctl, TOTAL))
            peak = ld_f64(args.ctl, RATE) * total - 1.0
            start, end = ld_f64(args.ctl, RATE + 1), 1.0
            done, length = step, peak
            if step > peak:
                start, end = 1.0, ld_f64(args.ctl, RATE + 2)
                done, length = step - peak, total - 1.0 - peak
            set_rate(args.ctl, between(start, end, done / max(length, 1e-300)))

    return run
