"""GRU: its steps forward and back. Slots of gates are in the order z r n q; see recurrent/walk.py.

The fourth slot is the part of the candidate n that depends on the states: q = h R_n + b if the
reset gate is applied after the product (`after` 1, as in torch); otherwise q = r h, which is
multiplied in a second turn, because it needs the states of all units.
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
def _turns(args):
    return 1 if args.after else 2


def _constants(V):
    """(blocks, args, side, u, m): load the biases of z, r, n and, if `after`, separately of q."""
    add_bias, load = biases(V), loader(V)

    @inline
    def one_bias(buffer, args, gate, u, m):
        clear(buffer)
        if args.bias != 0:
            load(buffer, args.bias, gate * args.n + u, m)

    @inline
    def constants(blocks, args, side, u, m):
        bz, br, bn, bq = blocks
        add_bias(bz, args, side * 6, side * 6 + 3, u, m)
        add_bias(br, args, side * 6 + 1, side * 6 + 4, u, m)
        if args.after:
            one_bias(bn, args, side * 6 + 2, u, m)
            one_bias(bq, args, side * 6 + 5, u, m)
        else:
            add_bias(bn, args, side * 6 + 2, side * 6 + 5, u, m)

    return constants


def _forward_cell(V, P, S) -> Forward:
    gate, state, load, store = gate_loader(S), states(S, P), loader(S), storer(S)
    final = finals(S, P)

    @inline
    def opening(args, blocks, products, spot):
        """Compute z, r and q of a block."""
        bz, br, _, bq = blocks
        z, r, q = new(), new(), new()
        offset, n, m, product = spot.gates, args.n, spot.m, spot.product
        gate(z, args.gates, offset, products, product, bz, m)
        gate(r, args.gates, offset + n, products, product + UNITS, br, m)
        squash_sigmoid(z)
        squash_sigmoid(r)
        if args.after:
            load32(q, products, product + 2 * UNITS, m)
            for j in range(LANES):
                put(q, j, get(q, j) + get(bq, j))
        else:
            state(q, args.y, spot.y_before, args.h0, spot.state, m)
            for j in range(LANES):
                put(q, j, get(q, j) * get(r, j))
        store(z, args.gates, offset, m)
        store(r, args.gates, offset + n, m)
        store(q, args.gates, offset + 3 * n, m)

    @inline
    def closing(args, bn, products, spot):
        """Compute n and h of a block."""
        z, c, r, q = new(), new(), new(), new()
        offset, n, m = spot.gates, args.n, spot.m
        if args.after:
            load(c, args.gates, offset + 2 * n, m)
            load(r, args.gates, offset + n, m)
            load(q, args.gates, offset + 3 * n, m)
            for j in range(LANES):
                put(c, j, get(c, j) + get(bn, j) + get(r, j) * get(q, j))
        else:
            gate(c, args.gates, offset + 2 * n, products, spot.product + 2 * UNITS, bn, m)
        squash_tanh(c)
        store(c, args.gates, offset + 2 * n, m)
        load(z, args.gates, offset, m)
        load(c, args.gates, offset + 2 * n, m)
        state(q, args.y, spot.y_before, args.h0, spot.state, m)
        for j in range(LANES):
            put(q, j, (ONE - get(z, j)) * get(c, j) + get(z, j) * get(q, j))
        store(q, args.y, spot.y, m)

    @inline
    def step(args, blocks, products, spot, turn):
        if turn == 0:
            opening(args, blocks, products, spot)
        if turn == 1 or args.after:
            closing(args, blocks[2], products, spot)

    @inline
    def takes(args, turn, q):
        return args.after or (q == 2) == (turn == 1)

    @inline
    def between(args, task, now):
        """Copy q to the rows of scratch."""
        buffer = new()
        for i in range(task.rows):
            offset = (((task.side * args.t + now) * args.b + task.first + i) * 4 + 3) * args.n
            for u in range(0, args.n, UNITS):
                load(buffer, args.gates, offset + u, min(UNITS, args.n - u))
                store32(buffer, args.ws, i * wide(args.n) + u, min(UNITS, wide(args.n) - u))

    @inline
    def ended(args, none, spot):
        store(none, args.y, spot.y, spot.m)
        store(none, args.gates, spot.gates + 3 * args.n, spot.m)

    @inline
    def finish(args, task):
        final(args, task, args.yh, args.y, args.d * args.b, args.b, args.h0)

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

    h = (1 - z) n + z (previous h). r [d, 3 n, n], bias [d, 6 n] (W's, then R's), lens [b]: steps of
    each row that count (y is 0 after them). back: 0 forward, 1 in reverse, 2 both. yh: the last
    states. Scratch: the rows' states and one block of products, in float32; h is the stored value.
    Threads split (direction, rows).
    """
    return forward(W, S, P, _forward_cell(V, P, S))


