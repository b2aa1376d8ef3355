"""The norm of all gradients, and what follows from it for an update: skipped, clipped, counted."""

import numpy as np

from .. import control
from ..language.divisor import divisor
from ..language.inlining import inline
from ..language.mathf import sqrt
from ..language.prim import div, ld_f64, ld_i64, mod, st_f64, st_i64
from ..registry import kernel

ZERO = np.float32(0)
CHUNKS = control.PARTIALS
SKIP, ADAM_T, TARGETS = control.SKIP, control.ADAM_T, control.TARGETS
LOSS_SCALE, NOMINAL = control.LOSS_SCALE, control.NOMINAL
GRAD_NORM, GRAD_FACTOR = control.GRAD_NORM, control.GRAD_FACTOR
BIAS1, BIAS2 = control.BIAS1, control.BIAS2
CLIP_MARGIN = 1e-6  # as torch's clip_grad_norm_


SUMSQ = "g:r:G[n] partials:m:f64[64] n first=flag"


def finished(G):
    """Inline (k, chunk, at, end, s0, s1, s2, s3): the last elements of a chunk, fewer than four
    from `at` on, and its four sums, to `k.partials`."""
    ld = G.ld

    @inline
    def finish(k, chunk, at, end, s0, s1, s2, s3):
        for q in range(at, end):
            value = np.float64(ld(k.g, q))
            s0 += value * value
        total = (s0 + s1) + (s2 + s3)
        st_f64(k.partials, chunk, total if k.first != 0 else total + ld_f64(k.partials, chunk))

    return finish


@kernel("grad_sumsq", SUMSQ, blocks="G")
def grad_sumsq(G):
    """Add the squares of g [n] to 64 partial sums of fixed chunks; first 1: overwrite them.

    A chunk has four sums in float64, of every fourth element, added in order.
    """
    ld, finish = G.ld, finished(G)

    @inline
    def square(g, i):
        value = np.float64(ld(g, i))
        return value * value

    def run(thread, nthreads, k):
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            s0 = s1 = s2 = s3 = 0.0
            i, end = div(k.n * chunk, CHUNKS), div(k.n * (chunk + 1), CHUNKS)
            whole = end - mod(end - i, 4)
            for q in range(i, whole, 4):
                s0 += square(k.g, q)
                s1 += square(k.g, q + 1)
                s2 += square(k.g, q + 2)
                s3 += square(k.g, q + 3)
            finish(k, chunk, whole, end, s0, s1, s2, s3)

    return run


@kernel("grad_finish", "partials:r:f64[64] ctl:m:i64[64] max_norm:f c1:f c2:f")
def grad_finish():
    """The gradient's norm, whether the update is skipped, what it multiplies gradients by.

    Gradients were accumulated times LOSS_SCALE / NOMINAL; their mean is over TARGETS by
    their weights. GRAD_NORM
    is the norm of that mean, GRAD_FACTOR the multiplier to reach it, clipped to `max_norm` (0: no
    clipping). SKIP is set where the norm is not finite or nothing was counted; else ADAM_T, BIAS1
    and BIAS2 advance; c1, c2 are 1 - beta. Thread 0 does it.
    """

    @inline
    def advance(ctl, word, complement):
        # 1 - beta^t from 1 - beta^(t-1)
        before = ld_f64(ctl, word)
        st_f64(ctl, word, before + np.float64(complement) * (1.0 - before))

    def run(thread, nthreads, k):
        if thread == 0:
            total = 0.0
            for chunk in range(CHUNKS):
                total += ld_f64(k.partials, chunk)
            targets = ld_i64(k.ctl, TARGETS)
            factor = ld_f64(k.ctl, NOMINAL) / (divisor(k.ctl) * ld_f64(k.ctl, LOSS_SCALE))
            norm = sqrt(total) * factor
            finite = norm - norm == 0.0
            if k.max_norm > ZERO:
                factor *= min(1.0, np.float64(k.max_norm) / (norm + CLIP_MARGIN))
            st_f64(k.ctl, GRAD_NORM, norm)
            st_f64(k.ctl, GRAD_FACTOR, factor)
            st_i64(k.ctl, SKIP, 0 if finite and targets > 0 else 1)
            if finite and targets > 0:
                st_i64(k.ctl, ADAM_T, ld_i64(k.ctl, ADAM_T) + 1)
                advance(k.ctl, BIAS1, k.c1)
                advance(k.ctl, BIAS2, k.c2)

    return run
