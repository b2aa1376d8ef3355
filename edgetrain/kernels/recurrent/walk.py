"""Where a recurrence finds its values, and what its cells share.

Layouts, d directions: gates [d, t, b, slots * n], y [t, d, b, n], cells [d, t, b, n], states of
one time [d, b, n]. A task is a direction and at most ROWS neighbouring rows of the batch, which
walk through time together; a block is UNITS units of the n. Nothing that is computed depends on
how rows are grouped.
"""

import functools

from numba import types
from numba.extending import intrinsic

from ..jit import inline
from ..words.block import get, new, put
from ..words.lanes import LANES
from ..words.mathf import ZERO, sigmoid, tanh
from ..words.prim import FP32, I64, div, ld_i32, mod
from ..words.vector import outline

ROWS = 16
UNITS = LANES
WIDE = "16*((n + 15)//16)"  # floats of a row of states in scratch
SIDES = 256  # floats of a row of products in scratch: UNITS of up to four gates


@intrinsic
def _address(typingctx, buffer):
    def codegen(context, builder, signature, args):
        return builder.ptrtoint(args[0], I64)

    return types.int64(types.voidptr), codegen


@functools.cache
def loader(storage):
    """load(buffer, address, at, m): UNITS elements from `at` on; 0 from the m-th. One function."""
    load, put32 = storage.ld, FP32.st

    def fetch(buffer, address, at, m):
        if m == LANES:
            for j in range(LANES):
                put32(buffer, j, load(address, at + j))
        else:
            for j in range(m):
                put32(buffer, j, load(address, at + j))
            for j in range(m, LANES):
                put32(buffer, j, ZERO)

    fetch = outline(f"et_recurrent_load_{storage.name}", fetch)

    @inline
    def load64(buffer, address, at, m):
        fetch(_address(buffer), address, at, m)

    return load64


@functools.cache
def storer(storage):
    """store(buffer, address, at, m): the first m elements go to `at` on. One function."""
    get32, store = FP32.ld, storage.st

    def keep(buffer, address, at, m):
        if m == LANES:
            for j in range(LANES):
                store(address, at + j, get32(buffer, j))
        else:
            for j in range(m):
                store(address, at + j, get32(buffer, j))

    keep = outline(f"et_recurrent_store_{storage.name}", keep)

    @inline
    def store64(buffer, address, at, m):
        keep(_address(buffer), address, at, m)

    return store64


def _squash(name, function):
    load, store = FP32.ld, FP32.st

    def run(buffer):
        for j in range(LANES):
            store(buffer, j, function(load(buffer, j)))

    run = outline(f"et_recurrent_{name}", run)

    @inline
    def squash(buffer):
        run(_address(buffer))

    return squash


# (buffer): all of its elements; one function
squash_sigmoid, squash_tanh = _squash("sigmoid", sigmoid), _squash("tanh", tanh)
load32, store32 = loader(FP32), storer(FP32)


@inline
def tasks(b, d, nthreads):
    """(rows of a task, tasks of a direction)."""
    rows = max(1, min(ROWS, div(b * d + nthreads - 1, nthreads)))
    return rows, div(b + rows - 1, rows)


@inline
def wide(n):
    """n rounded up to a multiple of 16."""
    return div(n + 15, 16) * 16


@inline
def task(k, rows, each, b, back):
    """(direction, first row, rows, whether time runs backwards) of task k."""
    side = div(k, each)
    first = mod(k, each) * rows
    return side, first, min(rows, b - first), 1 if back == 1 or (back == 2 and side == 1) else 0


@inline
def length(lens, row, t):
    """Steps of a row that count."""
    return t if lens == 0 else max(0, min(t, ld_i32(lens, row)))


@inline
def before(now, count, backwards):
    """The time whose state step `now` starts from; -1: the initial one."""
    if backwards:
        return now + 1 if now + 1 < count else -1
    return now - 1


@inline
def clear(buffer):
    """A buffer of zeros."""
    for j in range(LANES):
        put(buffer, j, ZERO)


@functools.cache
def states(S, P):
    """state(buffer, y, at, initial, at_initial, m): units from `at`, or initial ones below 0."""
    load, load_initial = loader(S), loader(P)

    @inline
    def state(buffer, y, at, initial, at_initial, m):
        if at >= 0:
            load(buffer, y, at, m)
        elif initial != 0:
            load_initial(buffer, initial, at_initial, m)
        else:
            clear(buffer)

    return state


