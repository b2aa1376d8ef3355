"""Layouts of a recurrence's values, and functions that its cells share.

Layouts, for d directions: gates [d, t, b, slots * n], y [t, d, b, n], cells [d, t, b, n], states of
one time [d, b, n]. A task is a direction and at most ROWS consecutive rows of the batch, which go
through time together; a block is UNITS of the n units. No result depends on how rows are grouped.
"""

import functools
from typing import NamedTuple

from ... import formats
from ..language.block import address_of, get, new, put
from ..language.calls import outline
from ..language.inlining import inline
from ..language.lanes import LANES
from ..language.mathf import ZERO, sigmoid, tanh
from ..language.prim import FP32, div, ld_i32, mod

ROWS = 16
UNITS = LANES
WIDE = "16*((n + 15)//16)"  # floats of a row of states in scratch
SIDES = 256  # floats of a row of products in scratch: UNITS of up to four gates
# Rows of a task: few if there are few units, or products would take more memory than weights.
TOGETHER = f"min({ROWS}, b, max(4, n//4))"


def meeting(sides: str, states: str) -> str:
    """Condition on a recurrence's storages: biases and peepholes (`sides`) are fp32 or stored like
    the weights W; initial states are fp32 or stored like W or the values S."""
    single = formats.FP32.name
    parts = [f"({name} == {single!r} or {name} == W)" for name in sides]
    parts += [f"({name} == {single!r} or {name} == W or {name} == S)" for name in states]
    return " and ".join(parts)


class Task(NamedTuple):
    """A direction, some consecutive rows, and whether time runs backwards."""

    side: int
    first: int
    rows: int
    backwards: int


class Spot(NamedTuple):
    """Offsets, in elements, of a block of units of one row at one time.

    Attributes:
      gates: of the block in the first slot.
      y_before, cell_before: of the step that this one starts from; -1: the initial state.
      state: in states of one time.
      unit, product: in rows of states and of products in scratch.
      m: units of the block.
    """

    gates: int
    y: int
    cell: int
    y_before: int
    cell_before: int
    state: int
    unit: int
    product: int
    m: int


@functools.cache
def loader(storage):
    """load(buffer, address, offset, m): load UNITS elements at `offset`, 0 from the m-th on. Not
    inlined."""
    load, put32 = storage.ld, FP32.st

    def fetch(buffer, address, offset, m):
        if m == LANES:
            for j in range(LANES):
                put32(buffer, j, load(address, offset + j))
        else:
            for j in range(m):
                put32(buffer, j, load(address, offset + j))
            for j in range(m, LANES):
                put32(buffer, j, ZERO)

    fetch = outline(f"et_recurrent_load_{storage.name}", fetch)

    @inline
    def load64(buffer, address, offset, m):
        fetch(address_of(buffer), address, offset, m)

    return load64


@functools.cache
def storer(storage):
    """store(buffer, address, offset, m): store m elements from `offset` on. Not inlined."""
    get32, store = FP32.ld, storage.st

    def keep(buffer, address, offset, m):
        if m == LANES:
            for j in range(LANES):
                store(address, offset + j, get32(buffer, j))
        else:
            for j in range(m):
                store(address, offset + j, get32(buffer, j))

    keep = outline(f"et_recurrent_store_{storage.name}", keep)

    @inline
    def store64(buffer, address, offset, m):
        keep(address_of(buffer), address, offset, m)

    return store64


def _squash(name, function):
    load, store = FP32.ld, FP32.st

    def run(buffer):
        for j in range(LANES):
            store(buffer, j, function(load(buffer, j)))

    run = outline(f"et_recurrent_{name}", run)

    @inline
    def squash(buffer):
        run(address_of(buffer))

    return squash


# (buffer): applied to all of its elements; not inlined
squash_sigmoid, squash_tanh = _squash("sigmoid", sigmoid), _squash("tanh", tanh)
load32, store32 = loader(FP32), storer(FP32)


@inline
def tasks(b, d, n, nthreads):
    """(rows of a task, tasks of a direction)."""
    most = min(ROWS, max(4, div(n, 4)))
    rows = max(1, min(most, div(b * d + nthreads - 1, nthreads)))
    return rows, div(b + rows - 1, rows)


@inline
def wide(n):
    """n rounded up to a multiple of 16."""
    return div(n + 15, 16) * 16


@inline
def task(args, number, rows, each):
    """The `Task` with this number."""
    side, first = div(number, each), mod(number, each) * rows
    backwards = 1 if args.back == 1 or (args.back == 2 and side == 1) else 0
    return Task(side, first, min(rows, args.b - first), backwards)


@inline
def length(args, row):
    """Steps of a row that count."""
    return args.t if args.lens == 0 else max(0, min(args.t, ld_i32(args.lens, row)))


@inline
def before(now, count, backwards):
    """The time whose state step `now` starts from; -1: the initial one."""
    if backwards:
        return now + 1 if now + 1 < count else -1
    return now - 1


@inline
def spot(args, task, slots, now, count, i, u):
    """The `Spot` of units from u on, of row i of a task; the row has `count` steps."""
    row, then = task.first + i, before(now, count, task.backwards)
    cell = ((task.side * args.t + now) * args.b + row) * args.n + u
    y = ((now * args.d + task.side) * args.b + row) * args.n + u
    cell_before = ((task.side * args.t + then) * args.b + row) * args.n + u if then >= 0 else -1
    y_before = ((then * args.d + task.side) * args.b + row) * args.n + u if then >= 0 else -1
    gates, state = (cell - u) * slots + u, (task.side * args.b + row) * args.n + u
    unit, product, m = i * wide(args.n) + u, i * SIDES, min(UNITS, args.n - u)
    return Spot(gates, y, cell, y_before, cell_before, state, unit, product, m)


