"""Inner loops of sparse convolutions emitted as vector IR; addresses are int64, strides bytes.

Rows of nonzeros are walked with a cursor each: a call takes the nonzeros from the cursor on whose
column is below `limit` and that lie before the row's end, and writes where it stopped. So panels
of fewer channels than a chunk of the pool need no pointers of their own.
"""

import functools

from llvmlite import ir

from ..jit import inline
from ..words.prim import F16, F32, FP32, I8, I16, I32, I64, POINTER, Storage
from ..words.vector import VECTOR, WIDTH, constant, fused, outlined, shuffle, splat

_FOUR = ir.VectorType(F32, 4)
RUN = 48  # fp16 weights widened at a time


def _at(builder, pointer, index, nbytes):
    step = builder.mul(index, I64(nbytes)) if nbytes != 1 else index
    return builder.gep(pointer, [step], source_etype=I8)


def _i32(builder, pointer):
    return builder.sext(builder.load(pointer, typ=I32, align=4), I64)


def _while(builder, start, values, conditions, body):
    """while all conditions(j): j, values = body(j, values). Returns (j, values)."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    j = builder.phi(I64)
    j.add_incoming(start, before)
    carried = []
    for value in values:
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        carried.append(phi)
    for condition in conditions:
        more = builder.append_basic_block("more")
        builder.cbranch(condition(j), more, after)
        builder.position_at_end(more)
    builder.branch(inside)
    builder.position_at_end(inside)
    following, new = body(j, list(carried))
    j.add_incoming(following, builder.block)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return j, carried


def _walk(builder, columns, index: Storage, end, limit):
    """(column of nonzero j, conditions that `ahead` nonzeros from j on are to be taken)."""
    kind = I8 if index.nbytes == 1 else I16

    def column(j):
        pointer = _at(builder, columns, j, index.nbytes)
        return builder.zext(builder.load(pointer, typ=kind, align=index.nbytes), I64)

    def conditions(ahead):
        def last(j):
            return builder.add(j, I64(ahead - 1)) if ahead > 1 else j

        return (
            lambda j: builder.icmp_signed("<", last(j), end),
            lambda j: builder.icmp_signed("<", column(last(j)), limit),
        )

    return column, conditions


def _widen(builder, buffer, w, first, slots):
    """buffer[i] = float32 of fp16 w[first + i], i < RUN and first + i < slots.

    One at a time, in the inner loop, it would take the processor's multipliers.
    """
    last = builder.add(first, I64(RUN))
    source = _at(builder, w, first, 2)
    with builder.if_else(builder.icmp_signed("<=", last, slots)) as (whole, part):
        with whole:
            for i in range(0, RUN, WIDTH):
                place = _at(builder, source, I64(2 * i), 1)
                half = builder.load(place, typ=ir.VectorType(F16, WIDTH), align=2)
                wide = builder.fpext(half, VECTOR)
                builder.store(wide, _at(builder, buffer, I64(4 * i), 1), align=64)
        with part:

            def one(i, _):
                half = builder.load(_at(builder, source, i, 2), typ=F16, align=2)
                builder.store(builder.fpext(half, F32), _at(builder, buffer, i, 4), align=4)
                return builder.add(i, I64(1)), []

            count = builder.sub(slots, first)
            _while(builder, I64(0), [], [lambda i: builder.icmp_signed("<", i, count)], one)


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
            for at in range(0, WIDTH, piece):
                offset = _i32(builder, _at(builder, places, I64((v * WIDTH + at) // piece * 4), 1))
                part = shuffle(builder, value, value, range(at, at + piece))
                builder.store(part, _at(builder, out, offset, 1), align=S.nbytes)

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
            start = _i32(builder, _at(builder, cursors, o, 4))
            end = _i32(builder, _at(builder, ends, builder.mul(o, ends_stride), 1))
            column, conditions = _walk(builder, columns, index, end, limit)
            target = _at(builder, y, builder.mul(o, y_stride), 1)
            places = [_at(builder, target, I64(64 * v), 1) for v in range(vectors)]

            def add(e, weight, totals):
                offset = _i32(builder, _at(builder, table, column(e), 4))
                source = _at(builder, panel, offset, 1)
                weight = splat(builder, builder.load(weight, typ=F32, align=4))
                out = []
                for v, total in enumerate(totals):
                    place = _at(builder, source, I64(64 * v), 1)
                    value = builder.load(place, typ=VECTOR, align=4)
                    out.append(fused(builder, weight, value, total))
                return builder.add(e, I64(1)), out

            def run(first, totals):
                _widen(builder, buffer, w, first, slots)
                last = builder.add(first, I64(RUN))
                return _while(
                    builder,
                    first,
                    totals,
                    [*conditions(1), lambda e: builder.icmp_signed("<", e, last)],
                    lambda e, t: add(e, _at(builder, buffer, builder.sub(e, first), 4), t),
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
            stop, totals = _while(
                builder,
                start,
                totals,
                conditions(1),
                run if buffer else lambda e, t: add(e, _at(builder, w, e, 4), t),
            )
            if piece:
                out, offsets = (builder.inttoptr(args[i], POINTER) for i in (14, 16))
                leave(builder, _at(builder, out, builder.mul(o, args[15]), 1), offsets, totals)
            else:
                for place, total in zip(places, totals, strict=True):
                    builder.store(total, place, align=64)
            builder.store(builder.trunc(stop, I32), _at(builder, stops, o, 4), align=4)
            return builder.add(o, I64(1)), []

        _while(builder, I64(0), [], [lambda o: builder.icmp_signed("<", o, rows)], row)

    name = f"et_sparse_columns_{vectors}_{W.name}_{index.name}"
    if piece:
        return outlined(f"{name}_to_{S.name}_{piece}", 17, emit)
    return outlined(name, 14, emit)


def _merged(builder, a, b, step):
    """Sums of neighbours `step` lanes apart: lanes of a and b alternate in blocks of `step`."""
    low: list[int] = []
    high: list[int] = []
    for lane in range(0, WIDTH, 2 * step):
        for source in (0, WIDTH):
            low += range(source + lane, source + lane + step)
            high += range(source + lane + step, source + lane + 2 * step)
    return builder.fadd(shuffle(builder, a, b, low), shuffle(builder, a, b, high))


def _four_sums(builder, values):
    """4 vectors -> vector of 4: the sum of each one's lanes."""
    one = _merged(builder, values[0], values[1], 1)
    two = _merged(builder, values[2], values[3], 1)
    both = _merged(builder, one, two, 2)
    for half in (8, 4):
        low = shuffle(builder, both, both, range(half))
        both = builder.fadd(low, shuffle(builder, both, both, range(half, 2 * half)))
    return both


