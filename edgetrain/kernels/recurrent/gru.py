"""GRU: its steps forward and back. Slots of gates lie in the order z r n q; see recurrent/walk.py.

The fourth slot is what the candidate n needs of the states: q = h R_n + b where the reset gate is
applied after the product (`after` 1, as torch does), else q = r h, which is then multiplied.
"""

from ..jit import inline
from ..registry import kernel
from ..words.block import get, new, put
from ..words.lanes import LANES
from ..words.mathf import ONE
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

_SIZES = "t b d n back after"
_CHECK = "min(t, b, d, n) > 0;d <= 2;(back == 2) == (d == 2);back <= 2;after <= 1"


@inline
def _add_to(ws, at, buffer, m):
    """Scratch += buffer."""
    old = new()
    load32(old, ws, at, m)
    for j in range(LANES):
        put(old, j, get(old, j) + get(buffer, j))
    store32(old, ws, at, m)


def _forward_cell(P, S):
    """(opening, closing) of a block of units of one row."""
    gate, state, load, store = gate_loader(S), states(S, P), loader(S), storer(S)

    @inline
    def opening(gates, at, ws, ws_at, bz, br, bq, y, h_at, h0, h0_at, after, n, m):
        """z, r and q of a block."""
        z, r, q = new(), new(), new()
        gate(z, gates, at, ws, ws_at, bz, m)
        gate(r, gates, at + n, ws, ws_at + UNITS, br, m)
        squash_sigmoid(z)
        squash_sigmoid(r)
        if after:
            load32(q, ws, ws_at + 2 * UNITS, m)
            for j in range(LANES):
                put(q, j, get(q, j) + get(bq, j))
        else:
            state(q, y, h_at, h0, h0_at, m)
            for j in range(LANES):
                put(q, j, get(q, j) * get(r, j))
        store(z, gates, at, m)
        store(r, gates, at + n, m)
        store(q, gates, at + 3 * n, m)

    @inline
    def closing(gates, at, ws, ws_at, bn, y, y_at, h_at, h0, h0_at, after, n, m):
        """n and h of a block."""
        z, c, r, q = new(), new(), new(), new()
        if after:
            load(c, gates, at + 2 * n, m)
            load(r, gates, at + n, m)
            load(q, gates, at + 3 * n, m)
            for j in range(LANES):
                put(c, j, get(c, j) + get(bn, j) + get(r, j) * get(q, j))
        else:
            gate(c, gates, at + 2 * n, ws, ws_at + 2 * UNITS, bn, m)
        squash_tanh(c)
        store(c, gates, at + 2 * n, m)
        load(z, gates, at, m)
        load(c, gates, at + 2 * n, m)
        state(q, y, h_at, h0, h0_at, m)
        for j in range(LANES):
            put(q, j, (ONE - get(z, j)) * get(c, j) + get(z, j) * get(q, j))
        store(q, y, y_at, m)

    return opening, closing


