"""LSTM: its steps forward and back. Gates lie in the order i o f c; see recurrent/walk.py."""

from ..jit import inline
from ..registry import kernel
from ..words.block import get, new, put
from ..words.lanes import LANES
from ..words.mathf import ONE, tanh
from ..words.prim import FP32, div
from .tile import dots, outer
from .walk import (  # fmt: skip
    SIDES,
    UNITS,
    WIDE,
    before,
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
    squash_sigmoid,
    squash_tanh,
    states,
    store32,
    storer,
    task,
    tasks,
    wide,
)

_SIZES = "t b d n back"
_STATE = "[d*b*n]"
_CHECK = "min(t, b, d, n) > 0;d <= 2;(back == 2) == (d == 2);back <= 2"


@inline
def _plus(buffer, a, b):
    """buffer += a * b."""
    for j in range(LANES):
        put(buffer, j, get(buffer, j) + get(a, j) * get(b, j))


def _forward_cell(Q, S):
    """step: a block of units of one row."""
    gate, cell_state, store = gate_loader(S), states(S, Q), storer(S)

    @inline
    def step(
        gates, at, y, y_at, cells, cell_at, c_at, c0, c0_at, ws, ws_at, peeps, constants, n, m
    ):
        """Gates, c and h of a block."""
        bi, bo, bf, bc = constants
        pi, po, pf, peep = peeps
        i, o, f, c, old = new(), new(), new(), new(), new()
        gate(i, gates, at, ws, ws_at, bi, m)
        gate(o, gates, at + n, ws, ws_at + UNITS, bo, m)
        gate(f, gates, at + 2 * n, ws, ws_at + 2 * UNITS, bf, m)
        gate(c, gates, at + 3 * n, ws, ws_at + 3 * UNITS, bc, m)
        cell_state(old, cells, c_at, c0, c0_at, m)
        if peep != 0:
            _plus(i, pi, old)
            _plus(f, pf, old)
        squash_sigmoid(i)
        squash_sigmoid(f)
        squash_tanh(c)
        store(i, gates, at, m)
        store(f, gates, at + 2 * n, m)
        store(c, gates, at + 3 * n, m)
        for j in range(LANES):
            put(c, j, get(f, j) * get(old, j) + get(i, j) * get(c, j))
        if peep != 0:
            _plus(o, po, c)
        squash_sigmoid(o)
        store(o, gates, at + n, m)
        store(c, cells, cell_at, m)
        for j in range(LANES):
            put(o, j, get(o, j) * tanh(get(c, j)))
        store(o, y, y_at, m)

    return step