@functools.cache
def gatherer(S, P):
    """gather(ws, ...): the states that step `now` starts from, as rows of scratch, 0 beyond n."""
    state = states(S, P)

    @inline
    def gather(ws, y, h0, lens, side, first, rows, now, backwards, t, b, d, n):
        buffer = new()
        for i in range(rows):
            row = first + i
            then = before(now, length(lens, row, t), backwards)
            for u in range(0, n, UNITS):
                m = min(UNITS, n - u)
                at = ((then * d + side) * b + row) * n + u if then >= 0 else -1
                state(buffer, y, at, h0, (side * b + row) * n + u, m)
                store32(buffer, ws, i * wide(n) + u, min(UNITS, wide(n) - u))

    return gather


@functools.cache
def biases(V):
    """bias(buffer, address, gate, other, gates, n, u, m): units of W's and R's bias added.

    address: [d, 2 * gates, n]; `gate` counts from the direction's first, `other` is that of R's.
    """
    load = loader(V)

    @inline
    def bias(buffer, address, gate, other, n, u, m):
        if address == 0:
            clear(buffer)
            return
        rest = new()
        load(buffer, address, gate * n + u, m)
        load(rest, address, other * n + u, m)
        for j in range(LANES):
            put(buffer, j, get(buffer, j) + get(rest, j))

    return bias


@functools.cache
def gate_loader(S):
    """gate(buffer, gates, at, ws, ws_at, bias, m): what an activation is taken of."""
    load = loader(S)

    @inline
    def gate(buffer, gates, at, ws, ws_at, bias, m):
        product = new()
        load(buffer, gates, at, m)
        load32(product, ws, ws_at, m)
        for j in range(LANES):
            put(buffer, j, get(buffer, j) + get(product, j) + get(bias, j))

    return gate


@functools.cache
def finals(S, P):
    """final(out, y, initial, ...): the state of each row after its last step."""
    state, store = states(S, P), storer(S)

    @inline
    def final(out, y, y_time, y_side, initial, lens, side, first, rows, backwards, t, b, n):
        """y: element of (time, side, row) at (time * y_time + side * y_side + row) * n."""
        if out == 0:
            return
        buffer = new()
        for i in range(rows):
            row = first + i
            count = length(lens, row, t)
            last = 0 if backwards else count - 1
            for u in range(0, n, UNITS):
                m = min(UNITS, n - u)
                at = (last * y_time + side * y_side + row) * n + u if count > 0 else -1
                state(buffer, y, at, initial, (side * b + row) * n + u, m)
                store(buffer, out, (side * b + row) * n + u, m)

    return final


@functools.cache
def carriers(S):
    """(start, arrive): what flows back through time, in rows of float32 scratch."""
    load = loader(S)

    @inline
    def start(ws, d_last, lens, side, first, rows, t, b, n):
        """Zero; the gradient of the last state of rows without a step."""
        buffer = new()
        for i in range(rows):
            row = first + i
            for u in range(0, wide(n), UNITS):
                m = min(UNITS, n - u)
                clear(buffer)
                if d_last != 0 and m > 0 and length(lens, row, t) == 0:
                    load(buffer, d_last, (side * b + row) * n + u, m)
                store32(buffer, ws, i * wide(n) + u, min(UNITS, wide(n) - u))

    @inline
    def arrive(buffer, ws, ws_at, dy, at, d_last, at_last, last, m):
        """buffer = what came back + gradient of this step (+ of the last state)."""
        more = new()
        load32(buffer, ws, ws_at, m)
        if dy != 0:
            load(more, dy, at, m)
            for j in range(LANES):
                put(buffer, j, get(buffer, j) + get(more, j))
        if last and d_last != 0:
            load(more, d_last, at_last, m)
            for j in range(LANES):
                put(buffer, j, get(buffer, j) + get(more, j))

    return start, arrive


@inline
def reset(ws, rows, n):
    """Rows of scratch become 0."""
    buffer = new()
    clear(buffer)
    for k in range(0, rows * wide(n), LANES):
        store32(buffer, ws, k, min(LANES, rows * wide(n) - k))


@inline
def leave(out, ws, side, first, rows, b, n):
    """What is left in scratch goes to the float32 gradient of the initial state."""
    if out == 0:
        return
    buffer = new()
    for i in range(rows):
        for u in range(0, n, UNITS):
            m = min(UNITS, n - u)
            load32(buffer, ws, i * wide(n) + u, m)
            store32(buffer, out, (side * b + first + i) * n + u, m)
