"""From accumulated gradients to new weights: norm, clipping, SGD, Adam (others: optimizers/).

Arithmetic is float32; weights and moments are stored with stochastic rounding where they are
fp16 or in blocks of 8 bits: blocks of 64 at a time, which threads share out. An update whose
gradient is not finite writes no weight and no moment. Gradients are zeroed for the next minibatch
either way.
"""

import numpy as np

from .. import control
from ..language.divisor import divisor
from ..language.inlining import inline
from ..language.mathf import sqrt
from ..language.packed import LENGTH, Packed, get, loader, new, put, storer
from ..language.packed import zero as zero_blocks
from ..language.prim import div, hash32, ld_f64, ld_i64, mod, st_f64, st_i64
from ..language.rng import stream
from ..registry import kernel
from .spans import LAYER, LAYER_CHECK, LAYER_OPERANDS, WHOLE
from .state import moments, second_moments, state_scale

ZERO, ONE = np.float32(0), np.float32(1)
CHUNKS = control.PARTIALS
LR, SKIP, ADAM_T, TARGETS = control.LR, control.SKIP, control.ADAM_T, control.TARGETS
LOSS_SCALE, NOMINAL = control.LOSS_SCALE, control.NOMINAL
GRAD_NORM, GRAD_FACTOR = control.GRAD_NORM, control.GRAD_FACTOR
BIAS1, BIAS2 = control.BIAS1, control.BIAS2
# Streams of the moments, apart from the weight's.
FIRST_MOMENT, SECOND_MOMENT = 0x51ED270B, 0x2545F491
CLIP_MARGIN = 1e-6  # as torch's clip_grad_norm_


SUMSQ = "g:r:G[n] partials:m:f64[64] n first"


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


def zeroing(G):
    """Inline zeroing of gradients g[lo:hi]; lo is a multiple of 64."""
    if isinstance(G, Packed):

        @inline
        def zero_packed(g, lo, hi):
            if hi > lo:
                zero_blocks(g, lo, hi - lo)

        return zero_packed
    st = G.st

    @inline
    def zero(g, lo, hi):
        for i in range(lo, hi):
            st(g, i, ZERO)

    return zero


SGD = "w:m:W[n] g:m:G[n] v?:m:V[n] ctl:m:i64[64] n key mu:f wd:f dampening:f nesterov"


def _sgd(W, G, V, span):
    """`sgd` of what a span takes."""
    of, gradients, nbytes = span.of, span.gradients, G.nbytes
    load_w, load_g, (load_v, store_v) = loader(W), loader(G), moments(V)
    store_w, zero = storer(W), zeroing(G)

    def run(thread, nthreads, k):
        (lo, hi), grads = of(k, thread, nthreads), gradients(k, nbytes)
        if ld_i64(k.ctl, SKIP) != 0:
            zero(grads, lo, hi)
            return
        weight_key = stream(k.ctl, k.key)
        moment_key = hash32(weight_key, FIRST_MOMENT)
        lr, factor = np.float32(ld_f64(k.ctl, LR)), np.float32(ld_f64(k.ctl, GRAD_FACTOR))
        by = state_scale(k.ctl)
        share = ONE if ld_i64(k.ctl, ADAM_T) == 1 else ONE - k.dampening
        # nesterov: direction = gradient + mu * momentum, else = momentum
        of_gradient, of_moment = (ONE, k.mu) if k.nesterov != 0 else (ZERO, ONE)
        w, g, v = new(), new(), new()
        for i in range(lo, hi, LENGTH):
            m = min(LENGTH, hi - i)
            load_w(w, k.w, i, m)
            load_g(g, grads, i, m)
            if k.v == 0:
                for j in range(m):
                    value = get(w, j)
                    put(w, j, value - lr * (get(g, j) * factor + k.wd * value))
            else:
                load_v(v, k.v, i, m, by)
                for j in range(m):
                    value = get(w, j)
                    gradient = get(g, j) * factor + k.wd * value
                    moment = k.mu * get(v, j) + share * gradient
                    put(w, j, value - lr * (of_gradient * gradient + of_moment * moment))
                    put(v, j, moment)
                store_v(k.v, i, m, v, moment_key, by)
            store_w(k.w, i, m, w, weight_key)
        zero(grads, lo, hi)

    return run


