"""The two loops over time that all recurrences share; each cell defines its steps.

Forward: a block's products with R, then the rows' steps. Backward: the rows' steps, whose gradients
are multiplied by R as they are computed, block after block in float32. A cell may go over the
blocks of a time twice; each pass is a turn.
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
def one_turn(args):
    """One pass over the blocks."""
    return 1


@inline
def every(args, turn, gate):
    """All gates are multiplied by R in every turn."""
    return True


@inline
def nothing(args, task, more):
    """Do nothing, for cells without this part."""


class Forward(NamedTuple):
    """A cell's forward steps, as inline functions of the operands (args) and the arguments listed.

    Attributes:
      gates: R has gates * n rows.
      slots: of the array of gates.
      blocks: () -> a tuple of buffers (language/block.py) for what all rows share.
      constants: (blocks, args, side, u, m) fills them for a block of units.
      step: (args, blocks, products, spot, turn) computes gates and states.
      ended: (args, none, spot) stores zeros for a row that has ended.
      finish: (args, task) stores the last states.
      turns: (args) -> 1 or 2.
      takes: (args, turn, gate) -> whether the turn computes the product of this gate.
      between: (args, task, now) is called before the second turn.
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
    """run(thread, nthreads, args) of a recurrence; W, S, P: storages of R, values, initial
    states."""
    product, gather = dots(W), gatherer(S, P)
    gates, slots, blocks_of, constants, step, ended, finish, turns, takes, between = cell

    def run(thread, nthreads, args):
        blocks, none = blocks_of(), new()
        clear(none)
        height, each = tasks(args.b, args.d, args.n, nthreads)
        products, all_tasks = args.ws + 4 * min(height, args.b) * wide(args.n), args.d * each
        for p in range(div(all_tasks * thread, nthreads), div(all_tasks * (thread + 1), nthreads)):
            job = task(args, p, height, each)
            for s in range(args.t):
                now = args.t - 1 - s if job.backwards else s
                gather(args, job, now)
                for turn in range(turns(args)):
                    if turn == 1:
                        between(args, job, now)
                    for u in range(0, args.n, UNITS):
                        m = min(UNITS, args.n - u)
                        for q in range(gates):
                            if takes(args, turn, q):
                                offset = ((job.side * gates + q) * args.n + u) * args.n
                                to = 4 * UNITS * q
                                h, n = Factor(args.ws, 0, wide(args.n), 1), args.n
                                r = Factor(args.r, offset, n, 1)
                                product(h, job.rows, r, m, n, products + to, SIDES)
                        constants(blocks, args, job.side, u, m)
                        for i in range(job.rows):
                            count = length(args, job.first + i)
                            here = spot(args, job, slots, now, count, i, u)
                            if now >= count:
                                ended(args, none, here)
                            else:
                                step(args, blocks, products, here, turn)
            finish(args, job)

    return run


class Space(NamedTuple):
    """Addresses in scratch: gradients of h and of the previous h, a cell's own rows, one block of
    gradients of gates."""

    h: int
    h_next: int
    extra: int
    products: int


@inline
def to_state(args, gate, space):
    """Products with R are added to the gradient of the previous state."""
    return space.h_next


class Backward(NamedTuple):
    """A cell's backward steps; like `Forward`.

    Attributes:
      parts: arrays of rows in scratch, 2 or 3.
      step: (args, blocks, space, spot, turn, last): stores gradients before the activations in
        dgates and in space.products.
      start, finish: (args, task, extra): for gradients that flow back beside that of h.
      fresh: (args, task, extra), called at each time.
      target: (args, gate, space) -> rows to which a gate's gradient times R is added.
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
    def ended(args, space, spot, turn):
        """Row that has ended: gates get no gradient, the gradient that flows back is passed on."""
        buffer = new()
        clear(buffer)
        for q in range(gates):
            store32(buffer, space.products, spot.product + q * UNITS, LANES)
        if turn == 0:
            for q in range(slots):
                store(buffer, args.dgates, spot.gates + q * args.n, spot.m)
            load32(buffer, space.h, spot.unit, spot.m)
            add_to(space.h_next, spot.unit, buffer, spot.m)

    return ended


def backward(W, S, cell: Backward) -> Callable:
    """Like `forward`."""
    multiply, (start_h, _) = outer(FP32, W), carriers(S)
    gates, slots, parts, blocks_of, constants, step = cell[:6]
    turns, takes, start, fresh, finish, target = cell[6:]
    ended = _ended(S, gates, slots)

    def run(thread, nthreads, args):
        blocks = blocks_of()
        height, each = tasks(args.b, args.d, args.n, nthreads)
        part, all_tasks = 4 * min(height, args.b) * wide(args.n), args.d * each
        extra, products = args.ws + 2 * part, args.ws + parts * part
        for p in range(div(all_tasks * thread, nthreads), div(all_tasks * (thread + 1), nthreads)):
            job = task(args, p, height, each)
            start_h(args, job, args.ws, args.dyh)
            start(args, job, extra)
            for s in range(args.t):
                now = s if job.backwards else args.t - 1 - s
                odd = s & 1
                space = Space(args.ws + part * odd, args.ws + part * (1 - odd), extra, products)
                reset(space.h_next, job.rows, args.n)
                fresh(args, job, extra)
                for turn in range(turns(args)):
                    for u in range(0, args.n, UNITS):
                        m = min(UNITS, args.n - u)
                        constants(blocks, args, job.side, u, m)
                        for i in range(job.rows):
                            count = length(args, job.first + i)
                            here = spot(args, job, slots, now, count, i, u)
                            if now >= count:
                                ended(args, space, here, turn)
                            else:
                                last = now == (0 if job.backwards else count - 1)
                                step(args, blocks, space, here, turn, last)
                        for q in range(gates):
                            if takes(args, turn, q):
                                a = Factor(products, UNITS * q, SIDES, 1)
                                offset = ((job.side * gates + q) * args.n + u) * args.n
                                r, out = Factor(args.r, offset, args.n, 1), target(args, q, space)
                                multiply(a, job.rows, r, args.n, m, out, wide(args.n))
            leave(args, job, args.dh0, args.ws + part * (args.t & 1))
            finish(args, job, extra)

    return run
