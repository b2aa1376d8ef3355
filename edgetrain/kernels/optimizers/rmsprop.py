"""RMSprop: steps divided by the root of a moving mean of squares."""

import numpy as np

from .. import control
from ..language.inlining import inline
from ..language.mathf import sqrt
from ..language.packed import LENGTH, get, loader, new, put, storer
from ..language.prim import hash32, ld_f64, ld_i64
from ..language.rng import stream
from ..registry import kernel
from .spans import LAYER, LAYER_CHECK, LAYER_OPERANDS, WHOLE
from .state import moments, second_moments, state_scale
from .update import FIRST_MOMENT, SECOND_MOMENT, zeroing

LR, SKIP, GRAD_FACTOR = control.LR, control.SKIP, control.GRAD_FACTOR
ZERO = np.float32(0)
MEAN = 0x1B873593  # stream of the mean gradient


def _rmsprop(W, G, V, M, A, span):
    """`rmsprop` of what a span takes."""
    of, gradients, nbytes = span.of, span.gradients, G.nbytes
    # Momentum is of steps, which are about 1 whatever the gradients.
    load_w, load_g, load_m = loader(W), loader(G), loader(M)
    store_w, store_m, (load_mean, store_mean) = storer(W), storer(M), moments(A)
    load_second, store_second = second_moments(V)
    zero = zeroing(G)

    @inline
    def spread(at, means, j, gradient, second, c):
        if at == 0:
            return sqrt(second)
        mean = get(means, j)
        mean += (gradient - mean) * c
        put(means, j, mean)
        left = second - mean * mean
        return sqrt(left if left > ZERO else ZERO)

    def run(thread, nthreads, k):
        (lo, hi), grads = of(k, thread, nthreads), gradients(k, nbytes)
        if ld_i64(k.ctl, SKIP) != 0:
            zero(grads, lo, hi)
            return
        weight_key = stream(k.ctl, k.key)
        moment_key, square_key = hash32(weight_key, FIRST_MOMENT), hash32(weight_key, SECOND_MOMENT)
        mean_key = hash32(weight_key, MEAN)
        lr, factor = np.float32(ld_f64(k.ctl, LR)), np.float32(ld_f64(k.ctl, GRAD_FACTOR))
        by = state_scale(k.ctl)
        w, g, v, steps, means = new(), new(), new(), new(), new()
        for i in range(lo, hi, LENGTH):
            m = min(LENGTH, hi - i)
            load_w(w, k.w, i, m)
            load_g(g, grads, i, m)
            load_second(v, k.v, i, m, by)
            if k.m != 0:
                load_m(steps, k.m, i, m)
            if k.v_mean != 0:
                load_mean(means, k.v_mean, i, m, by)
            for j in range(m):
                value = get(w, j)
                gradient = get(g, j) * factor + k.wd * value
                second = get(v, j) * k.alpha + k.c * gradient * gradient
                step = gradient / (spread(k.v_mean, means, j, gradient, second, k.c) + k.eps)
                if k.m != 0:
                    step += k.mu * get(steps, j)
                    put(steps, j, step)
                put(w, j, value - lr * step)
                put(v, j, second)
            store_w(k.w, i, m, w, weight_key)
            store_second(k.v, i, m, v, square_key, by)
            if k.m != 0:
                store_m(k.m, i, m, steps, moment_key)
            if k.v_mean != 0:
                store_mean(k.v_mean, i, m, means, mean_key, by)
        zero(grads, lo, hi)

    return run


@kernel(
    "rmsprop",
    "w:m:W[n] g:m:G[n] v:m:V[n] m?:m:M[n] v_mean?:m:A[n] ctl:m:i64[64] n key "
    "alpha:f c:f eps:f wd:f mu:f",
    blocks="W G V M A",
)
def rmsprop(W, G, V, M, A):
    """torch.optim.RMSprop: w weights, g gradients (zeroed), v mean of squares, all [n].

    m: momentum of the steps; v_mean: mean gradient of the centered form; absent: none. c is
    1 - alpha; fp16 v holds the root of the mean. Rates from ctl LR and GRAD_FACTOR.
    """
    return _rmsprop(W, G, V, M, A, WHOLE)


@kernel(
    "csr_rmsprop",
    "w:m:W[slots] g:m:G[room] v:m:V[slots] m?:m:M[slots] v_mean?:m:A[slots] "
    f"{LAYER_OPERANDS} alpha:f c:f eps:f wd:f mu:f",
    check=LAYER_CHECK,
)
def csr_rmsprop(W, G, V, M, A):
    """`rmsprop` of a layer's slots of the pool (spans.py)."""
    return _rmsprop(W, G, V, M, A, LAYER)
