"""Gradients of the recurrent weights, biases and peepholes from those of the gates.

dgates [d, t, b, slots * n] as lstm_bwd, gru_bwd and rnn_bwd leave them; see recurrent/walk.py.
`kind` tells how a GRU's third gate meets the states: 1 by the fourth slot, which holds that
gradient; 2 the fourth slot holds what R was multiplied with, in place of the states; 0 otherwise.
"""

import numpy as np

from ..jit import inline
from ..registry import kernel
from ..words.block import get, get_wide, new, new_wide, put, put_wide
from ..words.lanes import LANES
from ..words.lanes import reset as reset_wide
from ..words.prim import div, mod
from ..words.rng import stream
from .tile import TALL, outer
from .walk import UNITS, WIDE, before, length, load32, loader, reset, states, storer, wide

CHAIN = 128  # terms of a chain of fma
_CHECK = (
    "min(t, b, d, n, slots, gates) > 0;d <= 2;(back == 2) == (d == 2);back <= 2;gates <= slots;"
    "kind <= 2;kind == 0 or (gates == 3 and slots == 4)"
)


def _adder(G):
    """add(out, at, buffer, m, acc, sr, key): units of a gradient stored as asked."""
    load, store, store_random = loader(G), storer(G), G.sr

    @inline
    def add(out, at, buffer, m, acc, sr, key):
        if acc:
            old = new()
            load(old, out, at, m)
            for j in range(LANES):
                put(buffer, j, get(old, j) + get(buffer, j))
        if sr:
            for j in range(m):
                store_random(out, at + j, get(buffer, j), key)
        else:
            store(buffer, out, at, m)

    return add


@kernel(
    "recurrent_dr",
    "dgates:r:S[d*t*b*slots*n] y:r:S[t*d*b*n] lens?:r:i32[b] h0?:r:P[d*b*n] "
    f"out:m:G[d*gates*n*n] ctl?:r:i64[64] ws:t[16*{WIDE}] "
    "t b d n back slots gates kind acc sr key",
    check=_CHECK,
    work="gates*d*t*b*n*n",
)
def recurrent_dr(S, P, G):
    """out[d, gate, i, j] (+)= sum over steps and rows of dgate[i] * (h before)[j].

    y: the states that were stored, h0: the initial ones. Order: chains of at most CHAIN rows by
    fma, added in order of time (forward; in reverse too), the initial states last. Scratch: four
    rows of the result. Threads split rows of the result, four at a time.
    """
    multiply, add = outer(S, S), _adder(G)
    multiply_initial = outer(S, P)

    @inline
    def span(a, a_at, a_step, rows, w, w_at, w_step, n, count, ws):
        for k in range(0, count, CHAIN):
            multiply(
                a, a_at + k * a_step, 1, a_step, rows, w, w_at + k * w_step, w_step, n,
                min(CHAIN, count - k), ws, wide(n),
            )  # fmt: skip

    @inline
    def initial(dgates, column, rows, lens, h0, side, backwards, t, b, n, a_step, ws):
        """Rows whose first step starts from h0."""
        if lens == 0 or not backwards:
            now = t - 1 if backwards else 0
            for k in range(0, b, CHAIN):
                at = ((side * t + now) * b + k) * a_step + column
                multiply_initial(
                    dgates, at, 1, a_step, rows, h0, (side * b + k) * n, n, n, min(CHAIN, b - k),
                    ws, wide(n),
                )  # fmt: skip
            return
        for row in range(b):
            now = length(lens, row, t) - 1
            if now >= 0:
                at = ((side * t + now) * b + row) * a_step + column
                multiply_initial(
                    dgates, at, 1, a_step, rows, h0, (side * b + row) * n, n, n, 1, ws, wide(n)
                )

    def run(
        thread, nthreads, dgates, y, lens, h0, out, ctl, ws,
        t, b, d, n, back, slots, gates, kind, acc, sr, key,
    ):  # fmt: skip
        random_key = stream(ctl, key) if sr != 0 and ctl != 0 else np.uint32(0)
        buffer, a_step, tiles = new(), slots * n, div(n + TALL - 1, TALL)
        # all steps of one direction follow each other in y where it is the only one
        spans, count = (1, (t - 1) * b) if d == 1 else (t - 1, b)
        lo = div(d * gates * tiles * thread, nthreads)
        for k in range(lo, div(d * gates * tiles * (thread + 1), nthreads)):
            side, gate, i = div(k, gates * tiles), mod(div(k, tiles), gates), mod(k, tiles) * TALL
            backwards = back == 1 or (back == 2 and side == 1)
            rows, first = min(TALL, n - i), side * t * b
            column = (3 if kind == 1 and gate == 2 else gate) * n + i
            reset(ws, TALL, n)
            if kind == 2 and gate == 2:
                at = first * a_step
                span(dgates, at + column, a_step, rows, dgates, at + 3 * n, a_step, n, t * b, ws)
            else:
                for s in range(spans):
                    at = (first + (s if backwards else s + 1) * b) * a_step + column
                    y_at = (((s + 1 if backwards else s) * d + side) * b) * n
                    span(dgates, at, a_step, rows, y, y_at, n, n, count, ws)
                if h0 != 0:
                    initial(
                        dgates, column, rows, lens, h0, side, backwards, t, b, n, a_step, ws
                    )  # fmt: skip
            for r in range(rows):
                for u in range(0, n, UNITS):
                    m = min(UNITS, n - u)
                    load32(buffer, ws, r * wide(n) + u, m)
                    at = ((side * gates + gate) * n + i + r) * n + u
                    add(out, at, buffer, m, acc, sr, random_key)

    return run


