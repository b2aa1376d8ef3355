"""Nonzeros times vectors of pixels, emitted as vector IR: forward pass and input gradient."""

import functools

from llvmlite import ir

from ..jit import inline
from ..words.prim import F16, F32, FP32, I32, I64, POINTER, Storage
from ..words.vector import VECTOR, WIDTH, constant, fused, outlined, shuffle, splat
from .csr_fast_walk import load_i32, place_at, walk, while_loop

RUN = 48  # fp16 weights widened at a time


def _widen(builder, buffer, w, first, slots):
    """buffer[i] = float32 of fp16 w[first + i], i < RUN and first + i < slots.

    One at a time, in the inner loop, it would take the processor's multipliers.
    """
    last = builder.add(first, I64(RUN))
    source = place_at(builder, w, first, 2)
    with builder.if_else(builder.icmp_signed("<=", last, slots)) as (whole, part):
        with whole:
            for i in range(0, RUN, WIDTH):
                place = place_at(builder, source, I64(2 * i), 1)
                half = builder.load(place, typ=ir.VectorType(F16, WIDTH), align=2)
                wide = builder.fpext(half, VECTOR)
                builder.store(wide, place_at(builder, buffer, I64(4 * i), 1), align=64)
        with part:

            def one(i, _):
                half = builder.load(place_at(builder, source, i, 2), typ=F16, align=2)
                builder.store(builder.fpext(half, F32), place_at(builder, buffer, i, 4), align=4)
                return builder.add(i, I64(1)), []

            count = builder.sub(slots, first)
            while_loop(builder, I64(0), [], [lambda i: builder.icmp_signed("<", i, count)], one)


