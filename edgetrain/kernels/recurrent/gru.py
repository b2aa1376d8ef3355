"""GRU: its steps forward and back. Slots of gates lie in the order z r n q; see recurrent/walk.py.

The fourth slot is the part of the candidate n that depends on the states: q = h R_n + b if the
reset gate is applied after the product (`after` 1, as in torch); else q = r h, which is multiplied
in a second pass, because it needs the states of all units.
"""

from ..language.block import buffers, get, new, put
from ..language.inlining import inline
from ..language.lanes import LANES
from ..language.mathf import ONE
from ..registry import kernel
from .loop import Backward, Forward, backward, forward
from .walk import (
    SIDES,
    TOGETHER,
    UNITS,
    WIDE,
    add_to,
    biases,
    carriers,
    clear,
    finals,
    gate_loader,
    load32,
    loader,
    meeting,
    reset,
    squash_sigmoid,
    squash_tanh,
    states,
    store32,
    storer,
    wide,
)

_SIZES = "t b d n back=0..2 after=flag"
_CHECK = "min(t, b, d, n) > 0;d <= 2;(back == 2) == (d == 2);back <= 2;after <= 1"


@inline
def _turns(k):
    return 1 if k.after else 2


def _constants(V):
    """(blocks, k, side, u, m): biases of z, r, n and, apart with `after`, of q."""
    add_bias, load = biases(V), loader(V)

    @inline
    def one_bias(buffer, k, gate, u, m):
        clear(buffer)
        if k.bias != 0:
            load(buffer, k.bias, gate * k.n + u, m)

    @inline
    def constants(blocks, k, side, u, m):
        bz, br, bn, bq = blocks
        add_bias(bz, k, side * 6, side * 6 + 3, u, m)
        add_bias(br, k, side * 6 + 1, side * 6 + 4, u, m)
        if k.after:
            one_bias(bn, k, side * 6 + 2, u, m)
            one_bias(bq, k, side * 6 + 5, u, m)
        else:
            add_bias(bn, k, side * 6 + 2, side * 6 + 5, u, m)

    return constants


def _forward_cell(V, P, S) -> Forward:
    gate, state, load, store = gate_loader(S), states(S, P), loader(S), storer(S)
    final = finals(S, P)

    @inline
    def opening(k, blocks, products, spot):
        """z, r and q of a block."""
        bz, br, _, bq = blocks
        z, r, q = new(), new(), new()
        at, n, m, own = spot.gates, k.n, spot.m, spot.product
        gate(z, k.gates, at, products, own, bz, m)
        gate(r, k.gates, at + n, products, own + UNITS, br, m)
        squash_sigmoid(z)
        squash_sigmoid(r)
        if k.after:
            load32(q, products, own + 2 * UNITS, m)
            for j in range(LANES):
                put(q, j, get(q, j) + get(bq, j))
        else:
            state(q, k.y, spot.y_before, k.h0, spot.state, m)
            for j in range(LANES):
                put(q, j, get(q, j) * get(r, j))
        store(z, k.gates, at, m)
        store(r, k.gates, at + n, m)
        store(q, k.gates, at + 3 * n, m)

    @inline
    def closing(k, bn, products, spot):
        """n and h of a block."""
        z, c, r, q = new(), new(), new(), new()
        at, n, m = spot.gates, k.n, spot.m
        if k.after:
            load(c, k.gates, at + 2 * n, m)
            load(r, k.gates, at + n, m)
            load(q, k.gates, at + 3 * n, m)
            for j in range(LANES):
                put(c, j, get(c, j) + get(bn, j) + get(r, j) * get(q, j))
        else:
            gate(c, k.gates, at + 2 * n, products, spot.product + 2 * UNITS, bn, m)
        squash_tanh(c)
        store(c, k.gates, at + 2 * n, m)
        load(z, k.gates, at, m)
        load(c, k.gates, at + 2 * n, m)
        state(q, k.y, spot.y_before, k.h0, spot.state, m)
        for j in range(LANES):
            put(q, j, (ONE - get(z, j)) * get(c, j) + get(z, j) * get(q, j))
        store(q, k.y, spot.y, m)

    @inline
    def step(k, blocks, products, spot, turn):
        if turn == 0:
            opening(k, blocks, products, spot)
        if turn == 1 or k.after:
            closing(k, blocks[2], products, spot)

    @inline
    def takes(k, turn, q):
        return k.after or (q == 2) == (turn == 1)

    @inline
    def between(k, task, now):
        """The rows of scratch become q."""
        buffer = new()
        for i in range(task.rows):
            at = (((task.side * k.t + now) * k.b + task.first + i) * 4 + 3) * k.n
            for u in range(0, k.n, UNITS):
                load(buffer, k.gates, at + u, min(UNITS, k.n - u))
                store32(buffer, k.ws, i * wide(k.n) + u, min(UNITS, wide(k.n) - u))

    @inline
    def ended(k, none, spot):
        store(none, k.y, spot.y, spot.m)
        store(none, k.gates, spot.gates + 3 * k.n, spot.m)

    @inline
    def finish(k, task):
        final(k, task, k.yh, k.y, k.d * k.b, k.b, k.h0)

    return Forward(3, 4, buffers(4), _constants(V), step, ended, finish, _turns, takes, between)


