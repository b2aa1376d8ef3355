"""Lion: steps of one size, in the direction of an interpolated momentum's sign."""

import numpy as np

from .. import control
from ..language.packed import LENGTH, get, loader, new, put, storer
from ..language.prim import hash32, ld_f64, ld_i64
from ..language.rng import stream
from ..registry import kernel
from .spans import LAYER, LAYER_CHECK, LAYER_OPERANDS, WHOLE
from .state import moments, state_scale
from .update import FIRST_MOMENT, zeroing

LR, SKIP, GRAD_FACTOR = control.LR, control.SKIP, control.GRAD_FACTOR
ZERO, ONE = np.float32(0), np.float32(1)


def _lion(W, G, M, span):
    """`lion` of what a span takes."""
    of, gradients, nbytes = span.of, span.gradients, G.nbytes
    load_w, load_g, store_w, (load_m, store_m) = loader(W), loader(G), storer(W), moments(M)
    zero = zeroing(G)

    def run(thread, nthreads, k):
        (lo, hi), grads = of(k, thread, nthreads), gradients(k, nbytes)
        if ld_i64(k.ctl, SKIP) != 0:
            zero(grads, lo, hi)
            return
        weight_key = stream(k.ctl, k.key)
        moment_key = hash32(weight_key, FIRST_MOMENT)
        rate, factor = ld_f64(k.ctl, LR), np.float32(ld_f64(k.ctl, GRAD_FACTOR))
        lr, kept = np.float32(rate), np.float32(1.0 - rate * np.float64(k.wd))
        by = state_scale(k.ctl)
        w, g, momentum = new(), new(), new()
        for i in range(lo, hi, LENGTH):
            m = min(LENGTH, hi - i)
            load_w(w, k.w, i, m)
            load_g(g, grads, i, m)
            load_m(momentum, k.m, i, m, by)
            for j in range(m):
                gradient, moment = get(g, j) * factor, get(momentum, j)
                toward = k.b1 * moment + k.c1 * gradient
                sign = ONE if toward > ZERO else (-ONE if toward < ZERO else ZERO)
                put(w, j, get(w, j) * kept - lr * sign)
                put(momentum, j, k.b2 * moment + k.c2 * gradient)
            store_w(k.w, i, m, w, weight_key)
            store_m(k.m, i, m, momentum, moment_key, by)
        zero(grads, lo, hi)

    return run


@kernel(
    "lion",
    "w:m:W[n] g:m:G[n] m:m:M[n] ctl:m:i64[64] n key b1:f c1:f b2:f c2:f wd:f",
    blocks="W G M",
)
def lion(W, G, M):
    """w weights, g gradients (zeroed), m momentum, all [n]; b and c = 1 - b come apart.

    w -= lr * (sign(b1 * m + c1 * g) + wd * w); then m = b2 * m + c2 * g. The sign of 0 is 0.
    Source: Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2.
    """
    return _lion(W, G, M, WHOLE)


@kernel(
    "csr_lion",
    f"w:m:W[slots] g:m:G[room] m:m:M[slots] {LAYER_OPERANDS} b1:f c1:f b2:f c2:f wd:f",
    check=LAYER_CHECK,
)
def csr_lion(W, G, M):
    """`lion` of a layer's slots of the pool (spans.py)."""
    return _lion(W, G, M, LAYER)