@functools.cache
def sparse_columns(vectors: int, W: Storage, index: Storage, S: Storage = FP32, piece: int = 0):
    """y[o][:] += sum of w[e] * panel[table[column of e]] over a range of nonzeros of each row.

    Arguments: y, y_stride, panel, w, columns, table, cursors, stops, ends, ends_stride, rows,
    limit, slots, fresh. cursors and stops are int32 for each row, table int32 byte offsets, slots
    the elements of w. `vectors` vectors of a row stay in registers. Order of a sum: what is in y
    (0 where fresh is not 0), then the nonzeros in order, by fma.

    Three more arguments where `piece` is 8 or 16: out, out_stride, places. The sums of row o are
    then rounded to S and left at out + o * out_stride, in pieces of so many elements at the int32
    byte offsets places[0], places[1] .., instead of in y.
    """

    def leave(builder, out, places, totals):
        for v, total in enumerate(totals):
            half = S.name == "f16"
            value = builder.fptrunc(total, ir.VectorType(F16, WIDTH)) if half else total
            for first in range(0, WIDTH, piece):
                number = I64((v * WIDTH + first) // piece)
                offset = load_i32(builder, place_at(builder, places, number, 4))
                part = shuffle(builder, value, value, range(first, first + piece))
                builder.store(part, place_at(builder, out, offset, 1), align=S.nbytes)

    def emit(builder, args):
        y, panel, w, columns, table, cursors, stops, ends = (
            builder.inttoptr(args[i], POINTER) for i in (0, 2, 3, 4, 5, 6, 7, 8)
        )
        y_stride, (ends_stride, rows, limit, slots, fresh) = args[1], args[9:14]
        buffer = None
        if W.name == "f16":
            run_of_floats = builder.alloca(ir.ArrayType(F32, RUN))
            run_of_floats.align = 64
            buffer = builder.inttoptr(builder.ptrtoint(run_of_floats, I64), POINTER)

        def row(o, _):
            start = load_i32(builder, place_at(builder, cursors, o, 4))
            end = load_i32(builder, place_at(builder, ends, builder.mul(o, ends_stride), 1))
            column, conditions = walk(builder, columns, index, end, limit)
            target = place_at(builder, y, builder.mul(o, y_stride), 1)
            places = [place_at(builder, target, I64(64 * v), 1) for v in range(vectors)]

            def add(e, weight, totals):
                offset = load_i32(builder, place_at(builder, table, column(e), 4))
                source = place_at(builder, panel, offset, 1)
                weight = splat(builder, builder.load(weight, typ=F32, align=4))
                out = []
                for v, total in enumerate(totals):
                    place = place_at(builder, source, I64(64 * v), 1)
                    value = builder.load(place, typ=VECTOR, align=4)
                    out.append(fused(builder, weight, value, total))
                return builder.add(e, I64(1)), out

            def run(first, totals):
                _widen(builder, buffer, w, first, slots)
                last = builder.add(first, I64(RUN))
                return while_loop(
                    builder,
                    first,
                    totals,
                    [*conditions(1), lambda e: builder.icmp_signed("<", e, last)],
                    lambda e, t: add(e, place_at(builder, buffer, builder.sub(e, first), 4), t),
                )

            start_block = builder.block
            with builder.if_then(builder.icmp_signed("==", fresh, I64(0))):
                old = [builder.load(place, typ=VECTOR, align=64) for place in places]
                old_block = builder.block
            totals = []
            for value in old:
                total = builder.phi(VECTOR)
                total.add_incoming(constant(0.0), start_block)
                total.add_incoming(value, old_block)
                totals.append(total)
            stop, totals = while_loop(
                builder,
                start,
                totals,
                conditions(1),
                run if buffer else lambda e, t: add(e, place_at(builder, w, e, 4), t),
            )
            if piece:
                out, offsets = (builder.inttoptr(args[i], POINTER) for i in (14, 16))
                leave(builder, place_at(builder, out, builder.mul(o, args[15]), 1), offsets, totals)
            else:
                for place, total in zip(places, totals, strict=True):
                    builder.store(total, place, align=64)
            builder.store(builder.trunc(stop, I32), place_at(builder, stops, o, 4), align=4)
            return builder.add(o, I64(1)), []

        while_loop(builder, I64(0), [], [lambda o: builder.icmp_signed("<", o, rows)], row)

    name = f"et_sparse_columns_{vectors}_{W.name}_{index.name}"
    if piece:
        return outlined(f"{name}_to_{S.name}_{piece}", 17, emit)
    return outlined(name, 14, emit)


@functools.cache
def row_products(most: int, W: Storage, index: Storage, S: Storage):
    """Inline function over `sparse_columns` of 1, 2, 4 ... `most` vectors, most 4 or 8."""
    one, two, four = (sparse_columns(v, W, index) for v in (1, 2, 4))
    eight = sparse_columns(most, W, index)
    by8, by16 = (sparse_columns(most, W, index, S, piece) for piece in (8, 16))

    @inline
    def products(
        y, count, panel, w, columns, table, cursors, stops, ends, ends_stride, rows, limit, slots,
        fresh, piece, out, out_stride, places,
    ):  # fmt: skip
        """`count` vectors of a row, 1, 2, 4 or 8.

        Where piece is 8 or 16, `count` is `most` and results are left in `out` instead of y.
        """
        for v in range(0, count, most):
            a, b = y + 64 * v, panel + 64 * v
            if piece == 8:
                by8(
                    a, 512, b, w, columns, table, cursors, stops, ends, ends_stride, rows, limit,
                    slots, fresh, out, out_stride, places,
                )  # fmt: skip
            elif piece == 16:
                by16(
                    a, 512, b, w, columns, table, cursors, stops, ends, ends_stride, rows, limit,
                    slots, fresh, out, out_stride, places,
                )  # fmt: skip
            elif count == 1:
                one(
                    a, 64, b, w, columns, table, cursors, stops, ends, ends_stride, rows, limit,
                    slots, fresh,
                )  # fmt: skip
            elif count == 2:
                two(
                    a, 128, b, w, columns, table, cursors, stops, ends, ends_stride, rows, limit,
                    slots, fresh,
                )  # fmt: skip
            elif count == 4:
                four(
                    a, 256, b, w, columns, table, cursors, stops, ends, ends_stride, rows, limit,
                    slots, fresh,
                )  # fmt: skip
            else:
                eight(
                    a, 512, b, w, columns, table, cursors, stops, ends, ends_stride, rows, limit,
                    slots, fresh,
                )  # fmt: skip

    return products