@kernel(
    "gru",
    "r:r:W[d*3*n*n] bias?:r:V[d*6*n] lens?:r:i32[b] h0?:r:P[d*b*n] gates:m:S[d*t*b*4*n] "
    f"y:w:S[t*d*b*n] yh?:w:S[d*b*n] ws:t[4*{TOGETHER}*({WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    storages=meeting("V", "P"),
    work="3*d*t*b*n*n",
)
def gru(W, V, P, S):
    """The first three slots of gates (x W^T) become z, r, n, the fourth q, step by step.

    h = (1 - z) n + z (h before). r [d, 3 n, n], bias [d, 6 n] (W's, then R's), lens [b]: steps of
    a row that count (y is 0 after them). back: 0 forward, 1 in reverse, 2 both. yh: the last
    states. Scratch: the rows' states and one block of products, in float32; h is what was stored.
    Threads split (direction, rows).
    """
    return forward(W, S, P, _forward_cell(V, P, S))


def _backward_cell(P, S) -> Backward:
    state, load, store, (_, arrive) = states(S, P), loader(S), storer(S), carriers(S)

    @inline
    def opening(k, dh, space, spot):
        """Gradients of z and n, with `after` of r and q, from dh."""
        z, r, c, q = new(), new(), new(), new()
        at, n, m, products, own = spot.gates, k.n, spot.m, space.products, spot.product
        load(z, k.gates, at, m)
        load(c, k.gates, at + 2 * n, m)
        state(q, k.y, spot.y_before, k.h0, spot.state, m)
        for j in range(LANES):
            g, vz, vc = get(dh, j), get(z, j), get(c, j)
            put(dh, j, g * vz)
            put(z, j, g * (get(q, j) - vc) * vz * (ONE - vz))
            put(c, j, g * (ONE - vz) * (ONE - vc * vc))
        add_to(space.h_next, spot.own, dh, m)
        store(z, k.dgates, at, m)
        store32(z, products, own, LANES)
        if k.after:
            load(r, k.gates, at + n, m)
            load(q, k.gates, at + 3 * n, m)
            for j in range(LANES):
                g, v = get(c, j), get(r, j)
                put(r, j, g * get(q, j) * v * (ONE - v))
                put(q, j, g * v)
            store(r, k.dgates, at + n, m)
            store(q, k.dgates, at + 3 * n, m)
            store32(r, products, own + UNITS, LANES)
            store32(q, products, own + 2 * UNITS, LANES)
        else:
            store32(c, products, own + 2 * UNITS, LANES)
        store(c, k.dgates, at + 2 * n, m)

    @inline
    def closing(k, space, spot):
        """Gradient of r from that of r h."""
        r, h, q = new(), new(), new()
        at, n, m = spot.gates, k.n, spot.m
        load(r, k.gates, at + n, m)
        load(q, k.gates, at + 3 * n, m)
        state(h, k.y, spot.y_before, k.h0, spot.state, m)
        store(q, k.dgates, at + 3 * n, m)
        load32(q, space.extra, spot.own, m)
        for j in range(LANES):
            g, v = get(q, j), get(r, j)
            put(q, j, g * v)
            put(r, j, g * get(h, j) * v * (ONE - v))
        add_to(space.h_next, spot.own, q, m)
        store(r, k.dgates, at + n, m)
        store32(r, space.products, spot.product + UNITS, LANES)

    @inline
    def constants(blocks, k, side, u, m):
        """None."""

    @inline
    def step(k, blocks, space, spot, turn, last):
        if turn == 0:
            arrive(blocks[0], space.h, k.dy, k.dyh, spot, last)
            opening(k, blocks[0], space, spot)
        else:
            closing(k, space, spot)

    @inline
    def takes(k, turn, q):
        return k.after or (q == 1) == (turn == 1)

    @inline
    def fresh(k, task, extra):
        reset(extra, task.rows, k.n)

    @inline
    def target(k, q, space):
        return space.extra if q == 2 and not k.after else space.h_next

    more = {"fresh": fresh, "target": target}
    return Backward(3, 4, 3, buffers(1), constants, step, _turns, takes, **more)


@kernel(
    "gru_bwd",
    "r:r:W[d*3*n*n] lens?:r:i32[b] h0?:r:P[d*b*n] gates:r:S[d*t*b*4*n] y:r:S[t*d*b*n] "
    "dy?:r:S[t*d*b*n] dyh?:r:S[d*b*n] dgates:w:S[d*t*b*4*n] dh0?:w:f32[d*b*n] "
    f"ws:t[4*{TOGETHER}*(3*{WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="3*d*t*b*n*n",
)
def gru_bwd(W, P, S):
    """dgates = gradient before the activations z r n of every step, 0 after a row's end.

    Its fourth slot: the gradient of q (`after`), else q itself, which the gradient of R reads. It
    may overwrite gates. dh0: gradient of the initial state. Scratch: gradient of h of the rows and
    of the step before, of r h, one block of gates. Products with R as in lstm_bwd; threads as gru.
    """
    return backward(W, S, _backward_cell(P, S))
