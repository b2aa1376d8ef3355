"""Lion: steps of one size, in the direction of an interpolated momentum's sign."""

import numpy as np

from .. import control
from ..registry import kernel
from ..update import FIRST_MOMENT, zeroing
from ..words.prim import div, hash32, ld_f64, ld_i64
from ..words.rng import stream

LR, SKIP, GRAD_FACTOR = control.LR, control.SKIP, control.GRAD_FACTOR
ZERO, ONE = np.float32(0), np.float32(1)


@kernel("lion", "w:m:W[n] g:m:G[n] m:m:M[n] ctl:r:i64[64] n key b1:f c1:f b2:f c2:f wd:f")
def lion(W, G, M):
    """w weights, g gradients (zeroed), m momentum, all [n]; b and c = 1 - b come apart.

    w -= lr * (sign(b1 * m + c1 * g) + wd * w); then m = b2 * m + c2 * g. The sign of 0 is 0.
    Source: Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2.
    """
    ldw, srw, ldg, stg, ldm, srm = W.ld, W.sr, G.ld, G.st, M.ld, M.sr
    zero = zeroing(G)

    def run(thread, nthreads, k):
        lo, hi = div(k.n * thread, nthreads), div(k.n * (thread + 1), nthreads)
        if ld_i64(k.ctl, SKIP) != 0:
            zero(k.g, lo, hi)
            return
        weight_key = stream(k.ctl, k.key)
        moment_key = hash32(weight_key, FIRST_MOMENT)
        rate, factor = ld_f64(k.ctl, LR), np.float32(ld_f64(k.ctl, GRAD_FACTOR))
        lr, kept = np.float32(rate), np.float32(1.0 - rate * np.float64(k.wd))
        for i in range(lo, hi):
            gradient, moment = ldg(k.g, i) * factor, ldm(k.m, i)
            toward = k.b1 * moment + k.c1 * gradient
            sign = ONE if toward > ZERO else (-ONE if toward < ZERO else ZERO)
            srw(k.w, i, ldw(k.w, i) * kept - lr * sign, weight_key)
            srm(k.m, i, k.b2 * moment + k.c2 * gradient, moment_key)
            stg(k.g, i, ZERO)

    return run