@functools.cache
def sparse_dots(vectors: int, S: Storage, index: Storage, piece: int):
    """Sum of e += sum over pixels of line[o] * panel[table[column of e]], as `sparse_columns`.

    Arguments: sums, line, line_stride, places, panel, columns, table, cursors, stops, ends,
    ends_stride, rows, limit, valid, shifts. A line is vectors of float32 where `piece` is 0;
    else it is pieces of 8 or 16 elements of S, at the int32 byte offsets places[0], places[1] ..
    The sum of nonzero e of row o is the float32 sums[shifts[o] + e]. `valid` lanes of the last
    vector count, all of them where there are pieces; a sum is taken in 16 lanes by fma, then over
    the lanes in a fixed order.
    """

    def emit(builder, args):
        line, places, panel, columns, table, cursors, stops, ends, shifts = (
            builder.inttoptr(args[i], POINTER) for i in (1, 3, 4, 5, 6, 7, 8, 9, 14)
        )
        line_stride, ends_stride, rows, limit = args[2], args[10], args[11], args[12]
        lanes = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH)))
        mask = builder.icmp_signed("<", lanes, splat(builder, builder.trunc(args[13], I32)))
        kind = F16 if S.name == "f16" else F32

        def load(pointer, v):
            value = builder.load(_at(builder, pointer, I64(64 * v), 1), typ=VECTOR, align=4)
            last = piece == 0 and v == vectors - 1
            return builder.select(mask, value, constant(0.0)) if last else value

        def read(source, v):
            if piece == 0:
                return load(source, v)
            parts = []
            for at in range(v * WIDTH // piece, (v + 1) * WIDTH // piece):
                offset = _i32(builder, _at(builder, places, I64(4 * at), 1))
                place = _at(builder, source, offset, 1)
                parts.append(builder.load(place, typ=ir.VectorType(kind, piece), align=S.nbytes))
            value = parts[0] if piece == WIDTH else shuffle(builder, *parts, range(WIDTH))
            return builder.fpext(value, VECTOR) if kind == F16 else value

        def row(o, _):
            start = _i32(builder, _at(builder, cursors, o, 4))
            end = _i32(builder, _at(builder, ends, builder.mul(o, ends_stride), 1))
            column, conditions = _walk(builder, columns, index, end, limit)
            shift = builder.mul(_i32(builder, _at(builder, shifts, o, 4)), I64(4))
            sums = builder.inttoptr(builder.add(args[0], shift), POINTER)
            source = _at(builder, line, builder.mul(o, line_stride), 1)
            pixels = [read(source, v) for v in range(vectors)]

            def dot(e):
                offset = _i32(builder, _at(builder, table, column(e), 4))
                place = _at(builder, panel, offset, 1)
                total = builder.fmul(pixels[0], load(place, 0))
                for v in range(1, vectors):
                    total = fused(builder, pixels[v], load(place, v), total)
                return total

            def four(e, _):
                found = _four_sums(builder, [dot(builder.add(e, I64(i))) for i in range(4)])
                place = _at(builder, sums, e, 4)
                old = builder.load(place, typ=_FOUR, align=4)
                builder.store(builder.fadd(old, found), place, align=4)
                return builder.add(e, I64(4)), []

            def one(e, _):
                none = constant(0.0)
                found = _four_sums(builder, [dot(e), none, none, none])
                place = _at(builder, sums, e, 4)
                old = builder.load(place, typ=F32, align=4)
                total = builder.fadd(old, builder.extract_element(found, I32(0)))
                builder.store(total, place, align=4)
                return builder.add(e, I64(1)), []

            middle, _ = _while(builder, start, [], conditions(4), four)
            stop, _ = _while(builder, middle, [], conditions(1), one)
            builder.store(builder.trunc(stop, I32), _at(builder, stops, o, 4), align=4)
            return builder.add(o, I64(1)), []

        _while(builder, I64(0), [], [lambda o: builder.icmp_signed("<", o, rows)], row)

    name = f"et_sparse_dots_{vectors}_{S.name if piece else 'packed'}_{index.name}_{piece}"
    return outlined(name, 15, emit)


@functools.cache
def row_products(most: int, W: Storage, index: Storage):
    """Inline function over `sparse_columns` of 1, 2, 4 ... `most` vectors, most 4 or 8."""
    one, two, four = (sparse_columns(v, W, index) for v in (1, 2, 4))
    eight = sparse_columns(most, W, index)

    @inline
    def products(
        y, count, panel, w, columns, table, cursors, stops, ends, ends_stride, rows, limit, slots,
        fresh,
    ):  # fmt: skip
        """`count` vectors of a row, 1, 2, 4 or 8."""
        for v in range(0, count, most):
            a, b = y + 64 * v, panel + 64 * v
            if count == 1:
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


@functools.cache
def row_results(W: Storage, index: Storage, S: Storage):
    """Inline function over `sparse_columns` of 8 vectors that leaves results, not sums."""
    by8, by16 = (sparse_columns(8, W, index, S, piece) for piece in (8, 16))

    @inline
    def results(
        piece, y, panel, w, columns, table, cursors, stops, ends, ends_stride, rows, limit, slots,
        fresh, out, out_stride, places,
    ):  # fmt: skip
        """In pieces of 8 or 16 elements."""
        if piece == 8:
            by8(
                y, 512, panel, w, columns, table, cursors, stops, ends, ends_stride, rows, limit,
                slots, fresh, out, out_stride, places,
            )  # fmt: skip
        else:
            by16(
                y, 512, panel, w, columns, table, cursors, stops, ends, ends_stride, rows, limit,
                slots, fresh, out, out_stride, places,
            )  # fmt: skip

    return results


@functools.cache
def row_dots(most: int, S: Storage, index: Storage, piece: int):
    """Inline function over `sparse_dots` of 1, 2, 4 ... `most` vectors, most 4, 8 or 16."""
    one, two, four, eight, sixteen = (sparse_dots(v, S, index, piece) for v in (1, 2, 4, 8, 16))
    step_of_line, step_of_places = (0, 64 // piece) if piece else (64, 0)

    @inline
    def dots(
        sums, line, stride, places, pixels, panel, columns, table, cursors, stops, ends,
        ends_stride, rows, limit, shifts,
    ):  # fmt: skip
        """`pixels` of a line, in runs of 16, 8, 4, 2, 1 vectors; at most `most`."""
        left = (pixels + 15) >> 4
        valid = pixels - 16 * (left - 1)
        while left > 0:
            if most >= 16 and left >= 16:
                sixteen(
                    sums, line, stride, places, panel, columns, table, cursors, stops, ends,
                    ends_stride, rows, limit, valid if left == 16 else 16, shifts,
                )  # fmt: skip
                step = 16
            elif most >= 8 and left >= 8:
                eight(
                    sums, line, stride, places, panel, columns, table, cursors, stops, ends,
                    ends_stride, rows, limit, valid if left == 8 else 16, shifts,
                )  # fmt: skip
                step = 8
            elif left >= 4:
                four(
                    sums, line, stride, places, panel, columns, table, cursors, stops, ends,
                    ends_stride, rows, limit, valid if left == 4 else 16, shifts,
                )  # fmt: skip
                step = 4
            elif left >= 2:
                two(
                    sums, line, stride, places, panel, columns, table, cursors, stops, ends,
                    ends_stride, rows, limit, valid if left == 2 else 16, shifts,
                )  # fmt: skip
                step = 2
            else:
                one(
                    sums, line, stride, places, panel, columns, table, cursors, stops, ends,
                    ends_stride, rows, limit, valid, shifts,
                )  # fmt: skip
                step = 1
            left -= step
            line += step_of_line * step
            places += step_of_places * step
            panel += 64 * step

    return dots
