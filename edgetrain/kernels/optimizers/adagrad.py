"""Adagrad: steps divided by the root of the sum of all squares so far."""

import numpy as np

from .. import control
from ..language.mathf import sqrt
from ..language.packed import LENGTH, get, loader, new, put, storer
from ..language.prim import hash32, ld_f64, ld_i64, to_real
from ..language.rng import stream
from ..registry import kernel
from .spans import LAYER, LAYER_CHECK, LAYER_OPERANDS, WHOLE
from .state import second_moments, state_scale
from .update import SECOND_MOMENT, zeroing

LR, SKIP, GRAD_FACTOR, UPDATES = control.LR, control.SKIP, control.GRAD_FACTOR, control.ADAM_T
_BLOCKS = {"blocks": "W G V"}


def _adagrad(W, G, V, span):
    """`adagrad` of what a span takes."""
    of, gradients, nbytes = span.of, span.gradients, G.nbytes
    load_w, load_g, store_w = loader(W), loader(G), storer(W)
    load_second, store_second = second_moments(V)
    zero = zeroing(G)

    def run(thread, nthreads, k):
        (lo, hi), grads = of(k, thread, nthreads), gradients(k, nbytes)
        if ld_i64(k.ctl, SKIP) != 0:
            zero(grads, lo, hi)
            return
        weight_key = stream(k.ctl, k.key)
        square_key = hash32(weight_key, SECOND_MOMENT)
        slowed = 1.0 + to_real(ld_i64(k.ctl, UPDATES) - 1) * np.float64(k.decay)
        lr, factor = np.float32(ld_f64(k.ctl, LR) / slowed), np.float32(ld_f64(k.ctl, GRAD_FACTOR))
        by = state_scale(k.ctl)
        w, g, v = new(), new(), new()
        for i in range(lo, hi, LENGTH):
            m = min(LENGTH, hi - i)
            load_w(w, k.w, i, m)
            load_g(g, grads, i, m)
            load_second(v, k.v, i, m, by)
            for j in range(m):
                value = get(w, j)
                gradient = get(g, j) * factor + k.wd * value
                second = get(v, j) + gradient * gradient
                put(w, j, value - lr * gradient / (sqrt(second) + k.eps))
                put(v, j, second)
            store_w(k.w, i, m, w, weight_key)
            store_second(k.v, i, m, v, square_key, by)
        zero(grads, lo, hi)

    return run


@kernel("adagrad", "w:m:W[n] g:m:G[n] v:m:V[n] ctl:m:i64[64] n key decay:f eps:f wd:f", **_BLOCKS)
def adagrad(W, G, V):
    """torch.optim.Adagrad: w weights, g gradients (zeroed), v sum of squares, all [n].

    fp16 v holds the root of the sum. The rate of update t = 1, 2, .. is LR / (1 + (t - 1) * decay).
    """
    return _adagrad(W, G, V, WHOLE)


@kernel(
    "csr_adagrad",
    f"w:m:W[slots] g:m:G[room] v:m:V[slots] {LAYER_OPERANDS} decay:f eps:f wd:f",
    check=LAYER_CHECK,
)
def csr_adagrad(W, G, V):
    """`adagrad` of a layer's slots of the pool (spans.py)."""
    return _adagrad(W, G, V, LAYER)
