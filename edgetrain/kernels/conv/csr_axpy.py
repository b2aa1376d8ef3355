"""Nonzeros times vectors of pixels: forward pass and input gradient of sparse convolutions."""

import functools

from ..language.block import stack
from ..language.calls import outline
from ..language.fused_activation import ZERO
from ..language.inlining import inline
from ..language.number import fma, shuffled
from ..language.prim import FP32, Storage, ld_i32, st_i32
from ..language.vector import WIDTH, loads, stores, vsplat
from .records import Pieces, Pool, Sums, Walk

RUN = 48  # weights widened at a time
_ld, _st, _vld, _vst = FP32.ld, FP32.st, loads(FP32), stores(FP32)
_buffer = stack(4 * RUN)


def _widening(W: Storage):
    """Inline function that converts RUN weights to float32, fewer at the pool's end.

    Converting one at a time in the inner loop would occupy the processor's multipliers.
    """
    vld, ld = loads(W), W.ld

    @inline
    def widen(buffer, w, first, slots):
        """buffer[i] = float32 of w[first + i], i < RUN and first + i < slots."""
        if first + RUN <= slots:
            for i in range(0, RUN, WIDTH):
                _vst(buffer, i, vld(w, first + i), WIDTH)
        else:
            for i in range(slots - first):
                _st(buffer, i, ld(w, first + i))

    return widen


def _row_products(W: Storage, index: Storage):
    """Inline function that adds the products of a row's nonzeros to the row's sums."""
    ldc, widen = index.ld, _widening(W)

    @inline
    def add(totals, weight, column):
        return tuple(fma(weight, _vld(column, WIDTH * v), total) for v, total in enumerate(totals))

    @inline
    def run(e, end, limit, totals, weights, first, panel, table, columns):
        """Add nonzeros from e on, in pairs, so that the loads of one do not wait for those before
        it.

        `weights` holds the weights from nonzero `first` on.
        """
        while e + 1 < end and ldc(columns, e + 1) < limit:
            near, far = ld_i32(table, ldc(columns, e)), ld_i32(table, ldc(columns, e + 1))
            totals = add(totals, _ld(weights, e - first), panel + near)
            totals = add(totals, _ld(weights, e + 1 - first), panel + far)
            e += 2
        while e < end and ldc(columns, e) < limit:
            address = panel + ld_i32(table, ldc(columns, e))
            totals = add(totals, _ld(weights, e - first), address)
            e += 1
        return e, totals

    @inline
    def products(e, end, limit, totals, panel, table, pool):
        """(first nonzero not taken, totals)."""
        if W.single:
            return run(e, end, limit, totals, pool.w, 0, panel, table, pool.columns)
        buffer = _buffer()
        while e < end and ldc(pool.columns, e) < limit:
            widen(buffer, pool.w, e, pool.slots)
            last = min(end, e + RUN)
            e, totals = run(e, last, limit, totals, buffer, e, panel, table, pool.columns)
        return e, totals

    return products


def _leaving(S: Storage, piece: int):
    """Inline function that rounds a row's sums to S and stores them in pieces of `piece`."""
    put, each = stores(S, piece), WIDTH // piece
    parts = tuple(shuffled(tuple(range(i, i + piece))) for i in range(0, WIDTH, piece))

    @inline
    def leave(target, o, totals):
        out = target.address + o * target.stride
        for v, total in enumerate(totals):
            for number, part in enumerate(parts):
                place = out + ld_i32(target.places, v * each + number)
                put(place, 0, part(total, total), piece)

    return leave


@functools.cache
def sparse_axpy(vectors: int, W: Storage, index: Storage, S: Storage = FP32, piece: int = 0):
    """sums[o] += sum of w[e] * panel[table[column of e]] over a walk's nonzeros of each row o.

    Arguments: sums, panel, table, pool, walk, target; table holds int32 byte offsets. `vectors`
    vectors of a row stay in registers. Order of a sum: the value in sums, then the nonzeros in
    order, by fma. If `piece` is 8 or 16, the sums are rounded to S and stored in the target's
    pieces of that many elements instead.
    """
    products, leave = _row_products(W, index), _leaving(S, piece or WIDTH)
    lanes = tuple(WIDTH * v for v in range(vectors))

    @inline
    def sums_before(place, fresh):
        if fresh == 0:
            totals = tuple(_vld(place, lane) for lane in lanes)
        else:
            totals = tuple(vsplat(ZERO) for _ in lanes)
        return totals

    def add_products(sums: Sums, panel, table, pool: Pool, walk: Walk, target: Pieces):
        for o in range(walk.rows):
            place, e = sums.address + o * sums.stride, ld_i32(walk.cursors, o)
            end, totals = (
                ld_i32(walk.ends + o * walk.ends_stride, 0),
                sums_before(place, sums.fresh),
            )
            e, totals = products(e, end, walk.limit, totals, panel, table, pool)
            if piece:
                leave(target, o, totals)
            else:
                for v, total in enumerate(totals):
                    _vst(place, WIDTH * v, total, WIDTH)
            st_i32(walk.stops, o, e)

    name = f"et_sparse_axpy_{vectors}_{W.name}_{index.name}"
    return outline(name + (f"_to_{S.name}_{piece}" if piece else ""), add_products)


@functools.cache
def row_products(most: int, W: Storage, index: Storage, S: Storage):
    """Inline function over `sparse_axpy` of 1, 2, 4 ... `most` vectors; `most` is 4 or 8."""
    one, two, four = (sparse_axpy(v, W, index) for v in (1, 2, 4))
    eight = sparse_axpy(most, W, index)
    by8, by16 = (sparse_axpy(most, W, index, S, piece) for piece in (8, 16))

    @inline
    def products(sums, fresh, count, panel, table, pool, walk, target):
        """Process rows of `count` vectors: 1, 2, 4 or 8.

        If the target's pieces have 8 or 16 elements, `count` is `most` and results are stored there
        instead of in sums.
        """
        for v in range(0, count, most):
            part, column = Sums(sums + 64 * v, 64 * count, fresh), panel + 64 * v
            if target.elements == 8:
                by8(part, column, table, pool, walk, target)
            elif target.elements == 16:
                by16(part, column, table, pool, walk, target)
            elif count == 1:
                one(part, column, table, pool, walk, target)
            elif count == 2:
                two(part, column, table, pool, walk, target)
            elif count == 4 or most == 4:
                four(part, column, table, pool, walk, target)
            else:
                eight(part, column, table, pool, walk, target)

    return products
