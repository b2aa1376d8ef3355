"""Gradients of only the rows of a table that are used; rows get places in the order of first use.

A gradient of `room` rows stands in for one of `rows` rows. map [rows + 1] has, for each row, one
more than its place in the gradient, or 0 if the row was not used, and at the end the number of
places in use. Between minibatches it is all zeros.
"""

from ..optimizers.frame import zeroing
from ..registry import kernel


@kernel(
    "row_places",
    "idx:r:i32[count] map:m:i32[rows+1] places:w:i32[count] count rows room",
    check="min(count, rows, room) > 0",
)
def row_places():
    """places[i]: the place of row idx[i] in the gradient, assigned in the order of i; `room`, which
    is out of range, if idx[i] is out of range or no place is left. A negative index counts from the
    end. Thread 0 does it."""
    from ..language.prim import ld_i32, st_i32
    from .gather import wrapping

    wrapped = wrapping()

    def run(thread, nthreads, args):
        if thread != 0:
            return
        for i in range(args.count):
            index, place = wrapped(args.idx, i, args.rows), args.room
            if index >= 0:
                given = ld_i32(args.map, args.rows)
                if ld_i32(args.map, index) == 0 and given < args.room:
                    st_i32(args.map, index, given + 1)
                    st_i32(args.map, args.rows, given + 1)
                if ld_i32(args.map, index) != 0:
                    place = ld_i32(args.map, index) - 1
            st_i32(args.places, i, place)

    return run


@kernel(
    "row_spread",
    "x:r:G[room*width] map:r:i32[count] y:w:f32[count*width] count width room",
    check="min(count, width, room) > 0",
    blocks="G",
)
def row_spread(G):
    """y [count, width]: the rows of a gradient, at the places in map [count]; zeros for rows
    without one."""
    from ..language.mathf import ZERO
    from ..language.prim import FP32, div, ld_i32

    ld, st = G.ld, FP32.st

    def run(thread, nthreads, args):
        for row in range(
            div(args.count * thread, nthreads), div(args.count * (thread + 1), nthreads)
        ):
            place, to = ld_i32(args.map, row) - 1, row * args.width
            if 0 <= place < args.room:
                for j in range(args.width):
                    st(args.y, to + j, ld(args.x, place * args.width + j))
            else:
                for j in range(args.width):
                    st(args.y, to + j, ZERO)

    return run


@kernel(
    "row_reset",
    "g:m:G[n] g_map:m:i32[size] n size",
    check="min(n, size) > 0",
    blocks="G",
    writes="g=accumulator g_map=accumulator",
)
def row_reset(G):
    """Zero gradient g [n] and its map."""
    from ..language.block import first
    from ..language.prim import st_i32

    zero = zeroing(G)

    def run(thread, nthreads, args):
        zero(args.g, first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads))
        for i in range(first(args.size, thread, nthreads), first(args.size, thread + 1, nthreads)):
            st_i32(args.g_map, i, 0)

    return run
