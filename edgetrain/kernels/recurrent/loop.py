"""The two loops over time that all recurrences share; what a step does is its cell's.

Forward: a block's products with R, then the rows' steps. Back: the rows' steps, whose gradients are
multiplied with R as they are made, block after block in float32. A cell may go over the blocks of a
time twice: a turn.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..language.block import new
from ..language.inlining import inline
from ..language.lanes import LANES
from ..language.prim import FP32, div
from .tile import Factor, dots, outer
from .walk import (
    SIDES,
    UNITS,
    add_to,
    carriers,
    clear,
    gatherer,
    leave,
    length,
    load32,
    reset,
    spot,
    store32,
    storer,
    task,
    tasks,
    wide,
)


@inline
def one_turn(k):
    """Every block once."""
    return 1


@inline
def every(k, turn, gate):
    """All gates are multiplied with R in every turn."""
    return True


@inline
def nothing(k, task, more):
    """A cell without this."""


class Forward(NamedTuple):
    """A cell's steps; inline functions of the record k and of what is named.

    Attributes:
      gates: rows of R are gates * n.
      slots: of the array of gates.
      blocks: () -> a tuple of buffers (walk.buffers) for what is the same for all rows.
      constants: (blocks, k, side, u, m) fills them for a block of units.
      step: (k, blocks, products, spot, turn) makes gates and states.
      ended: (k, none, spot) stores zeros for a row that has ended.
      finish: (k, task) stores the last states.
      turns: (k) -> 1 or 2.
      takes: (k, turn, gate) -> whether the turn's products are those of this gate.
      between: (k, task, now), before the second turn.
    """

    gates: int
    slots: int
    blocks: Callable
    constants: Callable
    step: Callable
    ended: Callable
    finish: Callable
    turns: Callable = one_turn
    takes: Callable = every
    between: Callable = nothing


def forward(W, S, P, cell: Forward) -> Callable:
    """run(thread, nthreads, k) of a recurrence; W, S, P: storages of R, values, initial states."""
    product, gather = dots(W), gatherer(S, P)
    gates, slots, blocks_of, constants, step, ended, finish, turns, takes, between = cell

    def run(thread, nthreads, k):
        blocks, none = blocks_of(), new()
        clear(none)
        height, each = tasks(k.b, k.d, k.n, nthreads)
        products, all_tasks = k.ws + 4 * min(height, k.b) * wide(k.n), k.d * each
        for p in range(div(all_tasks * thread, nthreads), div(all_tasks * (thread + 1), nthreads)):
            own = task(k, p, height, each)
            for s in range(k.t):
                now = k.t - 1 - s if own.backwards else s
                gather(k, own, now)
                for turn in range(turns(k)):
                    if turn == 1:
                        between(k, own, now)
                    for u in range(0, k.n, UNITS):
                        m = min(UNITS, k.n - u)
                        for q in range(gates):
                            if takes(k, turn, q):
                                at, to = ((own.side * gates + q) * k.n + u) * k.n, 4 * UNITS * q
                                h, n = Factor(k.ws, 0, wide(k.n), 1), k.n
                                r = Factor(k.r, at, n, 1)
                                product(h, own.rows, r, m, n, products + to, SIDES)
                        constants(blocks, k, own.side, u, m)
                        for i in range(own.rows):
                            count = length(k, own.first + i)
                            here = spot(k, own, slots, now, count, i, u)
                            if now >= count:
                                ended(k, none, here)
                            else:
                                step(k, blocks, products, here, turn)
            finish(k, own)

    return run


class Space(NamedTuple):
    """Addresses in scratch: gradients of h and of the h before, a cell's own rows, one block of
    gradients of gates."""

    h: int
    h_next: int
    extra: int
    products: int


@inline
def to_state(k, gate, space):
    """Products with R are gradients of the state before."""
    return space.h_next


class Backward(NamedTuple):
    """A cell's steps back; as Forward.

    Attributes:
      parts: arrays of rows in scratch, 2 or 3.
      step: (k, blocks, space, spot, turn, last): gradients before the activations, to dgates and
        to space.products.
      start, finish: (k, task, extra): of what flows back beside h.
      fresh: (k, task, extra), at each time.
      target: (k, gate, space) -> rows that the product with R of a gate's gradient is added to.
    """

    gates: int
    slots: int
    parts: int
    blocks: Callable
    constants: Callable
    step: Callable
    turns: Callable = one_turn
    takes: Callable = every
    start: Callable = nothing
    fresh: Callable = nothing
    finish: Callable = nothing
    target: Callable = to_state


def _ended(S, gates: int, slots: int) -> Callable:
    store = storer(S)

    @inline
    def ended(k, space, spot, turn):
        """A row that has ended: no gradient here, what came back goes on."""
        buffer = new()
        clear(buffer)
        for q in range(gates):
            store32(buffer, space.products, spot.product + q * UNITS, LANES)
        if turn == 0:
            for q in range(slots):
                store(buffer, k.dgates, spot.gates + q * k.n, spot.m)
            load32(buffer, space.h, spot.own, spot.m)
            add_to(space.h_next, spot.own, buffer, spot.m)

    return ended


def backward(W, S, cell: Backward) -> Callable:
    """As `forward`."""
    multiply, (start_h, _) = outer(FP32, W), carriers(S)
    gates, slots, parts, blocks_of, constants, step = cell[:6]
    turns, takes, start, fresh, finish, target = cell[6:]
    ended = _ended(S, gates, slots)

    def run(thread, nthreads, k):
        blocks = blocks_of()
        height, each = tasks(k.b, k.d, k.n, nthreads)
        part, all_tasks = 4 * min(height, k.b) * wide(k.n), k.d * each
        extra, products = k.ws + 2 * part, k.ws + parts * part
        for p in range(div(all_tasks * thread, nthreads), div(all_tasks * (thread + 1), nthreads)):
            own = task(k, p, height, each)
            start_h(k, own, k.ws, k.dyh)
            start(k, own, extra)
            for s in range(k.t):
                now = s if own.backwards else k.t - 1 - s
                odd = s & 1
                space = Space(k.ws + part * odd, k.ws + part * (1 - odd), extra, products)
                reset(space.h_next, own.rows, k.n)
                fresh(k, own, extra)
                for turn in range(turns(k)):
                    for u in range(0, k.n, UNITS):
                        m = min(UNITS, k.n - u)
                        constants(blocks, k, own.side, u, m)
                        for i in range(own.rows):
                            count = length(k, own.first + i)
                            here = spot(k, own, slots, now, count, i, u)
                            if now >= count:
                                ended(k, space, here, turn)
                            else:
                                last = now == (0 if own.backwards else count - 1)
                                step(k, blocks, space, here, turn, last)
                        for q in range(gates):
                            if takes(k, turn, q):
                                a = Factor(products, UNITS * q, SIDES, 1)
                                at = ((own.side * gates + q) * k.n + u) * k.n
                                r, out = Factor(k.r, at, k.n, 1), target(k, q, space)
                                multiply(a, own.rows, r, k.n, m, out, wide(k.n))
            leave(k, own, k.dh0, k.ws + part * (k.t & 1))
            finish(k, own, extra)

    return run
