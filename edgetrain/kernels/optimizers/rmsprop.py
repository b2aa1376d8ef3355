"""RMSprop: steps divided by the root of a moving mean of squares."""

import numpy as np

from .. import control
from ..jit import inline
from ..registry import kernel
from ..update import FIRST_MOMENT, SECOND_MOMENT, second_moment, zeroing
from ..words.mathf import sqrt
from ..words.prim import div, hash32, ld_f64, ld_i64
from ..words.rng import stream

LR, SKIP, GRAD_FACTOR = control.LR, control.SKIP, control.GRAD_FACTOR
ZERO = np.float32(0)
MEAN = 0x1B873593  # stream of the mean gradient


@kernel(
    "rmsprop",
    "w:m:W[n] g:m:G[n] v:m:V[n] m?:m:M[n] v_mean?:m:A[n] ctl:r:i64[64] n key "
    "alpha:f c:f eps:f wd:f mu:f",
)
def rmsprop(W, G, V, M, A):
    """torch.optim.RMSprop: w weights, g gradients (zeroed), v mean of squares, all [n].

    m: momentum of the steps; v_mean: mean gradient of the centered form; absent: none. c is
    1 - alpha; fp16 v holds the root of the mean. Rates from ctl LR and GRAD_FACTOR.
    """
    ldw, srw, ldg, stg = W.ld, W.sr, G.ld, G.st
    ldm, srm, lda, sra = M.ld, M.sr, A.ld, A.sr
    load_second, store_second = second_moment(V)
    zero = zeroing(G)

    @inline
    def spread(at, i, gradient, second, c, key):
        if at == 0:
            return sqrt(second)
        mean = lda(at, i)
        mean += (gradient - mean) * c
        sra(at, i, mean, key)
        left = second - mean * mean
        return sqrt(left if left > ZERO else ZERO)

    def run(thread, nthreads, k):
        lo, hi = div(k.n * thread, nthreads), div(k.n * (thread + 1), nthreads)
        if ld_i64(k.ctl, SKIP) != 0:
            zero(k.g, lo, hi)
            return
        weight_key = stream(k.ctl, k.key)
        moment_key, square_key = hash32(weight_key, FIRST_MOMENT), hash32(weight_key, SECOND_MOMENT)
        mean_key = hash32(weight_key, MEAN)
        lr, factor = np.float32(ld_f64(k.ctl, LR)), np.float32(ld_f64(k.ctl, GRAD_FACTOR))
        for i in range(lo, hi):
            value = ldw(k.w, i)
            gradient = ldg(k.g, i) * factor + k.wd * value
            second = load_second(k.v, i) * k.alpha + k.c * gradient * gradient
            step = gradient / (spread(k.v_mean, i, gradient, second, k.c, mean_key) + k.eps)
            if k.m != 0:
                step += k.mu * ldm(k.m, i)
                srm(k.m, i, step, moment_key)
            srw(k.w, i, value - lr * step, weight_key)
            store_second(k.v, i, second, sqrt(second), square_key)
            stg(k.g, i, ZERO)

    return run
