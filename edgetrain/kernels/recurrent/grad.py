"""Gradients of the recurrent weights, biases and peepholes from those of the gates.

dgates [d, t, b, slots * n] is the output of lstm_bwd, gru_bwd or rnn_bwd; see recurrent/walk.py.
`kind` says how the third gate depends on the states. 1 (GRU with `after`): through q, whose
gradient is in the fourth slot. 2 (other GRUs): the fourth slot holds q, which R multiplied in place
of the states. 0: like the other gates.
"""

import numpy as np

from ..language.block import get, get_wide, new, new_wide, put, put_wide
from ..language.inlining import inline
from ..language.lanes import LANES
from ..language.lanes import reset as reset_wide
from ..language.prim import div, mod
from ..language.rng import stream
from ..registry import kernel
from .tile import TALL, Factor, outer
from .walk import UNITS, WIDE, before, length, load32, loader, reset, states, storer, wide

CHAIN = 128  # most terms of a chain of fma
_CHECK = (
    "min(t, b, d, n, slots, gates) > 0;d <= 2;(back == 2) == (d == 2);back <= 2;gates <= slots;"
    "kind <= 2;kind == 0 or (gates == 3 and slots == 4)"
)


def _adder(G):
    """add(out, offset, buffer, m, acc, sr, key): store units of a gradient, adding and rounding."""
    load, store, store_random = loader(G), storer(G), G.sr

    @inline
    def add(out, offset, buffer, m, acc, sr, key):
        if acc:
            old = new()
            load(old, out, offset, m)
            for j in range(LANES):
                put(buffer, j, get(old, j) + get(buffer, j))
        if sr:
            for j in range(m):
                store_random(out, offset + j, get(buffer, j), key)
        else:
            store(buffer, out, offset, m)

    return add


@kernel(
    "recurrent_dr",
    "dgates:r:S[d*t*b*slots*n] y:r:S[t*d*b*n] lens?:r:i32[b] h0?:r:P[d*b*n] "
    f"out:m:G[d*gates*n*n] ctl?:r:i64[64] ws:t[16*{WIDE}] "
    "t b d n back=0..2 slots gates kind=0..2 acc=flag sr=flag key=compared",
    check=_CHECK,
    work="gates*d*t*b*n*n",
)
def recurrent_dr(S, P, G):
    """out[d, gate, i, j] (+)= sum over steps and rows of dgate[i] * (previous h)[j].

    y: the stored states, h0: the initial ones. Order: chains of at most CHAIN rows by fma, added in
    order of time (forward; in reverse too), the initial states last. Scratch: four rows of the
    result. Threads split rows of the result, four at a time.
    """
    multiply, add = outer(S, S), _adder(G)
    multiply_initial = outer(S, P)

    @inline
    def span(args, a, rows, w, count):
        for first in range(0, count, CHAIN):
            left = Factor(a.address, a.offset + first * a.step, 1, a.step)
            right = Factor(w.address, w.offset + first * w.row, w.row, 1)
            multiply(left, rows, right, args.n, min(CHAIN, count - first), args.ws, wide(args.n))

    @inline
    def initial(args, column, rows, side, backwards):
        """Add the rows whose first step starts from h0."""
        together = args.lens == 0 or not backwards
        for row in range(0, args.b, CHAIN if together else 1):
            now = (args.t - 1 if backwards else 0) if together else length(args, row) - 1
            if now >= 0:
                offset = ((side * args.t + now) * args.b + row) * args.slots * args.n + column
                left = Factor(args.dgates, offset, 1, args.slots * args.n)
                right = Factor(args.h0, (side * args.b + row) * args.n, args.n, 1)
                count = min(CHAIN, args.b - row) if together else 1
                multiply_initial(left, rows, right, args.n, count, args.ws, wide(args.n))

    def run(thread, nthreads, args):
        random_key = stream(args.ctl, args.key) if args.sr != 0 and args.ctl != 0 else np.uint32(0)
        buffer, a_step, tiles = new(), args.slots * args.n, div(args.n + TALL - 1, TALL)
        # with only one direction, all its steps are contiguous in y
        spans, count = (1, (args.t - 1) * args.b) if args.d == 1 else (args.t - 1, args.b)
        lo = div(args.d * args.gates * tiles * thread, nthreads)
        for q in range(lo, div(args.d * args.gates * tiles * (thread + 1), nthreads)):
            side = div(q, args.gates * tiles)
            gate = mod(div(q, tiles), args.gates)
            i = mod(q, tiles) * TALL
            backwards = args.back == 1 or (args.back == 2 and side == 1)
            rows, first = min(TALL, args.n - i), side * args.t * args.b
            column = (3 if args.kind == 1 and gate == 2 else gate) * args.n + i
            reset(args.ws, TALL, args.n)
            if args.kind == 2 and gate == 2:
                offset = first * a_step
                left = Factor(args.dgates, offset + column, 1, a_step)
                span(
                    args,
                    left,
                    rows,
                    Factor(args.dgates, offset + 3 * args.n, a_step, 1),
                    args.t * args.b,
                )
            else:
                for s in range(spans):
                    offset = (first + (s if backwards else s + 1) * args.b) * a_step + column
                    y_at = (((s + 1 if backwards else s) * args.d + side) * args.b) * args.n
                    left = Factor(args.dgates, offset, 1, a_step)
                    span(args, left, rows, Factor(args.y, y_at, args.n, 1), count)
                if args.h0 != 0:
                    initial(args, column, rows, side, backwards)
            for r in range(rows):
                for u in range(0, args.n, UNITS):
                    m = min(UNITS, args.n - u)
                    load32(buffer, args.ws, r * wide(args.n) + u, m)
                    offset = ((side * args.gates + gate) * args.n + i + r) * args.n + u
                    add(args.out, offset, buffer, m, args.acc, args.sr, random_key)

    return run


