"""LSTM: its steps forward and back. Gates are in the order i o f c; see recurrent/walk.py."""

from ..language.block import buffers, get, new, put
from ..language.inlining import inline
from ..language.lanes import LANES
from ..language.mathf import ONE, tanh
from ..registry import kernel
from .loop import Backward, Forward, backward, forward
from .walk import (
    SIDES,
    TOGETHER,
    UNITS,
    WIDE,
    biases,
    carriers,
    finals,
    gate_loader,
    leave,
    loader,
    meeting,
    squash_sigmoid,
    squash_tanh,
    states,
    store32,
    storer,
)

_SIZES = "t b d n back=0..2"
_CHECK = "min(t, b, d, n) > 0;d <= 2;(back == 2) == (d == 2);back <= 2"


@inline
def _plus(buffer, a, b):
    """buffer += a * b."""
    for j in range(LANES):
        put(buffer, j, get(buffer, j) + get(a, j) * get(b, j))


def _peepholes(O):  # noqa: E741 - a storage's name
    """(blocks, args, side, u, m): load the peepholes of i, o, f, if there are any."""
    load = loader(O)

    @inline
    def peepholes(blocks, args, side, u, m):
        if args.peep != 0:
            load(blocks[0], args.peep, side * 3 * args.n + u, m)
            load(blocks[1], args.peep, (side * 3 + 1) * args.n + u, m)
            load(blocks[2], args.peep, (side * 3 + 2) * args.n + u, m)

    return peepholes


def _forward_cell(V, O, P, Q, S) -> Forward:  # noqa: E741
    gate, cell_state, store = gate_loader(S), states(S, Q), storer(S)
    add_bias, peepholes, final_h, final_c = biases(V), _peepholes(O), finals(S, P), finals(S, Q)

    @inline
    def constants(blocks, args, side, u, m):
        peepholes(blocks, args, side, u, m)
        add_bias(blocks[3], args, side * 8, side * 8 + 4, u, m)
        add_bias(blocks[4], args, side * 8 + 1, side * 8 + 5, u, m)
        add_bias(blocks[5], args, side * 8 + 2, side * 8 + 6, u, m)
        add_bias(blocks[6], args, side * 8 + 3, side * 8 + 7, u, m)

    @inline
    def step(args, blocks, products, spot, turn):
        """Compute the gates, c and h of a block."""
        pi, po, pf, bi, bo, bf, bc = blocks
        i, o, f, c, old = new(), new(), new(), new(), new()
        offset, n, m, product = spot.gates, args.n, spot.m, spot.product
        gate(i, args.gates, offset, products, product, bi, m)
        gate(o, args.gates, offset + n, products, product + UNITS, bo, m)
        gate(f, args.gates, offset + 2 * n, products, product + 2 * UNITS, bf, m)
        gate(c, args.gates, offset + 3 * n, products, product + 3 * UNITS, bc, m)
        cell_state(old, args.cells, spot.cell_before, args.c0, spot.state, m)
        if args.peep != 0:
            _plus(i, pi, old)
            _plus(f, pf, old)
        squash_sigmoid(i)
        squash_sigmoid(f)
        squash_tanh(c)
        store(i, args.gates, offset, m)
        store(f, args.gates, offset + 2 * n, m)
        store(c, args.gates, offset + 3 * n, m)
        for j in range(LANES):
            put(c, j, get(f, j) * get(old, j) + get(i, j) * get(c, j))
        if args.peep != 0:
            _plus(o, po, c)
        squash_sigmoid(o)
        store(o, args.gates, offset + n, m)
        store(c, args.cells, spot.cell, m)
        for j in range(LANES):
            put(o, j, get(o, j) * tanh(get(c, j)))
        store(o, args.y, spot.y, m)

    @inline
    def ended(args, none, spot):
        store(none, args.y, spot.y, spot.m)
        store(none, args.cells, spot.cell, spot.m)

    @inline
    def finish(args, task):
        final_h(args, task, args.yh, args.y, args.d * args.b, args.b, args.h0)
        final_c(args, task, args.yc, args.cells, args.b, args.t * args.b, args.c0)

    return Forward(4, 4, buffers(7), constants, step, ended, finish)


