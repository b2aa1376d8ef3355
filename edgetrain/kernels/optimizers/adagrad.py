"""Adagrad: steps divided by the root of the sum of all squares so far."""

import numpy as np

from .. import control
from ..registry import kernel
from ..update import SECOND_MOMENT, second_moment, zeroing
from ..words.mathf import sqrt
from ..words.prim import div, hash32, ld_f64, ld_i64, to_real
from ..words.rng import stream

LR, SKIP, GRAD_FACTOR, UPDATES = control.LR, control.SKIP, control.GRAD_FACTOR, control.ADAM_T
ZERO = np.float32(0)


@kernel("adagrad", "w:m:W[n] g:m:G[n] v:m:V[n] ctl:r:i64[64] n key decay:f eps:f wd:f")
def adagrad(W, G, V):
    """torch.optim.Adagrad: w weights, g gradients (zeroed), v sum of squares, all [n].

    fp16 v holds the root of the sum. The rate of update t = 1, 2, .. is LR / (1 + (t - 1) * decay).
    """
    ldw, srw, ldg, stg = W.ld, W.sr, G.ld, G.st
    load_second, store_second = second_moment(V)
    zero = zeroing(G)

    def run(thread, nthreads, k):
        lo, hi = div(k.n * thread, nthreads), div(k.n * (thread + 1), nthreads)
        if ld_i64(k.ctl, SKIP) != 0:
            zero(k.g, lo, hi)
            return
        weight_key = stream(k.ctl, k.key)
        square_key = hash32(weight_key, SECOND_MOMENT)
        slowed = 1.0 + to_real(ld_i64(k.ctl, UPDATES) - 1) * np.float64(k.decay)
        lr, factor = np.float32(ld_f64(k.ctl, LR) / slowed), np.float32(ld_f64(k.ctl, GRAD_FACTOR))
        for i in range(lo, hi):
            value = ldw(k.w, i)
            gradient = ldg(k.g, i) * factor + k.wd * value
            second = load_second(k.v, i) + gradient * gradient
            root = sqrt(second)
            srw(k.w, i, value - lr * gradient / (root + k.eps), weight_key)
            store_second(k.v, i, second, root, square_key)
            stg(k.g, i, ZERO)

    return run
