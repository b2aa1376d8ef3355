"""The model's own output as the loss."""

import numpy as np

from .. import control
from ..loss import gradient_scale, put_chunk
from ..registry import kernel
from ..words.prim import div, ld_i64, to_float, to_real

ZERO = np.float32(0)
CHUNKS, COUNT = control.PARTIALS, control.COUNT


@kernel(
    "output_loss",
    "x:r:S[n] t:r:f32[n] partials:w:f64[192] ctl:r:i64[64] n rows",
    check="min(n, rows) >= 1",
)
def output_loss(S):
    """x [n]: losses, `rows` of each sample; or n = 1, the mean over all samples. t is not read.

    A single mean stands for COUNT samples.
    """
    ld = S.ld

    def run(thread, nthreads, x, t, partials, ctl, n, rows):
        count = ld_i64(ctl, COUNT)
        valid, each = min(n, count * rows), to_real(count) if n == 1 else 1.0
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            total = counted = 0.0
            for i in range(div(n * chunk, CHUNKS), min(div(n * (chunk + 1), CHUNKS), valid)):
                total += np.float64(ld(x, i)) * each
                counted += each
            put_chunk(partials, chunk, total, counted, 0.0)

    return run


@kernel(
    "output_bwd",
    "x:r:S[n] t:r:f32[n] dx:m:S[n] ctl:r:i64[64] n rows acc",
    check="min(n, rows) >= 1",
)
def output_bwd(S):
    """LOSS_SCALE / NOMINAL, times COUNT for a single mean; 0 where masked. acc 1: added to dx."""
    ld, st = S.ld, S.st

    def run(thread, nthreads, x, t, dx, ctl, n, rows, acc):
        count, scale = ld_i64(ctl, COUNT), gradient_scale(ctl)
        valid, scale = min(n, count * rows), scale * to_float(count) if n == 1 else scale
        for i in range(div(n * thread, nthreads), div(n * (thread + 1), nthreads)):
            d = scale if i < valid else ZERO
            st(dx, i, d + ld(dx, i) if acc != 0 else d)

    return run
