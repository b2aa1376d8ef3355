"""Shared by losses: the sums of their chunks, and the counters that they add to.

A loss is a sum in 64 fixed chunks of positions, so it does not depend on the number of threads.
partials: float64[3 * 64], for each chunk the sum of losses, the targets counted, the correct
predictions. Samples from ctl COUNT on are masked: they count nothing and get no gradient. Each
sample has `rows` positions.
"""

import numpy as np

from .. import control
from ..language.inlining import inline
from ..language.prim import ld_f64, ld_i64, real_to_int, st_f64, st_i64
from ..registry import kernel

CHUNKS, COUNT = control.PARTIALS, control.COUNT
LOSS_SUM, TARGETS, CORRECT = control.LOSS_SUM, control.TARGETS, control.CORRECT
LOSS_SCALE, NOMINAL, WEIGHT = control.LOSS_SCALE, control.NOMINAL, control.WEIGHT


@inline
def gradient_scale(ctl):
    """float32 factor for gradients of a sum of losses."""
    return np.float32(ld_f64(ctl, LOSS_SCALE) / ld_f64(ctl, NOMINAL))


@inline
def put_chunk(partials, chunk, total, counted, correct):
    """Store the three sums of a chunk."""
    st_f64(partials, 3 * chunk, total)
    st_f64(partials, 3 * chunk + 1, counted)
    st_f64(partials, 3 * chunk + 2, correct)


@inline
def put_weighted(partials, chunk, total, counted, correct, weights):
    """Store the four sums of a chunk with weighted targets."""
    st_f64(partials, 4 * chunk, total)
    st_f64(partials, 4 * chunk + 1, counted)
    st_f64(partials, 4 * chunk + 2, correct)
    st_f64(partials, 4 * chunk + 3, weights)


@kernel("loss_total", "partials:r:f64[192] ctl:m:i64[64]")
def loss_total():
    """Add a loss's partials, in order, to LOSS_SUM, TARGETS and CORRECT. Thread 0 does it."""

    def run(thread, nthreads, args):
        if thread == 0:
            total = counted = correct = 0.0
            for chunk in range(CHUNKS):
                total += ld_f64(args.partials, 3 * chunk)
                counted += ld_f64(args.partials, 3 * chunk + 1)
                correct += ld_f64(args.partials, 3 * chunk + 2)
            st_f64(args.ctl, LOSS_SUM, ld_f64(args.ctl, LOSS_SUM) + total)
            st_i64(args.ctl, TARGETS, ld_i64(args.ctl, TARGETS) + real_to_int(counted))
            st_i64(args.ctl, CORRECT, ld_i64(args.ctl, CORRECT) + real_to_int(correct))

    return run


@kernel("counters_reset", "ctl:m:i64[64]")
def counters_reset():
    """Set LOSS_SUM, TARGETS and CORRECT to 0. Thread 0 does it."""

    def run(thread, nthreads, args):
        if thread == 0:
            st_f64(args.ctl, LOSS_SUM, 0.0)
            st_i64(args.ctl, TARGETS, 0)
            st_i64(args.ctl, CORRECT, 0)

    return run


@kernel("weighted_total", "partials:r:f64[256] ctl:m:i64[64]")
def weighted_total():
    """Like loss_total, with four sums per chunk: the last one is added to WEIGHT."""

    def run(thread, nthreads, args):
        if thread == 0:
            total = counted = correct = weights = 0.0
            for chunk in range(CHUNKS):
                total += ld_f64(args.partials, 4 * chunk)
                counted += ld_f64(args.partials, 4 * chunk + 1)
                correct += ld_f64(args.partials, 4 * chunk + 2)
                weights += ld_f64(args.partials, 4 * chunk + 3)
            st_f64(args.ctl, LOSS_SUM, ld_f64(args.ctl, LOSS_SUM) + total)
            st_i64(args.ctl, TARGETS, ld_i64(args.ctl, TARGETS) + real_to_int(counted))
            st_i64(args.ctl, CORRECT, ld_i64(args.ctl, CORRECT) + real_to_int(correct))
            st_f64(args.ctl, WEIGHT, ld_f64(args.ctl, WEIGHT) + weights)

    return run