@kernel(
    "recurrent_db",
    "dgates:r:S[d*t*b*slots*n] out:m:G[d*2*gates*n] ctl?:r:i64[64] "
    "t b d n back=0..2 slots gates kind=0..2 acc=flag sr=flag key=compared",
    check=_CHECK,
)
def recurrent_db(S, G):
    """out[d, W's gates then R's, n] (+)= sums of dgates over steps and rows, in float64, in order.

    Threads split gates and blocks of units.
    """
    load, add = loader(S), _adder(G)

    @inline
    def total(buffer, dgates, offset, step, count, m):
        sums = new_wide()
        reset_wide(sums, 0, 0.0)
        for k in range(count):
            load(buffer, dgates, offset + k * step, m)
            for j in range(LANES):
                put_wide(sums, j, get_wide(sums, j) + np.float64(get(buffer, j)))
        for j in range(LANES):
            put(buffer, j, np.float32(get_wide(sums, j)))

    def run(thread, nthreads, args):
        random_key = stream(args.ctl, args.key) if args.sr != 0 and args.ctl != 0 else np.uint32(0)
        buffer, blocks = new(), div(args.n + UNITS - 1, UNITS)
        lo = div(args.d * 2 * args.gates * blocks * thread, nthreads)
        for i in range(lo, div(args.d * 2 * args.gates * blocks * (thread + 1), nthreads)):
            place, u = div(i, blocks), mod(i, blocks) * UNITS
            side, gate = div(place, 2 * args.gates), mod(place, args.gates)
            of_r = mod(place, 2 * args.gates) >= args.gates
            slot = 3 if of_r and args.kind == 1 and gate == 2 else gate
            m = min(UNITS, args.n - u)
            offset = (side * args.t * args.b * args.slots + slot) * args.n + u
            total(buffer, args.dgates, offset, args.slots * args.n, args.t * args.b, m)
            add(args.out, place * args.n + u, buffer, m, args.acc, args.sr, random_key)

    return run


@kernel(
    "recurrent_dp",
    "dgates:r:S[d*t*b*4*n] cells:r:S[d*t*b*n] lens?:r:i32[b] c0?:r:Q[d*b*n] out:m:G[d*3*n] "
    "ctl?:r:i64[64] t b d n back=0..2 acc=flag sr=flag key=compared",
    check="min(t, b, d, n) > 0;d <= 2;(back == 2) == (d == 2);back <= 2",
)
def recurrent_dp(S, Q, G):
    """out[d, i o f, n] (+)= sum over steps and rows of dgate * c: the step's c for o, the previous
    step's for i and f.

    Sums are float64, in order of time and rows. Threads split gates and blocks of units.
    """
    load, state, add = loader(S), states(S, Q), _adder(G)

    def run(thread, nthreads, args):
        random_key = stream(args.ctl, args.key) if args.sr != 0 and args.ctl != 0 else np.uint32(0)
        slope, cell, sums, blocks = new(), new(), new_wide(), div(args.n + UNITS - 1, UNITS)
        lo = div(args.d * 3 * blocks * thread, nthreads)
        for i in range(lo, div(args.d * 3 * blocks * (thread + 1), nthreads)):
            place, u = div(i, blocks), mod(i, blocks) * UNITS
            side, gate, m = div(place, 3), mod(place, 3), min(UNITS, args.n - u)
            backwards = 1 if args.back == 1 or (args.back == 2 and side == 1) else 0
            reset_wide(sums, 0, 0.0)
            for step in range(args.t * args.b):
                now, row = div(step, args.b), mod(step, args.b)
                count, offset = length(args, row), side * args.t * args.b
                if now >= count:
                    continue
                load(slope, args.dgates, ((offset + step) * 4 + gate) * args.n + u, m)
                then = now if gate == 1 else before(now, count, backwards)
                c_at = (offset + then * args.b + row) * args.n + u if then >= 0 else -1
                state(cell, args.cells, c_at, args.c0, (side * args.b + row) * args.n + u, m)
                for j in range(LANES):
                    product = np.float64(get(slope, j)) * np.float64(get(cell, j))
                    put_wide(sums, j, get_wide(sums, j) + product)
            for j in range(LANES):
                put(slope, j, np.float32(get_wide(sums, j)))
            add(args.out, place * args.n + u, slope, m, args.acc, args.sr, random_key)

    return run
