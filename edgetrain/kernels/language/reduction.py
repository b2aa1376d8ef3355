"""The one loop over kept and reduced dimensions that all reductions of strided tensors share.

Two orders of accumulation, chosen by shapes and strides alone:
  columns (neighbours in the output are neighbours in memory, or fewer than 16 terms): every
    output adds its terms one after the other in float64;
  rows: an output's terms are added in turn to 64 float64 partial results, which are combined in a
    fixed tree.
"""

from typing import NamedTuple

import numpy as np

from .block import BLOCK, add_wide, get, get_wide, larger, put, put_wide, smaller
from .inlining import inline
from .lanes import LANES, fold, reset
from .prim import div
from .strided import count, place


@inline
def _times(a, b):
    return a * b


# how two results combine, the neutral element, the name in lanes.fold
SUM, PROD = (add_wide, 0.0, "add"), (_times, 1.0, "mul")
MAX, MIN = (larger, -np.inf, "max"), (smaller, np.inf, "min")


class Walk(NamedTuple):
    """Six dims, and each operand's steps along them."""

    dims: tuple
    steps: tuple


class Result(NamedTuple):
    """Where results are stored: out[k] (+)= scale * result, rounded stochastically if `sr`."""

    out: int
    scale: np.float32
    acc: int
    sr: int
    random: int


def _finisher(G):
    ld, st, sr_store = G.ld, G.st, G.sr

    @inline
    def finish(to, k, m, wide, values):
        for j in range(m):
            put(values, j, np.float32(get_wide(wide, j)) * to.scale)
        if to.acc:
            for j in range(m):
                put(values, j, get(values, j) + ld(to.out, k + j))
        if to.sr:
            for j in range(m):
                sr_store(to.out, k + j, get(values, j), to.random)
        else:
            for j in range(m):
                st(to.out, k + j, get(values, j))

    return finish


@inline
def _places1(position, dims, steps):
    return (place(position, dims, steps[0]),)


@inline
def _places2(position, dims, steps):
    return place(position, dims, steps[0]), place(position, dims, steps[1])


@inline
def _places3(position, dims, steps):
    a, b = _places2(position, dims, steps)
    return a, b, place(position, dims, steps[2])


def reduction(block, kind, G, operands):
    """reduce(thread, nthreads, buffers, wide, addresses, kept, reduced, to): out[k] = (out[k] if
    acc) + scale * combined terms (k, r), for a thread's k; `kept`, `reduced`: Walk; `to`: Result.

    Args:
      block: block(buffers, addresses, origins, start, m, dims, steps) computes terms start ...
        start + m - 1 of a walk over `dims` into the last buffer.
      kind: SUM, MAX, MIN or PROD.
      G: storage of `out`, dense over the kept dims.
      operands: number of addresses (and tuples of strides), 1 to 3.
    """
    combine, start, name = kind
    block = inline(block)
    tree, finish = fold(name), _finisher(G)
    places = (_places1, _places2, _places3)[operands - 1]

    @inline
    def reduce(thread, nthreads, buffers, wide, addresses, kept, reduced, to):
        nk, nr = count(kept.dims), count(reduced.dims)
        lo, hi = div(nk * thread, nthreads), div(nk * (thread + 1), nthreads)
        terms = buffers[-1]
        columns = nr < 16 or (kept.steps[-1][5] == 1 and kept.dims[5] >= 8)
        inner, outer = (kept, reduced) if columns else (reduced, kept)
        rounds = nr if columns else div(nr + BLOCK - 1, BLOCK)
        for k in range(lo, hi, BLOCK if columns else 1):
            outputs = min(BLOCK, hi - k) if columns else 1
            for q in range(0, outputs, LANES):
                reset(wide, q, start)
            for t in range(rounds):
                offset = k if columns else t * BLOCK
                m = outputs if columns else min(BLOCK, nr - offset)
                origins = places(t if columns else k, outer.dims, outer.steps)
                block(buffers, addresses, origins, offset, m, inner.dims, inner.steps)
                for q in range(0, m, LANES):
                    lane = q if columns else 0
                    for j in range(min(LANES, m - q)):
                        term = np.float64(get(terms, q + j))
                        value = combine(get_wide(wide, lane + j), term)
                        put_wide(wide, lane + j, value)
            if not columns:
                put_wide(wide, 0, tree(wide))
            finish(to, k, outputs, wide, terms)

    return reduce
