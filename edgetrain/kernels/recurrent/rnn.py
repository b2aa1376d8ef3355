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

    def run(
        thread, nthreads, r, bias, lens, h0, gates, y, yh, ws, t, b, d, n, back, relu
    ):  # fmt: skip
        constant, none, h = new(), new(), new()
        clear(none)
        height, each = tasks(b, d, nthreads)
        products = ws + 4 * min(height, b) * wide(n)
        for k in range(div(d * each * thread, nthreads), div(d * each * (thread + 1), nthreads)):
            side, first, rows, backwards = task(k, height, each, b, back)
            for s in range(t):
                now = t - 1 - s if backwards else s
                gather(ws, y, h0, lens, side, first, rows, now, backwards, t, b, d, n)
                for u in range(0, n, UNITS):
                    m = min(UNITS, n - u)
                    product(ws, wide(n), rows, r, (side * n + u) * n, n, m, n, products, SIDES)
                    add_bias(constant, bias, side * 2, side * 2 + 1, n, u, m)
                    for i in range(rows):
                        row = first + i
                        y_at = ((now * d + side) * b + row) * n + u
                        if now >= length(lens, row, t):
                            store(none, y, y_at, m)
                            continue
                        at = ((side * t + now) * b + row) * n + u
                        gate(h, gates, at, products, i * SIDES, constant, m)
                        if relu:
                            for j in range(LANES):
                                put(h, j, ZERO if get(h, j) < ZERO else get(h, j))
                        else:
                            squash_tanh(h)
                        store(h, y, y_at, m)
            final(yh, y, d * b, b, h0, lens, side, first, rows, backwards, t, b, n)

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

    def run(
        thread, nthreads, r, lens, y, dy, dyh, dgates, dh0, ws, t, b, d, n, back, relu
    ):  # fmt: skip
        dh, value = new(), new()
        height, each = tasks(b, d, nthreads)
        part = 4 * min(height, b) * wide(n)
        products = ws + 2 * part
        for k in range(div(d * each * thread, nthreads), div(d * each * (thread + 1), nthreads)):
            side, first, rows, backwards = task(k, height, each, b, back)
            start(ws, dyh, lens, side, first, rows, t, b, n)
            for s in range(t):
                now = s if backwards else t - 1 - s
                h, h_next = ws + part * (s & 1), ws + part * (1 - (s & 1))
                reset(h_next, rows, n)
                for u in range(0, n, UNITS):
                    m = min(UNITS, n - u)
                    for i in range(rows):
                        row, own = first + i, i * wide(n) + u
                        at = ((side * t + now) * b + row) * n + u
                        count = length(lens, row, t)
                        if now >= count:
                            ended(dgates, at, products, i * SIDES, h, h_next, own, m)
                            continue
                        last = now == (0 if backwards else count - 1)
                        y_at = ((now * d + side) * b + row) * n + u
                        arrive(dh, h, own, dy, y_at, dyh, (side * b + row) * n + u, last, m)
                        load(value, y, y_at, m)
                        for j in range(LANES):
                            v = get(value, j)
                            slope = (ONE if v > ZERO else ZERO) if relu else ONE - v * v
                            put(dh, j, get(dh, j) * slope)
                        store(dh, dgates, at, m)
                        store32(dh, products, i * SIDES, LANES)
                    at = (side * n + u) * n
                    multiply(
                        products, 0, SIDES, 1, rows, r, at, n, n, m, h_next, wide(n)
                    )  # fmt: skip
            leave(dh0, ws + part * (t & 1), side, first, rows, b, n)

    return run