@kernel("sgd", SGD, blocks="W G V")
def sgd(W, G, V):
    """torch.optim.SGD: weights w, gradients g (zeroed), momentum v where `mu` is not 0, all [n].

    The first update (ADAM_T 1) takes the gradient as momentum, without dampening. v absent: no
    momentum. Rates from ctl LR and GRAD_FACTOR.
    """
    return _sgd(W, G, V, WHOLE)


@kernel(
    "csr_sgd",
    f"w:m:W[slots] g:m:G[room] v?:m:V[slots] {LAYER_OPERANDS} mu:f wd:f dampening:f nesterov",
    check=LAYER_CHECK,
)
def csr_sgd(W, G, V):
    """`sgd` of a layer's slots of the pool (spans.py)."""
    return _sgd(W, G, V, LAYER)


def _adam(W, G, M, V, span):
    """`adam` of what a span takes."""
    of, gradients, nbytes = span.of, span.gradients, G.nbytes
    load_w, load_g, (load_m, store_m) = loader(W), loader(G), moments(M)
    store_w, zero = storer(W), zeroing(G)
    load_second, store_second = second_moments(V)

    def run(thread, nthreads, k):
        (lo, hi), grads = of(k, thread, nthreads), gradients(k, nbytes)
        if ld_i64(k.ctl, SKIP) != 0:
            zero(grads, lo, hi)
            return
        weight_key = stream(k.ctl, k.key)
        first_key, second_key = hash32(weight_key, FIRST_MOMENT), hash32(weight_key, SECOND_MOMENT)
        rate, factor = ld_f64(k.ctl, LR), np.float32(ld_f64(k.ctl, GRAD_FACTOR))
        step = np.float32(rate / ld_f64(k.ctl, BIAS1))
        root_bias = ONE / np.float32(sqrt(ld_f64(k.ctl, BIAS2)))
        added = ZERO if k.decoupled != 0 else k.wd
        kept = np.float32(1.0 - rate * np.float64(k.wd)) if k.decoupled != 0 else ONE
        by = state_scale(k.ctl)
        w, g, moment, square = new(), new(), new(), new()
        for i in range(lo, hi, LENGTH):
            m = min(LENGTH, hi - i)
            load_w(w, k.w, i, m)
            load_g(g, grads, i, m)
            load_m(moment, k.m, i, m, by)
            load_second(square, k.v, i, m, by)
            for j in range(m):
                value = get(w, j)
                gradient = get(g, j) * factor + added * value
                first = get(moment, j)
                first += (gradient - first) * k.c1
                second = get(square, j) * k.b2 + k.c2 * gradient * gradient
                put(w, j, value * kept - step * first / (sqrt(second) * root_bias + k.eps))
                put(moment, j, first)
                put(square, j, second)
            store_w(k.w, i, m, w, weight_key)
            store_m(k.m, i, m, moment, first_key, by)
            store_second(k.v, i, m, square, second_key, by)
        zero(grads, lo, hi)

    return run


@kernel(
    "adam",
    "w:m:W[n] g:m:G[n] m:m:M[n] v:m:V[n] ctl:m:i64[64] n key c1:f b2:f c2:f eps:f wd:f decoupled",
    blocks="W G M V",
)
def adam(W, G, M, V):
    """torch.optim.Adam (decoupled 0: decay added to the gradient) and AdamW (decoupled 1).

    w weights, g gradients (zeroed), m first moment, v second moment, all [n]; fp16 v holds the
    square root of the moment. c1 = 1 - beta1, b2 = beta2 and c2 = 1 - beta2 come apart: 1 - beta2
    of a float32 beta2 would be off by 1e-5 of itself. BIAS1 and BIAS2 in ctl are of this update.
    """
    return _adam(W, G, M, V, WHOLE)


@kernel(
    "csr_adam",
    "w:m:W[slots] g:m:G[room] m:m:M[slots] v:m:V[slots] "
    f"{LAYER_OPERANDS} c1:f b2:f c2:f eps:f wd:f decoupled",
    check=LAYER_CHECK,
)
def csr_adam(W, G, M, V):
    """`adam` of a layer's slots of the pool (spans.py)."""
    return _adam(W, G, M, V, LAYER)
