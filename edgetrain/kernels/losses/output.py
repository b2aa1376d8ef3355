"""The model's own output as the loss."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO
from ..language.prim import div, ld_i64, to_float, to_real
from ..registry import kernel
from .elementwise import weighted
from .sums import CHUNKS, COUNT, gradient_scale, put_chunk


@kernel(
    "output_loss",
    "x:r:S[n] t:r:f32[n] partials:w:f64[192] ctl:r:i64[64] n rows",
    check="min(n, rows) >= 1",
)
def output_loss(S):
    """x [n]: losses, `rows` per sample; or n = 1, the mean over all samples. t is not read.

    A single mean counts as COUNT samples.
    """
    ld = S.ld

    def run(thread, nthreads, args):
        count = ld_i64(args.ctl, COUNT)
        valid, each = min(args.n, count * args.rows), to_real(count) if args.n == 1 else 1.0
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            total = counted = 0.0
            for i in range(
                div(args.n * chunk, CHUNKS), min(div(args.n * (chunk + 1), CHUNKS), valid)
            ):
                total += np.float64(ld(args.x, i)) * each
                counted += each
            put_chunk(args.partials, chunk, total, counted, 0.0)

    return run


@kernel(
    "output_bwd",
    "x:r:S[n] t:r:f32[n] dx:m:S[n] ctl:r:i64[64] n rows acc=flag",
    check="min(n, rows) >= 1",
)
def output_bwd(S):
    """LOSS_SCALE / NOMINAL, times COUNT for a single mean; 0 where masked. acc 1: added to dx."""
    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        count, scale = ld_i64(args.ctl, COUNT), gradient_scale(args.ctl)
        valid = min(args.n, count * args.rows)
        scale = scale * to_float(count) if args.n == 1 else scale
        for i in range(div(args.n * thread, nthreads), div(args.n * (thread + 1), nthreads)):
            d = scale if i < valid else ZERO
            st(args.dx, i, d + ld(args.dx, i) if args.acc != 0 else d)

    return run


@inline
def _itself(x, t, _):
    return x


@inline
def _one(x, t, _):
    return ONE


weighted("output", "What the model gives", _itself, _one)
