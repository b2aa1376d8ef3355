"""Nonzeros times vectors of pixels, emitted as vector IR: forward pass and input gradient."""

import functools

from ..language.calls import emitted
from ..language.inlining import inline
from ..language.number import fused
from ..language.prim import F32, FP32, I64, POINTER, Storage, array_of
from ..language.vector import VECTOR, WIDTH, constant, load_vector, shuffle, splat
from .csr_loops import Row, for_rows, load_i32, place_at, pointers, while_loop
from .records import Pieces, Pool, Sums, Walk

RUN = 48  # weights widened at a time


def _widen(builder, W: Storage, buffer, w, first, slots):
    """buffer[i] = float32 of w[first + i], i < RUN and first + i < slots.

    One at a time, in the inner loop, it would take the processor's multipliers.
    """
    last = builder.add(first, I64(RUN))
    source = place_at(builder, w, first, W.nbytes)
    with builder.if_else(builder.icmp_signed("<=", last, slots)) as (whole, part):
        with whole:
            for i in range(0, RUN, WIDTH):
                place = place_at(builder, source, I64(W.nbytes * i), 1)
                wide = load_vector(builder, W, place, WIDTH)
                builder.store(wide, place_at(builder, buffer, I64(4 * i), 1), align=64)
        with part:

            def one(i, _):
                place = place_at(builder, source, i, W.nbytes)
                value = builder.load(place, typ=W.element, align=W.nbytes)
                target = place_at(builder, buffer, i, 4)
                builder.store(W.widen(builder, value), target, align=4)
                return builder.add(i, I64(1)), []

            count = builder.sub(slots, first)
            while_loop(builder, I64(0), [], [lambda i: builder.icmp_signed("<", i, count)], one)


class _Axpy:
    """Writes the function of `sparse_axpy`."""

    def __init__(self, builder, W: Storage, index: Storage, vectors: int) -> None:
        self.builder, self.W, self.index, self.vectors = builder, W, index, vectors
        self.buffer = None
        if W.element != F32:
            floats = builder.alloca(array_of(F32, RUN))
            floats.align = 64
            self.buffer = builder.inttoptr(builder.ptrtoint(floats, I64), POINTER)

    def vectors_at(self, pointer):
        """Pointers to the vectors of a row or column."""
        return [place_at(self.builder, pointer, I64(64 * v), 1) for v in range(self.vectors)]

    def begin(self, sums, o):
        """(where row o's sums are, what they are so far)."""
        builder, (first,) = self.builder, pointers(self.builder, sums.at)
        target = place_at(builder, first, builder.mul(o, sums.stride), 1)
        places, before = self.vectors_at(target), builder.block
        with builder.if_then(builder.icmp_signed("==", sums.fresh, I64(0))):
            old = [builder.load(place, typ=VECTOR, align=64) for place in places]
            loaded = builder.block
        totals = []
        for value in old:
            total = builder.phi(VECTOR)
            total.add_incoming(constant(0.0), before)
            total.add_incoming(value, loaded)
            totals.append(total)
        return places, totals

    def products(self, row, panel, table, pool, totals):
        """(first nonzero that was not taken, totals with the products of a row's nonzeros)."""
        builder = self.builder
        panel, table, w = pointers(builder, panel, table, pool.w)

        def add(e, totals, count, weight_at):
            """`count` nonzeros from e on: the loads of one need not wait for those before it."""
            found = []
            for i in range(count):
                at = builder.add(e, I64(i))
                offset = load_i32(builder, place_at(builder, table, row.column(at), 4))
                weight = splat(builder, builder.load(weight_at(at), typ=F32, align=4))
                found.append((self.vectors_at(place_at(builder, panel, offset, 1)), weight))
            for source, weight in found:
                values = [builder.load(place, typ=VECTOR, align=4) for place in source]
                pairs = zip(values, totals, strict=True)
                totals = [fused(builder, weight, v, t) for v, t in pairs]
            return builder.add(e, I64(count)), totals

        def run(e, totals, last, weight_at):
            """Nonzeros from e on, two and two, before `last`."""
            for count in (2, 1):
                more = row.more(count)
                if last is not None:
                    more = (
                        *more,
                        lambda e, n=count: builder.icmp_signed("<=", builder.add(e, I64(n)), last),
                    )
                e, totals = while_loop(
                    builder, e, totals, more, lambda e, t, n=count: add(e, t, n, weight_at)
                )
            return e, totals

        def widened(first, totals):
            _widen(builder, self.W, self.buffer, w, first, pool.slots)
            last = builder.add(first, I64(RUN))

            def weight_at(e):
                return place_at(builder, self.buffer, builder.sub(e, first), 4)

            return run(first, totals, last, weight_at)

        if self.buffer:
            return while_loop(builder, row.start, totals, row.more(1), widened)
        return run(row.start, totals, None, lambda e: place_at(builder, w, e, 4))

    def leave(self, target, S: Storage, piece: int, o, totals):
        """Row o's sums as elements of S, in pieces of so many."""
        builder = self.builder
        out, places = pointers(builder, target.at, target.places)
        out = place_at(builder, out, builder.mul(o, target.stride), 1)
        for v, total in enumerate(totals):
            value = S.narrow(builder, total)
            for first in range(0, WIDTH, piece):
                number = I64((v * WIDTH + first) // piece)
                offset = load_i32(builder, place_at(builder, places, number, 4))
                part = shuffle(builder, value, value, range(first, first + piece))
                builder.store(part, place_at(builder, out, offset, 1), align=S.nbytes)


@functools.cache
def sparse_axpy(vectors: int, W: Storage, index: Storage, S: Storage = FP32, piece: int = 0):
    """sums[o] += sum of w[e] * panel[table[column of e]] over a walk's nonzeros of each row o.

    Arguments: sums, panel, table, pool, walk, target; table is int32 byte offsets. `vectors`
    vectors of a row stay in registers. Order of a sum: what is in sums, then the nonzeros in
    order, by fma. Where `piece` is 8 or 16, the sums are then rounded to S and left in the
    target's pieces of so many elements instead.
    """

    def emit(builder, sums, panel, table, pool, walk, target):
        axpy = _Axpy(builder, W, index, vectors)

        def row_stop(o):
            row = Row(builder, walk, pool.columns, index, o)
            places, totals = axpy.begin(sums, o)
            stop, totals = axpy.products(row, panel, table, pool, totals)
            if piece:
                axpy.leave(target, S, piece, o, totals)
            else:
                for place, total in zip(places, totals, strict=True):
                    builder.store(total, place, align=64)
            return stop

        for_rows(builder, walk, row_stop)

    name = f"et_sparse_axpy_{vectors}_{W.name}_{index.name}"
    name += f"_to_{S.name}_{piece}" if piece else ""
    parameters = {"sums": Sums, "panel": int, "table": int, "pool": Pool, "walk": Walk}
    return emitted(name, parameters | {"target": Pieces}, emit)


@functools.cache
def row_products(most: int, W: Storage, index: Storage, S: Storage):
    """Inline function over `sparse_axpy` of 1, 2, 4 ... `most` vectors, most 4 or 8."""
    one, two, four = (sparse_axpy(v, W, index) for v in (1, 2, 4))
    eight = sparse_axpy(most, W, index)
    by8, by16 = (sparse_axpy(most, W, index, S, piece) for piece in (8, 16))

    @inline
    def products(sums, fresh, count, panel, table, pool, walk, target):
        """`count` vectors of a row, 1, 2, 4 or 8.

        Where the target's pieces are of 8 or 16 elements, `count` is `most` and results are left
        there instead of in sums.
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