@kernel(
    "lstm",
    "r:r:W[d*4*n*n] bias?:r:V[d*8*n] peep?:r:O[d*3*n] lens?:r:i32[b] h0?:r:P[d*b*n] c0?:r:Q[d*b*n] "
    "gates:m:S[d*t*b*4*n] y:w:S[t*d*b*n] cells:w:S[d*t*b*n] yh?:w:S[d*b*n] yc?:w:S[d*b*n] "
    f"ws:t[4*{TOGETHER}*({WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    storages=meeting("VO", "PQ"),
    work="4*d*t*b*n*n",
)
def lstm(W, V, O, P, Q, S):  # noqa: E741 - a storage's name
    """gates (x W^T) become sigmoid, sigmoid, sigmoid, tanh of gates + h R^T + biases, step by step.

    r [d, 4 n, n], bias [d, 8 n] (W's, then R's), peep [d, 3 n] (i o f), lens [b]: steps of each row
    that count (y is 0 after them). back: 0 forward, 1 in reverse, 2 both. cells: c of every step.
    yh, yc: the last states. Scratch: the rows' states and one block of products. The product is in
    float32; h and c are the stored values of the previous step. Threads split (direction, rows).
    """
    return forward(W, S, P, _forward_cell(V, O, P, Q, S))


def _backward_cell(O, Q, S) -> Backward:  # noqa: E741
    cell_state, load, store = states(S, Q), loader(S), storer(S)
    begin, arrive = carriers(S)

    @inline
    def step(args, blocks, space, spot, turn, last):
        """Compute the gradients of the gates from those of h and c, and turn the gradient of c into
        that of the previous c."""
        pi, po, pf = blocks
        i, o, f, g, c, dh, dc = new(), new(), new(), new(), new(), new(), new()
        offset, n, m, products, product = spot.gates, args.n, spot.m, space.products, spot.product
        arrive(dh, space.h, args.dy, args.dyh, spot, last)
        arrive(dc, space.extra, 0, args.dyc, spot, last)
        load(i, args.gates, offset, m)
        load(o, args.gates, offset + n, m)
        load(f, args.gates, offset + 2 * n, m)
        load(g, args.gates, offset + 3 * n, m)
        load(c, args.cells, spot.cell, m)
        for j in range(LANES):
            e, h, v = tanh(get(c, j)), get(dh, j), get(o, j)
            put(dc, j, get(dc, j) + h * v * (ONE - e * e))
            put(o, j, h * e * v * (ONE - v))
        if args.peep != 0:
            _plus(dc, po, o)
        cell_state(c, args.cells, spot.cell_before, args.c0, spot.state, m)
        for j in range(LANES):
            slope, vi, vf, vg = get(dc, j), get(i, j), get(f, j), get(g, j)
            put(i, j, slope * vg * vi * (ONE - vi))
            put(g, j, slope * vi * (ONE - vg * vg))
            put(f, j, slope * get(c, j) * vf * (ONE - vf))
            put(dc, j, slope * vf)
        if args.peep != 0:
            _plus(dc, pi, i)
            _plus(dc, pf, f)
        store(i, args.dgates, offset, m)
        store(o, args.dgates, offset + n, m)
        store(f, args.dgates, offset + 2 * n, m)
        store(g, args.dgates, offset + 3 * n, m)
        store32(i, products, product, LANES)
        store32(o, products, product + UNITS, LANES)
        store32(f, products, product + 2 * UNITS, LANES)
        store32(g, products, product + 3 * UNITS, LANES)
        store32(dc, space.extra, spot.unit, m)

    @inline
    def start(args, task, cells):
        begin(args, task, cells, args.dyc)

    @inline
    def finish(args, task, cells):
        leave(args, task, args.dc0, cells)

    return Backward(4, 4, 3, buffers(3), _peepholes(O), step, start=start, finish=finish)


@kernel(
    "lstm_bwd",
    "r:r:W[d*4*n*n] peep?:r:O[d*3*n] lens?:r:i32[b] c0?:r:Q[d*b*n] gates:r:S[d*t*b*4*n] "
    "cells:r:S[d*t*b*n] dy?:r:S[t*d*b*n] dyh?:r:S[d*b*n] dyc?:r:S[d*b*n] dgates:w:S[d*t*b*4*n] "
    f"dh0?:w:f32[d*b*n] dc0?:w:f32[d*b*n] ws:t[4*{TOGETHER}*(3*{WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="4*d*t*b*n*n",
)
def lstm_bwd(W, O, Q, S):  # noqa: E741 - a storage's name
    """dgates = gradient before the activations of every step, 0 after a row's end.

    dgates may overwrite gates. dh0, dc0: gradients of the initial states. Scratch: gradients of h
    and c of the rows, and of h of the previous step, one block of gates. Going back through time: a
    block's gates are multiplied by R as they are computed, block after block in float32. Threads as
    in lstm.
    """
    return backward(W, S, _backward_cell(O, Q, S))