@kernel(
    "gru",
    "r:r:W[d*3*n*n] bias?:r:V[d*6*n] lens?:r:i32[b] h0?:r:P[d*b*n] gates:m:S[d*t*b*4*n] "
    f"y:w:S[t*d*b*n] yh?:w:S[d*b*n] ws:t[4*min(16, b)*({WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="3*d*t*b*n*n",
)
def gru(W, V, P, S):
    """The first three slots of gates (x W^T) become z, r, n, the fourth q, step by step.

    h = (1 - z) n + z (h before). r [d, 3 n, n], bias [d, 6 n] (W's, then R's), lens [b]: steps of
    a row that count (y is 0 after them). back: 0 forward, 1 in reverse, 2 both. yh: the last
    states. Scratch: the rows' states and one block of products, in float32; h is what was stored.
    Threads split (direction, rows).
    """
    product, gather, add_bias, final = dots(W), gatherer(S, P), biases(V), finals(S, P)
    opening, closing = _forward_cell(P, S)
    load, store, load_bias = loader(S), storer(S), loader(V)

    @inline
    def one_bias(buffer, address, at, m):
        clear(buffer)
        if address != 0:
            load_bias(buffer, address, at, m)

    @inline
    def resets(ws, gates, side, first, rows, now, t, b, n):
        """The rows of scratch become q."""
        buffer = new()
        for i in range(rows):
            at = (((side * t + now) * b + first + i) * 4 + 3) * n
            for u in range(0, n, UNITS):
                load(buffer, gates, at + u, min(UNITS, n - u))
                store32(buffer, ws, i * wide(n) + u, min(UNITS, wide(n) - u))

    def run(
        thread, nthreads, r, bias, lens, h0, gates, y, yh, ws, t, b, d, n, back, after
    ):  # fmt: skip
        bz, br, bn, bq, none = new(), new(), new(), new(), new()
        clear(none)
        height, each = tasks(b, d, nthreads)
        products = ws + 4 * min(height, b) * wide(n)
        for k in range(div(d * each * thread, nthreads), div(d * each * (thread + 1), nthreads)):
            side, first, rows, backwards = task(k, height, each, b, back)
            for s in range(t):
                now = t - 1 - s if backwards else s
                gather(ws, y, h0, lens, side, first, rows, now, backwards, t, b, d, n)
                # a turn: the opening and, where q needs no product of all units, the closing
                for turn in range(1 if after else 2):
                    if turn == 1:
                        resets(ws, gates, side, first, rows, now, t, b, n)
                    for u in range(0, n, UNITS):
                        m = min(UNITS, n - u)
                        for q in range(2 * turn, 3 if after or turn else 2):
                            product(
                                ws, wide(n), rows, r, ((side * 3 + q) * n + u) * n, n, m, n,
                                products + 4 * UNITS * q, SIDES,
                            )  # fmt: skip
                        add_bias(bz, bias, side * 6, side * 6 + 3, n, u, m)
                        add_bias(br, bias, side * 6 + 1, side * 6 + 4, n, u, m)
                        if after:
                            one_bias(bn, bias, (side * 6 + 2) * n + u, m)
                            one_bias(bq, bias, (side * 6 + 5) * n + u, m)
                        else:
                            add_bias(bn, bias, side * 6 + 2, side * 6 + 5, n, u, m)
                        for i in range(rows):
                            row = first + i
                            y_at = ((now * d + side) * b + row) * n + u
                            at = ((side * t + now) * b + row) * 4 * n + u
                            count = length(lens, row, t)
                            if now >= count:
                                store(none, y, y_at, m)
                                store(none, gates, at + 3 * n, m)
                                continue
                            then = before(now, count, backwards)
                            h_at = ((then * d + side) * b + row) * n + u if then >= 0 else -1
                            h0_at = (side * b + row) * n + u
                            if turn == 0:
                                opening(
                                    gates, at, products, i * SIDES, bz, br, bq, y, h_at, h0,
                                    h0_at, after, n, m,
                                )  # fmt: skip
                            if turn == 1 or after:
                                closing(
                                    gates, at, products, i * SIDES, bn, y, y_at, h_at, h0,
                                    h0_at, after, n, m,
                                )  # fmt: skip
            final(yh, y, d * b, b, h0, lens, side, first, rows, backwards, t, b, n)

    return run


def _backward_cell(P, S):
    """(opening, closing, ended) of a block of units of one row."""
    state, load, store = states(S, P), loader(S), storer(S)

    @inline
    def opening(gates, at, y, h_at, h0, h0_at, dh, h_next, own, dgates, ws, ws_at, after, n, m):
        """Gradients of z and n, with `after` of r and q, from dh."""
        z, r, c, q = new(), new(), new(), new()
        load(z, gates, at, m)
        load(c, gates, at + 2 * n, m)
        state(q, y, h_at, h0, h0_at, m)
        for j in range(LANES):
            g, vz, vc = get(dh, j), get(z, j), get(c, j)
            put(dh, j, g * vz)
            put(z, j, g * (get(q, j) - vc) * vz * (ONE - vz))
            put(c, j, g * (ONE - vz) * (ONE - vc * vc))
        _add_to(h_next, own, dh, m)
        store(z, dgates, at, m)
        store32(z, ws, ws_at, LANES)
        if after:
            load(r, gates, at + n, m)
            load(q, gates, at + 3 * n, m)
            for j in range(LANES):
                g, v = get(c, j), get(r, j)
                put(r, j, g * get(q, j) * v * (ONE - v))
                put(q, j, g * v)
            store(r, dgates, at + n, m)
            store(q, dgates, at + 3 * n, m)
            store32(r, ws, ws_at + UNITS, LANES)
            store32(q, ws, ws_at + 2 * UNITS, LANES)
        else:
            store32(c, ws, ws_at + 2 * UNITS, LANES)
        store(c, dgates, at + 2 * n, m)

    @inline
    def closing(gates, at, y, h_at, h0, h0_at, drh, h_next, own, dgates, ws, ws_at, n, m):
        """Gradient of r from that of r h."""
        r, h, q = new(), new(), new()
        load(r, gates, at + n, m)
        load(q, gates, at + 3 * n, m)
        state(h, y, h_at, h0, h0_at, m)
        store(q, dgates, at + 3 * n, m)
        load32(q, drh, own, m)
        for j in range(LANES):
            g, v = get(q, j), get(r, j)
            put(q, j, g * v)
            put(r, j, g * get(h, j) * v * (ONE - v))
        _add_to(h_next, own, q, m)
        store(r, dgates, at + n, m)
        store32(r, ws, ws_at + UNITS, LANES)

    @inline
    def ended(dgates, at, ws, ws_at, h, h_next, own, turn, n, m):
        """A row that has ended: no gradient here, what came back goes on."""
        buffer = new()
        clear(buffer)
        for q in range(3):
            store32(buffer, ws, ws_at + q * UNITS, LANES)
        if turn == 0:
            for q in range(4):
                store(buffer, dgates, at + q * n, m)
            load32(buffer, h, own, m)
            _add_to(h_next, own, buffer, m)

    return opening, closing, ended