@kernel(
    "recurrent_db",
    "dgates:r:S[d*t*b*slots*n] out:m:G[d*2*gates*n] ctl?:r:i64[64] "
    "t b d n back slots gates kind acc sr key",
    check=_CHECK,
)
def recurrent_db(S, G):
    """out[d, W's gates then R's, n] (+)= sums of dgates over steps and rows, in float64, in order.

    Threads split gates and blocks of units.
    """
    load, add = loader(S), _adder(G)

    @inline
    def total(buffer, dgates, at, step, count, m):
        sums = new_wide()
        reset_wide(sums, 0, 0.0)
        for k in range(count):
            load(buffer, dgates, at + k * step, m)
            for j in range(LANES):
                put_wide(sums, j, get_wide(sums, j) + np.float64(get(buffer, j)))
        for j in range(LANES):
            put(buffer, j, np.float32(get_wide(sums, j)))

    def run(
        thread, nthreads, dgates, out, ctl, t, b, d, n, back, slots, gates, kind, acc, sr, key
    ):  # fmt: skip
        random_key = stream(ctl, key) if sr != 0 and ctl != 0 else np.uint32(0)
        buffer, blocks = new(), div(n + UNITS - 1, UNITS)
        lo = div(d * 2 * gates * blocks * thread, nthreads)
        for k in range(lo, div(d * 2 * gates * blocks * (thread + 1), nthreads)):
            place, u = div(k, blocks), mod(k, blocks) * UNITS
            side, gate = div(place, 2 * gates), mod(place, gates)
            of_r = mod(place, 2 * gates) >= gates
            slot = 3 if of_r and kind == 1 and gate == 2 else gate
            m, at = min(UNITS, n - u), (side * t * b * slots + slot) * n + u
            total(buffer, dgates, at, slots * n, t * b, m)
            add(out, place * n + u, buffer, m, acc, sr, random_key)

    return run


@kernel(
    "recurrent_dp",
    "dgates:r:S[d*t*b*4*n] cells:r:S[d*t*b*n] lens?:r:i32[b] c0?:r:Q[d*b*n] out:m:G[d*3*n] "
    "ctl?:r:i64[64] t b d n back acc sr key",
    check="min(t, b, d, n) > 0;d <= 2;(back == 2) == (d == 2);back <= 2",
)
def recurrent_dp(S, Q, G):
    """out[d, i o f, n] (+)= sum over steps and rows of dgate * c (o), of the step before (i, f).

    Sums are float64, in order of time and rows. Threads split gates and blocks of units.
    """
    load, state, add = loader(S), states(S, Q), _adder(G)

    def run(
        thread, nthreads, dgates, cells, lens, c0, out, ctl, t, b, d, n, back, acc, sr, key
    ):  # fmt: skip
        random_key = stream(ctl, key) if sr != 0 and ctl != 0 else np.uint32(0)
        slope, cell, sums, blocks = new(), new(), new_wide(), div(n + UNITS - 1, UNITS)
        lo = div(d * 3 * blocks * thread, nthreads)
        for k in range(lo, div(d * 3 * blocks * (thread + 1), nthreads)):
            place, u = div(k, blocks), mod(k, blocks) * UNITS
            side, gate, m = div(place, 3), mod(place, 3), min(UNITS, n - u)
            backwards = 1 if back == 1 or (back == 2 and side == 1) else 0
            reset_wide(sums, 0, 0.0)
            for step in range(t * b):
                now, row = div(step, b), mod(step, b)
                count, at = length(lens, row, t), side * t * b
                if now >= count:
                    continue
                load(slope, dgates, ((at + step) * 4 + gate) * n + u, m)
                then = now if gate == 1 else before(now, count, backwards)
                c_at = (at + then * b + row) * n + u if then >= 0 else -1
                state(cell, cells, c_at, c0, (side * b + row) * n + u, m)
                for j in range(LANES):
                    product = np.float64(get(slope, j)) * np.float64(get(cell, j))
                    put_wide(sums, j, get_wide(sums, j) + product)
            for j in range(LANES):
                put(slope, j, np.float32(get_wide(sums, j)))
            add(out, place * n + u, slope, m, acc, sr, random_key)

    return run