@kernel(
    "lstm",
    "r:r:W[d*4*n*n] bias?:r:V[d*8*n] peep?:r:O[d*3*n] lens?:r:i32[b] h0?:r:P[d*b*n] c0?:r:Q[d*b*n] "
    "gates:m:S[d*t*b*4*n] y:w:S[t*d*b*n] cells:w:S[d*t*b*n] yh?:w:S[d*b*n] yc?:w:S[d*b*n] "
    f"ws:t[4*min(16, b)*({WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="4*d*t*b*n*n",
)
def lstm(W, V, O, P, Q, S):  # noqa: E741 - a storage's name
    """gates (x W^T) become sigmoid, sigmoid, sigmoid, tanh of gates + h R^T + biases, step by step.

    r [d, 4 n, n], bias [d, 8 n] (W's, then R's), peep [d, 3 n] (i o f), lens [b]: steps of a row
    that count (y is 0 after them). back: 0 forward, 1 in reverse, 2 both. cells: c of every step.
    yh, yc: the last states. Scratch: the rows' states and one block of products. The product is in
    float32; h and c are what was stored of the step before. Threads split (direction, rows).
    """
    product, gather, add_bias = dots(W), gatherer(S, P), biases(V)
    step, load_peep, store = _forward_cell(Q, S), loader(O), storer(S)
    final_h, final_c = finals(S, P), finals(S, Q)

    def run(
        thread, nthreads, r, bias, peep, lens, h0, c0, gates, y, cells, yh, yc, ws,
        t, b, d, n, back,
    ):  # fmt: skip
        bi, bo, bf, bc, none = new(), new(), new(), new(), new()
        pi, po, pf = new(), new(), new()
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
                    for q in range(4):
                        at = ((side * 4 + q) * n + u) * n
                        product(ws, wide(n), rows, r, at, n, m, n, products + 4 * UNITS * q, SIDES)
                    add_bias(bi, bias, side * 8, side * 8 + 4, n, u, m)
                    add_bias(bo, bias, side * 8 + 1, side * 8 + 5, n, u, m)
                    add_bias(bf, bias, side * 8 + 2, side * 8 + 6, n, u, m)
                    add_bias(bc, bias, side * 8 + 3, side * 8 + 7, n, u, m)
                    if peep != 0:
                        load_peep(pi, peep, side * 3 * n + u, m)
                        load_peep(po, peep, (side * 3 + 1) * n + u, m)
                        load_peep(pf, peep, (side * 3 + 2) * n + u, m)
                    for i in range(rows):
                        row = first + i
                        y_at = ((now * d + side) * b + row) * n + u
                        place = (side * t + now) * b + row
                        count = length(lens, row, t)
                        if now >= count:
                            store(none, y, y_at, m)
                            store(none, cells, place * n + u, m)
                            continue
                        then = before(now, count, backwards)
                        c_at = ((side * t + then) * b + row) * n + u if then >= 0 else -1
                        step(
                            gates, place * 4 * n + u, y, y_at, cells, place * n + u, c_at, c0,
                            (side * b + row) * n + u, products, i * SIDES, (pi, po, pf, peep),
                            (bi, bo, bf, bc), n, m,
                        )  # fmt: skip
            final_h(yh, y, d * b, b, h0, lens, side, first, rows, backwards, t, b, n)
            final_c(yc, cells, b, t * b, c0, lens, side, first, rows, backwards, t, b, n)

    return run


def _backward_cell(Q, S):
    """(step, ended) of a block of units of one row."""
    cell_state, load, store = states(S, Q), loader(S), storer(S)

    @inline
    def step(gates, at, cells, cell_at, c_at, c0, c0_at, dh, dc, dgates, ws, ws_at, peeps, n, m):
        """dh, dc: gradients of this step's h and c; dc becomes that of the c before."""
        pi, po, pf, peep = peeps
        i, o, f, g, c = new(), new(), new(), new(), new()
        load(i, gates, at, m)
        load(o, gates, at + n, m)
        load(f, gates, at + 2 * n, m)
        load(g, gates, at + 3 * n, m)
        load(c, cells, cell_at, m)
        for j in range(LANES):
            e, h, v = tanh(get(c, j)), get(dh, j), get(o, j)
            put(dc, j, get(dc, j) + h * v * (ONE - e * e))
            put(o, j, h * e * v * (ONE - v))
        if peep != 0:
            _plus(dc, po, o)
        cell_state(c, cells, c_at, c0, c0_at, m)
        for j in range(LANES):
            slope, vi, vf, vg = get(dc, j), get(i, j), get(f, j), get(g, j)
            put(i, j, slope * vg * vi * (ONE - vi))
            put(g, j, slope * vi * (ONE - vg * vg))
            put(f, j, slope * get(c, j) * vf * (ONE - vf))
            put(dc, j, slope * vf)
        if peep != 0:
            _plus(dc, pi, i)
            _plus(dc, pf, f)
        store(i, dgates, at, m)
        store(o, dgates, at + n, m)
        store(f, dgates, at + 2 * n, m)
        store(g, dgates, at + 3 * n, m)
        store32(i, ws, ws_at, LANES)
        store32(o, ws, ws_at + UNITS, LANES)
        store32(f, ws, ws_at + 2 * UNITS, LANES)
        store32(g, ws, ws_at + 3 * UNITS, LANES)

    @inline
    def ended(dgates, at, ws, ws_at, h, h_next, h_at, n, m):
        """A row that has ended: no gradient here, what came back goes on."""
        buffer, more = new(), new()
        clear(buffer)
        for q in range(4):
            store(buffer, dgates, at + q * n, m)
            store32(buffer, ws, ws_at + q * UNITS, LANES)
        load32(buffer, h, h_at, m)
        load32(more, h_next, h_at, m)
        for j in range(LANES):
            put(buffer, j, get(buffer, j) + get(more, j))
        store32(buffer, h_next, h_at, m)

    return step, ended


