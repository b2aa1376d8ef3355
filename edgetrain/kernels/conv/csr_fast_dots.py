"""Dot products of vectors of pixels at nonzeros, emitted as vector IR: weight gradient."""

import functools

from llvmlite import ir

from ..jit import inline
from ..words.prim import F16, F32, I32, I64, POINTER, Storage
from ..words.vector import VECTOR, WIDTH, constant, fused, outlined, shuffle, splat
from .csr_fast_walk import load_i32, place_at, walk, while_loop

_FOUR = ir.VectorType(F32, 4)


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
            value = builder.load(place_at(builder, pointer, I64(64 * v), 1), typ=VECTOR, align=4)
            last = piece == 0 and v == vectors - 1
            return builder.select(mask, value, constant(0.0)) if last else value

        def read(source, v):
            if piece == 0:
                return load(source, v)
            parts = []
            for number in range(v * WIDTH // piece, (v + 1) * WIDTH // piece):
                offset = load_i32(builder, place_at(builder, places, I64(number), 4))
                place = place_at(builder, source, offset, 1)
                parts.append(builder.load(place, typ=ir.VectorType(kind, piece), align=S.nbytes))
            value = parts[0] if piece == WIDTH else shuffle(builder, *parts, range(WIDTH))
            return builder.fpext(value, VECTOR) if kind == F16 else value

        def row(o, _):
            start = load_i32(builder, place_at(builder, cursors, o, 4))
            end = load_i32(builder, place_at(builder, ends, builder.mul(o, ends_stride), 1))
            column, conditions = walk(builder, columns, index, end, limit)
            shift = builder.mul(load_i32(builder, place_at(builder, shifts, o, 4)), I64(4))
            sums = builder.inttoptr(builder.add(args[0], shift), POINTER)
            source = place_at(builder, line, builder.mul(o, line_stride), 1)
            pixels = [read(source, v) for v in range(vectors)]

            def dot(e):
                offset = load_i32(builder, place_at(builder, table, column(e), 4))
                place = place_at(builder, panel, offset, 1)
                total = builder.fmul(pixels[0], load(place, 0))
                for v in range(1, vectors):
                    total = fused(builder, pixels[v], load(place, v), total)
                return total

            def four(e, _):
                found = _four_sums(builder, [dot(builder.add(e, I64(i))) for i in range(4)])
                place = place_at(builder, sums, e, 4)
                old = builder.load(place, typ=_FOUR, align=4)
                builder.store(builder.fadd(old, found), place, align=4)
                return builder.add(e, I64(4)), []

            def one(e, _):
                none = constant(0.0)
                found = _four_sums(builder, [dot(e), none, none, none])
                place = place_at(builder, sums, e, 4)
                old = builder.load(place, typ=F32, align=4)
                total = builder.fadd(old, builder.extract_element(found, I32(0)))
                builder.store(total, place, align=4)
                return builder.add(e, I64(1)), []

            middle, _ = while_loop(builder, start, [], conditions(4), four)
            stop, _ = while_loop(builder, middle, [], conditions(1), one)
            builder.store(builder.trunc(stop, I32), place_at(builder, stops, o, 4), align=4)
            return builder.add(o, I64(1)), []

        while_loop(builder, I64(0), [], [lambda o: builder.icmp_signed("<", o, rows)], row)

    name = f"et_sparse_dots_{vectors}_{S.name if piece else 'packed'}_{index.name}_{piece}"
    return outlined(name, 15, emit)


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
