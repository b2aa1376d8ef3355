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

    def run(thread, nthreads, k):
        bi, bo, bf, bc, none = new(), new(), new(), new(), new()
        pi, po, pf = new(), new(), new()
        clear(none)
        height, each = tasks(k.b, k.d, nthreads)
        products = k.ws + 4 * min(height, k.b) * wide(k.n)
        for p in range(
            div(k.d * each * thread, nthreads), div(k.d * each * (thread + 1), nthreads)
        ):
            side, first, rows, backwards = task(p, height, each, k.b, k.back)
            for s in range(k.t):
                now = k.t - 1 - s if backwards else s
                gather(
                    k.ws, k.y, k.h0, k.lens, side, first, rows, now, backwards, k.t, k.b, k.d, k.n
                )
                for u in range(0, k.n, UNITS):
                    m = min(UNITS, k.n - u)
                    for q in range(4):
                        at = ((side * 4 + q) * k.n + u) * k.n
                        product(
                            k.ws,
                            wide(k.n),
                            rows,
                            k.r,
                            at,
                            k.n,
                            m,
                            k.n,
                            products + 4 * UNITS * q,
                            SIDES,
                        )
                    add_bias(bi, k.bias, side * 8, side * 8 + 4, k.n, u, m)
                    add_bias(bo, k.bias, side * 8 + 1, side * 8 + 5, k.n, u, m)
                    add_bias(bf, k.bias, side * 8 + 2, side * 8 + 6, k.n, u, m)
                    add_bias(bc, k.bias, side * 8 + 3, side * 8 + 7, k.n, u, m)
                    if k.peep != 0:
                        load_peep(pi, k.peep, side * 3 * k.n + u, m)
                        load_peep(po, k.peep, (side * 3 + 1) * k.n + u, m)
                        load_peep(pf, k.peep, (side * 3 + 2) * k.n + u, m)
                    for i in range(rows):
                        row = first + i
                        y_at = ((now * k.d + side) * k.b + row) * k.n + u
                        place = (side * k.t + now) * k.b + row
                        count = length(k.lens, row, k.t)
                        if now >= count:
                            store(none, k.y, y_at, m)
                            store(none, k.cells, place * k.n + u, m)
                            continue
                        then = before(now, count, backwards)
                        c_at = ((side * k.t + then) * k.b + row) * k.n + u if then >= 0 else -1
                        step(
                            k.gates, place * 4 * k.n + u, k.y, y_at, k.cells, place * k.n + u, c_at, k.c0,
                            (side * k.b + row) * k.n + u, products, i * SIDES, (pi, po, pf, k.peep),
                            (bi, bo, bf, bc), k.n, m,
                        )  # fmt: skip
            final_h(
                k.yh, k.y, k.d * k.b, k.b, k.h0, k.lens, side, first, rows, backwards, k.t, k.b, k.n
            )
            final_c(
                k.yc,
                k.cells,
                k.b,
                k.t * k.b,
                k.c0,
                k.lens,
                side,
                first,
                rows,
                backwards,
                k.t,
                k.b,
                k.n,
            )

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

    def run(thread, nthreads, k):
        dh, dc, pi, po, pf = new(), new(), new(), new(), new()
        height, each = tasks(k.b, k.d, nthreads)
        part = 4 * min(height, k.b) * wide(k.n)
        c, products = k.ws + 2 * part, k.ws + 3 * part
        for p in range(
            div(k.d * each * thread, nthreads), div(k.d * each * (thread + 1), nthreads)
        ):
            side, first, rows, backwards = task(p, height, each, k.b, k.back)
            start(k.ws, k.dyh, k.lens, side, first, rows, k.t, k.b, k.n)
            start(c, k.dyc, k.lens, side, first, rows, k.t, k.b, k.n)
            for s in range(k.t):
                now = s if backwards else k.t - 1 - s
                h, h_next = k.ws + part * (s & 1), k.ws + part * (1 - (s & 1))
                reset(h_next, rows, k.n)
                for u in range(0, k.n, UNITS):
                    m = min(UNITS, k.n - u)
                    if k.peep != 0:
                        load_peep(pi, k.peep, side * 3 * k.n + u, m)
                        load_peep(po, k.peep, (side * 3 + 1) * k.n + u, m)
                        load_peep(pf, k.peep, (side * 3 + 2) * k.n + u, m)
                    for i in range(rows):
                        row = first + i
                        place, own = (side * k.t + now) * k.b + row, i * wide(k.n) + u
                        count = length(k.lens, row, k.t)
                        at = place * 4 * k.n + u
                        if now >= count:
                            ended(k.dgates, at, products, i * SIDES, h, h_next, own, k.n, m)
                            continue
                        state_at = (side * k.b + row) * k.n + u
                        last = now == (0 if backwards else count - 1)
                        y_at = ((now * k.d + side) * k.b + row) * k.n + u
                        arrive(dh, h, own, k.dy, y_at, k.dyh, state_at, last, m)
                        arrive(dc, c, own, 0, 0, k.dyc, state_at, last, m)
                        then = before(now, count, backwards)
                        c_at = ((side * k.t + then) * k.b + row) * k.n + u if then >= 0 else -1
                        step(
                            k.gates, at, k.cells, place * k.n + u, c_at, k.c0, state_at, dh, dc, k.dgates,
                            products, i * SIDES, (pi, po, pf, k.peep), k.n, m,
                        )  # fmt: skip
                        store32(dc, c, own, m)
                    for q in range(4):
                        multiply(
                            products, UNITS * q, SIDES, 1, rows, k.r, ((side * 4 + q) * k.n + u) * k.n,
                            k.n, k.n, m, h_next, wide(k.n),
                        )  # fmt: skip
            leave(k.dh0, k.ws + part * (k.t & 1), side, first, rows, k.b, k.n)
            leave(k.dc0, c, side, first, rows, k.b, k.n)

    return run