@kernel(
    "lstm_bwd",
    "r:r:W[d*4*n*n] peep?:r:O[d*3*n] lens?:r:i32[b] c0?:r:Q[d*b*n] gates:r:S[d*t*b*4*n] "
    "cells:r:S[d*t*b*n] dy?:r:S[t*d*b*n] dyh?:r:S[d*b*n] dyc?:r:S[d*b*n] dgates:w:S[d*t*b*4*n] "
    f"dh0?:w:f32[d*b*n] dc0?:w:f32[d*b*n] ws:t[4*min(16, b)*(3*{WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="4*d*t*b*n*n",
)
def lstm_bwd(W, O, Q, S):  # noqa: E741 - a storage's name
    """dgates = gradient before the activations of every step, 0 where a row has ended.

    It may overwrite gates. dh0, dc0: gradients of the initial states. Scratch: gradients of h and
    c of the rows, h of the step before, one block of gates. Going back through time: a block's
    gates are multiplied with R as they are made, block after block in float32. Threads as lstm.
    """
    multiply, load_peep = outer(FP32, W), loader(O)
    step, ended = _backward_cell(Q, S)
    start, arrive = carriers(S)

    def run(
        thread, nthreads, r, peep, lens, c0, gates, cells, dy, dyh, dyc, dgates, dh0, dc0, ws,
        t, b, d, n, back,
    ):  # fmt: skip
        dh, dc, pi, po, pf = new(), new(), new(), new(), new()
        height, each = tasks(b, d, nthreads)
        part = 4 * min(height, b) * wide(n)
        c, products = ws + 2 * part, ws + 3 * part
        for k in range(div(d * each * thread, nthreads), div(d * each * (thread + 1), nthreads)):
            side, first, rows, backwards = task(k, height, each, b, back)
            start(ws, dyh, lens, side, first, rows, t, b, n)
            start(c, dyc, lens, side, first, rows, t, b, n)
            for s in range(t):
                now = s if backwards else t - 1 - s
                h, h_next = ws + part * (s & 1), ws + part * (1 - (s & 1))
                reset(h_next, rows, n)
                for u in range(0, n, UNITS):
                    m = min(UNITS, n - u)
                    if peep != 0:
                        load_peep(pi, peep, side * 3 * n + u, m)
                        load_peep(po, peep, (side * 3 + 1) * n + u, m)
                        load_peep(pf, peep, (side * 3 + 2) * n + u, m)
                    for i in range(rows):
                        row = first + i
                        place, own = (side * t + now) * b + row, i * wide(n) + u
                        count = length(lens, row, t)
                        at = place * 4 * n + u
                        if now >= count:
                            ended(dgates, at, products, i * SIDES, h, h_next, own, n, m)
                            continue
                        state_at = (side * b + row) * n + u
                        last = now == (0 if backwards else count - 1)
                        y_at = ((now * d + side) * b + row) * n + u
                        arrive(dh, h, own, dy, y_at, dyh, state_at, last, m)
                        arrive(dc, c, own, 0, 0, dyc, state_at, last, m)
                        then = before(now, count, backwards)
                        c_at = ((side * t + then) * b + row) * n + u if then >= 0 else -1
                        step(
                            gates, at, cells, place * n + u, c_at, c0, state_at, dh, dc, dgates,
                            products, i * SIDES, (pi, po, pf, peep), n, m,
                        )  # fmt: skip
                        store32(dc, c, own, m)
                    for q in range(4):
                        multiply(
                            products, UNITS * q, SIDES, 1, rows, r, ((side * 4 + q) * n + u) * n,
                            n, n, m, h_next, wide(n),
                        )  # fmt: skip
            leave(dh0, ws + part * (t & 1), side, first, rows, b, n)
            leave(dc0, c, side, first, rows, b, n)

    return run