def _backward_cell(P, S) -> Backward:
    state, load, store, (_, arrive) = states(S, P), loader(S), storer(S), carriers(S)

    @inline
    def opening(args, dh, space, spot):
        """Compute the gradients of z and n, and with `after` of r and q, from dh."""
        z, r, c, q = new(), new(), new(), new()
        offset, n, m, products, product = spot.gates, args.n, spot.m, space.products, spot.product
        load(z, args.gates, offset, m)
        load(c, args.gates, offset + 2 * n, m)
        state(q, args.y, spot.y_before, args.h0, spot.state, m)
        for j in range(LANES):
            g, vz, vc = get(dh, j), get(z, j), get(c, j)
            put(dh, j, g * vz)
            put(z, j, g * (get(q, j) - vc) * vz * (ONE - vz))
            put(c, j, g * (ONE - vz) * (ONE - vc * vc))
        add_to(space.h_next, spot.unit, dh, m)
        store(z, args.dgates, offset, m)
        store32(z, products, product, LANES)
        if args.after:
            load(r, args.gates, offset + n, m)
            load(q, args.gates, offset + 3 * n, m)
            for j in range(LANES):
                g, v = get(c, j), get(r, j)
                put(r, j, g * get(q, j) * v * (ONE - v))
                put(q, j, g * v)
            store(r, args.dgates, offset + n, m)
            store(q, args.dgates, offset + 3 * n, m)
            store32(r, products, product + UNITS, LANES)
            store32(q, products, product + 2 * UNITS, LANES)
        else:
            store32(c, products, product + 2 * UNITS, LANES)
        store(c, args.dgates, offset + 2 * n, m)

    @inline
    def closing(args, space, spot):
        """Compute the gradient of r from that of r h."""
        r, h, q = new(), new(), new()
        offset, n, m = spot.gates, args.n, spot.m
        load(r, args.gates, offset + n, m)
        load(q, args.gates, offset + 3 * n, m)
        state(h, args.y, spot.y_before, args.h0, spot.state, m)
        store(q, args.dgates, offset + 3 * n, m)
        load32(q, space.extra, spot.unit, m)
        for j in range(LANES):
            g, v = get(q, j), get(r, j)
            put(q, j, g * v)
            put(r, j, g * get(h, j) * v * (ONE - v))
        add_to(space.h_next, spot.unit, q, m)
        store(r, args.dgates, offset + n, m)
        store32(r, space.products, spot.product + UNITS, LANES)

    @inline
    def constants(blocks, args, side, u, m):
        """No constants."""

    @inline
    def step(args, blocks, space, spot, turn, last):
        if turn == 0:
            arrive(blocks[0], space.h, args.dy, args.dyh, spot, last)
            opening(args, blocks[0], space, spot)
        else:
            closing(args, space, spot)

    @inline
    def takes(args, turn, q):
        return args.after or (q == 1) == (turn == 1)

    @inline
    def fresh(args, task, extra):
        reset(extra, task.rows, args.n)

    @inline
    def target(args, q, space):
        return space.extra if q == 2 and not args.after else space.h_next

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

    Its fourth slot: the gradient of q (`after`), else q itself, which the gradient of R reads.
    dgates may overwrite gates. dh0: gradient of the initial state. Scratch: gradients of h of the
    rows and of the previous step, of r h, one block of gates. Products with R as in lstm_bwd;
    threads as in gru.
    """
    return backward(W, S, _backward_cell(P, S))
