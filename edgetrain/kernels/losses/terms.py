"""A weighted sum of several losses: the counts of each, and the scales of their gradients.

Each loss is the mean over its own targets; their weighted sum counts once per sample. A loss has
four words of the control block for the sums of its targets; they start from 0 when TARGETS is 0.
The gradient kernel of each loss gets its own control block, whose NOMINAL gives the loss's targets
the weight of the samples: exact if all samples have the same number of targets, or the minibatch is
not split.
"""

import numpy as np

from .. import control
from ..language.inlining import inline
from ..language.prim import FP32, ld_f64, ld_i64, real_to_int, st_f64, st_i64, to_real
from ..registry import kernel
from .sums import CHUNKS, COUNT, LOSS_SCALE, LOSS_SUM, NOMINAL, TARGETS

TERMS, TERM_WORDS = control.TERMS, control.TERM_WORDS
_weight = FP32.ld


@inline
def _divisor(ctl, offset):
    """Divisor of a loss's mean; 0 if no target counted."""
    weights = ld_f64(ctl, offset + 3)
    return weights if weights != 0.0 else to_real(ld_i64(ctl, offset + 1))


@kernel(
    "term_total",
    "partials:r:f64[192+64*weighted] w:r:f32[layers] ctl:m:i64[64] own:w:i64[64] index=size "
    "layers weighted=flag",
    check="index < layers;layers <= 5",
)
def term_total():
    """Add partials of loss `index` of `layers` to its words; own: control block of its gradient.

    w: weights of the losses. Thread 0 does it.
    """

    def run(thread, nthreads, args):
        if thread == 0:
            offset, step = TERMS + TERM_WORDS * args.index, 3 + args.weighted
            total, weights = 0.0, 0.0
            counted, correct = 0.0, 0.0
            for chunk in range(CHUNKS):
                total += ld_f64(args.partials, step * chunk)
                counted += ld_f64(args.partials, step * chunk + 1)
                correct += ld_f64(args.partials, step * chunk + 2)
                if args.weighted != 0:
                    weights += ld_f64(args.partials, step * chunk + 3)
            before = ld_i64(args.ctl, TARGETS)
            if before == 0:
                for word in range(TERM_WORDS):
                    st_i64(args.ctl, offset + word, 0)
            st_f64(args.ctl, offset, ld_f64(args.ctl, offset) + total)
            st_i64(args.ctl, offset + 1, ld_i64(args.ctl, offset + 1) + real_to_int(counted))
            st_i64(args.ctl, offset + 2, ld_i64(args.ctl, offset + 2) + real_to_int(correct))
            st_f64(args.ctl, offset + 3, ld_f64(args.ctl, offset + 3) + weights)
            samples = before + ld_i64(args.ctl, COUNT)
            each, weight = _divisor(args.ctl, offset), np.float64(_weight(args.w, args.index))
            for word in range(64):
                st_i64(args.own, word, 0)
            st_i64(args.own, COUNT, ld_i64(args.ctl, COUNT))
            st_f64(args.own, NOMINAL, 1.0)
            if each != 0.0 and samples > 0:
                st_f64(args.own, LOSS_SCALE, ld_f64(args.ctl, LOSS_SCALE) * weight)
                st_f64(args.own, NOMINAL, ld_f64(args.ctl, NOMINAL) * each / to_real(samples))

    return run


@kernel(
    "terms_total",
    "w:r:f32[layers] ctl:m:i64[64] sum:w:f64[1] layers",
    check="min(layers, 1) == 1;layers <= 5",
)
def terms_total():
    """Set TARGETS to the samples so far, sum [1] to the weighted sum of the means of all `layers`
    losses, and LOSS_SUM to that sum times TARGETS. As long as no loss counted a target, TARGETS
    stays 0. Thread 0 does it."""

    def run(thread, nthreads, args):
        if thread == 0:
            total, counted = 0.0, 0
            for index in range(args.layers):
                offset = TERMS + TERM_WORDS * index
                each = _divisor(args.ctl, offset)
                if each != 0.0:
                    counted = 1
                    total += np.float64(_weight(args.w, index)) * (ld_f64(args.ctl, offset) / each)
            samples = (ld_i64(args.ctl, TARGETS) + ld_i64(args.ctl, COUNT)) * counted
            st_i64(args.ctl, TARGETS, samples)
            st_f64(args.ctl, LOSS_SUM, to_real(samples) * total)
            st_f64(args.sum, 0, total)

    return run
