"""The plain recurrence h = f(x W^T + h R^T + b), f tanh or relu; see recurrent/walk.py."""

from ..jit import inline
from ..registry import kernel
from ..words.block import get, new, put
from ..words.lanes import LANES
from ..words.mathf import ONE, ZERO
from ..words.prim import FP32, div
from .tile import dots, outer
from .walk import (  # fmt: skip
    SIDES,
    UNITS,
    WIDE,
    biases,
    carriers,
    clear,
    finals,
    gate_loader,
    gatherer,
    leave,
    length,
    load32,
    loader,
    reset,
    squash_tanh,
    store32,
    storer,
    task,
    tasks,
    wide,
)

_SIZES = "t b d n back relu"
_CHECK = "min(t, b, d, n) > 0;d <= 2;(back == 2) == (d == 2);back <= 2"


@kernel(
    "rnn",
    "r:r:W[d*n*n] bias?:r:V[d*2*n] lens?:r:i32[b] h0?:r:P[d*b*n] gates:r:S[d*t*b*n] "
    f"y:w:S[t*d*b*n] yh?:w:S[d*b*n] ws:t[4*min(16, b)*({WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="d*t*b*n*n",
)
def rnn(W, V, P, S):
    """y = f(gates + h R^T + biases) step by step; gates hold x W^T, f is tanh, or relu.

    r [d, n, n], bias [d, 2 n], lens [b]: steps of a row that count (y is 0 after them). back: 0
    forward, 1 in reverse, 2 both. yh: the last states. Scratch and threads as in lstm.
    """
    product, gather, add_bias, final = dots(W), gatherer(S, P), biases(V), finals(S, P)
    gate, store = gate_loader(S), storer(S)

    def run(thread, nthreads, k):
        constant, none, h = new(), new(), new()
        clear(none)
        height, each = tasks(k.b, k.d, nthreads)
        products = k.ws + 4 * min(height, k.b) * wide(k.n)
        for q in range(
            div(k.d * each * thread, nthreads), div(k.d * each * (thread + 1), nthreads)
        ):
            side, first, rows, backwards = task(q, height, each, k.b, k.back)
            for s in range(k.t):
                now = k.t - 1 - s if backwards else s
                gather(
                    k.ws, k.y, k.h0, k.lens, side, first, rows, now, backwards, k.t, k.b, k.d, k.n
                )
                for u in range(0, k.n, UNITS):
                    m = min(UNITS, k.n - u)
                    product(
                        k.ws,
                        wide(k.n),
                        rows,
                        k.r,
                        (side * k.n + u) * k.n,
                        k.n,
                        m,
                        k.n,
                        products,
                        SIDES,
                    )
                    add_bias(constant, k.bias, side * 2, side * 2 + 1, k.n, u, m)
                    for i in range(rows):
                        row = first + i
                        y_at = ((now * k.d + side) * k.b + row) * k.n + u
                        if now >= length(k.lens, row, k.t):
                            store(none, k.y, y_at, m)
                            continue
                        at = ((side * k.t + now) * k.b + row) * k.n + u
                        gate(h, k.gates, at, products, i * SIDES, constant, m)
                        if k.relu:
                            for j in range(LANES):
                                put(h, j, ZERO if get(h, j) < ZERO else get(h, j))
                        else:
                            squash_tanh(h)
                        store(h, k.y, y_at, m)
            final(
                k.yh, k.y, k.d * k.b, k.b, k.h0, k.lens, side, first, rows, backwards, k.t, k.b, k.n
            )

    return run


@kernel(
    "rnn_bwd",
    "r:r:W[d*n*n] lens?:r:i32[b] y:r:S[t*d*b*n] dy?:r:S[t*d*b*n] dyh?:r:S[d*b*n] "
    "dgates:w:S[d*t*b*n] dh0?:w:f32[d*b*n] "
    f"ws:t[4*min(16, b)*(2*{WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="d*t*b*n*n",
)
def rnn_bwd(W, S):
    """dgates = gradient before the activation of every step, 0 where a row has ended.

    dh0: gradient of the initial state. Scratch, order and threads as in lstm_bwd.
    """
    multiply, load, store = outer(FP32, W), loader(S), storer(S)
    start, arrive = carriers(S)

    @inline
    def ended(dgates, at, ws, ws_at, h, h_next, own, m):
        """A row that has ended: no gradient here, what came back goes on."""
        buffer, more = new(), new()
        clear(buffer)
        store(buffer, dgates, at, m)
        store32(buffer, ws, ws_at, LANES)
        load32(buffer, h, own, m)
        load32(more, h_next, own, m)
        for j in range(LANES):
            put(buffer, j, get(buffer, j) + get(more, j))
        store32(buffer, h_next, own, m)

    def run(thread, nthreads, k):
        dh, value = new(), new()
        height, each = tasks(k.b, k.d, nthreads)
        part = 4 * min(height, k.b) * wide(k.n)
        products = k.ws + 2 * part
        for q in range(
            div(k.d * each * thread, nthreads), div(k.d * each * (thread + 1), nthreads)
        ):
            side, first, rows, backwards = task(q, height, each, k.b, k.back)
            start(k.ws, k.dyh, k.lens, side, first, rows, k.t, k.b, k.n)
            for s in range(k.t):
                now = s if backwards else k.t - 1 - s
                h, h_next = k.ws + part * (s & 1), k.ws + part * (1 - (s & 1))
                reset(h_next, rows, k.n)
                for u in range(0, k.n, UNITS):
                    m = min(UNITS, k.n - u)
                    for i in range(rows):
                        row, own = first + i, i * wide(k.n) + u
                        at = ((side * k.t + now) * k.b + row) * k.n + u
                        count = length(k.lens, row, k.t)
                        if now >= count:
                            ended(k.dgates, at, products, i * SIDES, h, h_next, own, m)
                            continue
                        last = now == (0 if backwards else count - 1)
                        y_at = ((now * k.d + side) * k.b + row) * k.n + u
                        arrive(dh, h, own, k.dy, y_at, k.dyh, (side * k.b + row) * k.n + u, last, m)
                        load(value, k.y, y_at, m)
                        for j in range(LANES):
                            v = get(value, j)
                            slope = (ONE if v > ZERO else ZERO) if k.relu else ONE - v * v
                            put(dh, j, get(dh, j) * slope)
                        store(dh, k.dgates, at, m)
                        store32(dh, products, i * SIDES, LANES)
                    at = (side * k.n + u) * k.n
                    multiply(
                        products, 0, SIDES, 1, rows, k.r, at, k.n, k.n, m, h_next, wide(k.n)
                    )  # fmt: skip
            leave(k.dh0, k.ws + part * (k.t & 1), side, first, rows, k.b, k.n)

    return run