@inline
def clear(buffer):
    """Zero a buffer."""
    for j in range(LANES):
        put(buffer, j, ZERO)


@functools.cache
def states(S, P):
    """state(buffer, y, offset, initial, at_initial, m): load units from `offset` on, if it is
    negative from the initial states."""
    load, load_initial = loader(S), loader(P)

    @inline
    def state(buffer, y, offset, initial, at_initial, m):
        if offset >= 0:
            load(buffer, y, offset, m)
        elif initial != 0:
            load_initial(buffer, initial, at_initial, m)
        else:
            clear(buffer)

    return state


@functools.cache
def gatherer(S, P):
    """gather(args, task, now): copy the states that step `now` starts from to rows of scratch,
    padded with zeros."""
    state = states(S, P)

    @inline
    def gather(args, task, now):
        buffer = new()
        for i in range(task.rows):
            row = task.first + i
            then = before(now, length(args, row), task.backwards)
            for u in range(0, args.n, UNITS):
                m = min(UNITS, args.n - u)
                offset = (
                    ((then * args.d + task.side) * args.b + row) * args.n + u if then >= 0 else -1
                )
                state(buffer, args.y, offset, args.h0, (task.side * args.b + row) * args.n + u, m)
                store32(buffer, args.ws, i * wide(args.n) + u, min(UNITS, wide(args.n) - u))

    return gather


@functools.cache
def biases(V):
    """bias(buffer, args, gate, other, u, m): the sum of W's and R's bias for a block of units.

    args.bias: [d, 2 * gates, n]; `gate` is W's, `other` R's, counted over both directions.
    """
    load = loader(V)

    @inline
    def bias(buffer, args, gate, other, u, m):
        if args.bias == 0:
            clear(buffer)
            return
        rest = new()
        load(buffer, args.bias, gate * args.n + u, m)
        load(rest, args.bias, other * args.n + u, m)
        for j in range(LANES):
            put(buffer, j, get(buffer, j) + get(rest, j))

    return bias


@functools.cache
def gate_loader(S):
    """gate(buffer, gates, at, ws, ws_at, bias, m): compute the argument of an activation."""
    load = loader(S)

    @inline
    def gate(buffer, gates, offset, ws, ws_at, bias, m):
        product = new()
        load(buffer, gates, offset, m)
        load32(product, ws, ws_at, m)
        for j in range(LANES):
            put(buffer, j, get(buffer, j) + get(product, j) + get(bias, j))

    return gate


@functools.cache
def finals(S, P):
    """final(args, task, out, y, y_time, y_side, initial): store the state of each row after its
    last step.

    y: a row of (time, side) begins at (time * y_time + side * y_side + row) * n.
    """
    state, store = states(S, P), storer(S)

    @inline
    def final(args, task, out, y, y_time, y_side, initial):
        if out == 0:
            return
        buffer = new()
        for i in range(task.rows):
            row = task.first + i
            count = length(args, row)
            last = 0 if task.backwards else count - 1
            for u in range(0, args.n, UNITS):
                m, target = min(UNITS, args.n - u), (task.side * args.b + row) * args.n + u
                offset = (
                    (last * y_time + task.side * y_side + row) * args.n + u if count > 0 else -1
                )
                state(buffer, y, offset, initial, target, m)
                store(buffer, out, target, m)

    return final


@functools.cache
def carriers(S):
    """(start, arrive): gradients that flow back through time, in rows of float32 scratch."""
    load = loader(S)

    @inline
    def start(args, task, ws, d_last):
        """Set them to zero, or for rows without a step to the gradient of the last state."""
        buffer = new()
        for i in range(task.rows):
            row = task.first + i
            for u in range(0, wide(args.n), UNITS):
                m = min(UNITS, args.n - u)
                clear(buffer)
                if d_last != 0 and m > 0 and length(args, row) == 0:
                    load(buffer, d_last, (task.side * args.b + row) * args.n + u, m)
                store32(buffer, ws, i * wide(args.n) + u, min(UNITS, wide(args.n) - u))

    @inline
    def arrive(buffer, ws, dy, d_last, spot, last):
        """buffer = gradient that flows back + gradient of this step (+ of the last state)."""
        more = new()
        load32(buffer, ws, spot.unit, spot.m)
        if dy != 0:
            load(more, dy, spot.y, spot.m)
            for j in range(LANES):
                put(buffer, j, get(buffer, j) + get(more, j))
        if last and d_last != 0:
            load(more, d_last, spot.state, spot.m)
            for j in range(LANES):
                put(buffer, j, get(buffer, j) + get(more, j))

    return start, arrive


@inline
def add_to(ws, offset, buffer, m):
    """Scratch += buffer."""
    old = new()
    load32(old, ws, offset, m)
    for j in range(LANES):
        put(old, j, get(old, j) + get(buffer, j))
    store32(old, ws, offset, m)


@inline
def reset(ws, rows, n):
    """Zero rows of scratch."""
    buffer = new()
    clear(buffer)
    for q in range(0, rows * wide(n), LANES):
        store32(buffer, ws, q, min(LANES, rows * wide(n) - q))


@inline
def leave(args, task, out, ws):
    """Copy the gradient left in scratch to the float32 gradient of the initial state."""
    if out == 0:
        return
    buffer = new()
    for i in range(task.rows):
        for u in range(0, args.n, UNITS):
            m = min(UNITS, args.n - u)
            load32(buffer, ws, i * wide(args.n) + u, m)
            store32(buffer, out, (task.side * args.b + task.first + i) * args.n + u, m)