@kernel(
    "gru_bwd",
    "r:r:W[d*3*n*n] lens?:r:i32[b] h0?:r:P[d*b*n] gates:r:S[d*t*b*4*n] y:r:S[t*d*b*n] "
    "dy?:r:S[t*d*b*n] dyh?:r:S[d*b*n] dgates:w:S[d*t*b*4*n] dh0?:w:f32[d*b*n] "
    f"ws:t[4*min(16, b)*(3*{WIDE} + {SIDES})] {_SIZES}",
    check=_CHECK,
    work="3*d*t*b*n*n",
)
def gru_bwd(W, P, S):
    """dgates = gradient before the activations z r n of every step, 0 where a row has ended.

    Its fourth slot: the gradient of q (`after`), else q itself, which the gradient of R reads. It
    may overwrite gates. dh0: gradient of the initial state. Scratch: gradient of h of the rows and
    of the step before, of r h, one block of gates. Products with R as in lstm_bwd; threads as gru.
    """
    multiply = outer(FP32, W)
    opening, closing, ended = _backward_cell(P, S)
    start, arrive = carriers(S)

    def run(
        thread, nthreads, r, lens, h0, gates, y, dy, dyh, dgates, dh0, ws,
        t, b, d, n, back, after,
    ):  # fmt: skip
        dh = new()
        height, each = tasks(b, d, nthreads)
        part = 4 * min(height, b) * wide(n)
        drh, products = ws + 2 * part, ws + 3 * part
        for k in range(div(d * each * thread, nthreads), div(d * each * (thread + 1), nthreads)):
            side, first, rows, backwards = task(k, height, each, b, back)
            start(ws, dyh, lens, side, first, rows, t, b, n)
            for s in range(t):
                now = s if backwards else t - 1 - s
                h, h_next = ws + part * (s & 1), ws + part * (1 - (s & 1))
                reset(h_next, rows, n)
                reset(drh, rows, n)
                for block in range(div(n + UNITS - 1, UNITS) * (1 if after else 2)):
                    turn = 1 if block * UNITS >= n else 0
                    u = (block - turn * div(n + UNITS - 1, UNITS)) * UNITS
                    m = min(UNITS, n - u)
                    for i in range(rows):
                        row, own = first + i, i * wide(n) + u
                        at = ((side * t + now) * b + row) * 4 * n + u
                        count = length(lens, row, t)
                        if now >= count:
                            ended(dgates, at, products, i * SIDES, h, h_next, own, turn, n, m)
                            continue
                        then, h0_at = before(now, count, backwards), (side * b + row) * n + u
                        h_at = ((then * d + side) * b + row) * n + u if then >= 0 else -1
                        if turn == 0:
                            last = now == (0 if backwards else count - 1)
                            y_at = ((now * d + side) * b + row) * n + u
                            arrive(dh, h, own, dy, y_at, dyh, h0_at, last, m)
                            opening(
                                gates, at, y, h_at, h0, h0_at, dh, h_next, own, dgates, products,
                                i * SIDES, after, n, m,
                            )  # fmt: skip
                        else:
                            closing(
                                gates, at, y, h_at, h0, h0_at, drh, h_next, own, dgates,
                                products, i * SIDES, n, m,
                            )  # fmt: skip
                    for q in range(3):
                        if not after and (q == 1) != (turn == 1):
                            continue
                        multiply(
                            products, UNITS * q, SIDES, 1, rows, r, ((side * 3 + q) * n + u) * n,
                            n, n, m, drh if q == 2 and not after else h_next, wide(n),
                        )  # fmt: skip
            leave(dh0, ws + part * (t & 1), side, first, rows, b, n)

    return run
