"""The update of a weight right after its gradient, within the tape of a microbatch.

The norm of all gradients, which the usual update (compiler/tapes/update.py) uses, is known too late
here: a step continues until a gradient is not finite; then no further weight changes, and whoever
runs the tape restores an earlier state. Multipliers are those of `grad_finish`, for one microbatch,
without clipping.
"""

import numpy as np

from .. import control
from ..language.block import first as part
from ..language.divisor import divisor
from ..language.inlining import inline
from ..language.mathf import sqrt
from ..language.prim import ld_f64, ld_i64, st_f64, st_i64
from ..registry import kernel
from .frame import zeroing

CHUNKS = control.PARTIALS


@kernel("grad_clear", "g:w:G[n] n", check="n > 0", blocks="G")
def grad_clear(G):
    """Zero g [n], to which gradients are added; threads split blocks of 64."""
    zero = zeroing(G)

    def run(thread, nthreads, args):
        zero(args.g, part(args.n, thread, nthreads), part(args.n, thread + 1, nthreads))

    return run


@inline
def multiplier(ctl):
    """Factor that turns a gradient into the mean over the targets."""
    return ld_f64(ctl, control.NOMINAL) / (divisor(ctl) * ld_f64(ctl, control.LOSS_SCALE))


@kernel("fused_begin", "ctl:m:i64[64] c1:f c2:f")
def fused_begin():
    """After the loss: set SKIP if nothing was counted, otherwise advance ADAM_T, BIAS1 and BIAS2,
    before the first gradient. c1, c2 are 1 - beta. From here on GRAD_NORM accumulates squares."""

    def run(thread, nthreads, args):
        if thread == 0:
            counted = ld_i64(args.ctl, control.TARGETS) > 0
            st_i64(args.ctl, control.SKIP, 0 if counted else 1)
            st_f64(args.ctl, control.GRAD_FACTOR, multiplier(args.ctl))
            st_f64(args.ctl, control.GRAD_NORM, 0.0)
            if counted:
                st_i64(args.ctl, control.ADAM_T, ld_i64(args.ctl, control.ADAM_T) + 1)
                first, two = ld_f64(args.ctl, control.BIAS1), ld_f64(args.ctl, control.BIAS2)
                st_f64(args.ctl, control.BIAS1, first + np.float64(args.c1) * (1.0 - first))
                st_f64(args.ctl, control.BIAS2, two + np.float64(args.c2) * (1.0 - two))

    return run


@kernel("fused_check", "partials:r:f64[64] ctl:m:i64[64]")
def fused_check():
    """Add the sums of a gradient's squares to GRAD_NORM; set SKIP if they are not finite."""

    def run(thread, nthreads, args):
        if thread == 0:
            total = 0.0
            for chunk in range(CHUNKS):
                total += ld_f64(args.partials, chunk)
            st_f64(args.ctl, control.GRAD_NORM, ld_f64(args.ctl, control.GRAD_NORM) + total)
            if total - total != 0.0:
                st_i64(args.ctl, control.SKIP, 1)

    return run


@kernel("fused_sums", "partials:w:f64[64]")
def fused_sums():
    """Set 64 partial sums to 0, for `stat_check`."""

    def run(thread, nthreads, args):
        if thread == 0:
            for chunk in range(CHUNKS):
                st_f64(args.partials, chunk, 0.0)

    return run


@kernel("fused_finish", "partials:r:f64[64] ctl:m:i64[64]")
def fused_finish():
    """Compute GRAD_NORM, the norm of the mean gradient, from the squares; set SKIP if it or a
    staged statistic (`partials`) is not finite. The norm is accumulated in the order of updates."""

    def run(thread, nthreads, args):
        if thread == 0:
            total = ld_f64(args.ctl, control.GRAD_NORM)
            for chunk in range(CHUNKS):
                total += ld_f64(args.partials, chunk)
            norm = sqrt(total) * multiplier(args.ctl)
            st_f64(args.ctl, control.GRAD_NORM, norm)
            if norm - norm != 0.0:
                st_i64(args.ctl, control.SKIP, 1)

    return run
