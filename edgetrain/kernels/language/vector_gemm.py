"""Inner loops of convolutions emitted as vector IR; addresses are int64, strides bytes."""

import functools

from llvmlite import ir
from numba import types

from .block import stack
from .number import fused
from .prim import F32, I8, I32, I64, POINTER, Storage, element
from .vector import (
    V16,
    VECTOR,
    WIDTH,
    constant,
    define,
    load_vector,
    outlined,
    shuffle,
    splat,
)


def _offset(builder, pointer, nbytes):
    return builder.gep(pointer, [nbytes], source_etype=I8)


def _loop(builder, count, values, body):
    """for j in range(count): values = body(j, values); returns the values after it."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    j = builder.phi(I64)
    j.add_incoming(I64(0), before)
    carried = []
    for value in values:
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        carried.append(phi)
    builder.cbranch(builder.icmp_signed("<", j, count), inside, after)
    builder.position_at_end(inside)
    new = body(j, list(carried))
    j.add_incoming(builder.add(j, I64(1)), builder.block)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return carried


def _multiply(builder, rows, columns, totals):
    """totals[m][v] + rows[m] * columns[v], flat."""
    return [
        fused(builder, rows[i // len(columns)], columns[i % len(columns)], total)
        for i, total in enumerate(totals)
    ]


@functools.cache
def gemm_columns(rows: int, vectors: int):
    """(y, y_stride, panel, w, w_stride, table, count): y[m][:] += sum_k w[m][k] * panel[k].

    `rows` output rows of `vectors` vectors stay in registers; strides are bytes; w is float32;
    table holds a pair of int32 byte offsets for each k: into the panel, into a row of w. Order of
    a sum: what is in y, then k, by fma.
    """

    def emit(builder, args):
        y, y_stride, panel, w, w_stride, table, count = args
        y, panel, w, table = (builder.inttoptr(a, POINTER) for a in (y, panel, w, table))
        y_rows = [_offset(builder, y, builder.mul(y_stride, I64(m))) for m in range(rows)]
        w_rows = [_offset(builder, w, builder.mul(w_stride, I64(m))) for m in range(rows)]
        places = [_offset(builder, row, I64(64 * v)) for row in y_rows for v in range(vectors)]

        def body(k, totals):
            pair = _offset(builder, table, builder.mul(k, I64(8)))
            offset = builder.load(pair, typ=I32, align=4)
            column = _offset(builder, panel, builder.sext(offset, I64))
            offset = builder.load(_offset(builder, pair, I64(4)), typ=I32, align=4)
            step = builder.sext(offset, I64)
            columns = [
                builder.load(_offset(builder, column, I64(64 * v)), typ=VECTOR, align=4)
                for v in range(vectors)
            ]
            weights = [
                splat(builder, builder.load(_offset(builder, row, step), typ=F32, align=4))
                for row in w_rows
            ]
            return _multiply(builder, weights, columns, totals)

        totals = [builder.load(place, typ=VECTOR, align=64) for place in places]
        for place, total in zip(places, _loop(builder, count, totals, body), strict=True):
            builder.store(total, place, align=64)

    return outlined(f"et_gemm_columns_{rows}x{vectors}", 7, emit)


@functools.cache
def gemm_outer(rows: int, vectors: int):
    """(y, y_stride, panel, table, d, d_stride, count): y[m][:] += sum_p panel[table[m] + p] * d[p].

    y rows and d rows are `vectors` vectors wide; strides are bytes; table holds `rows` int32 byte
    offsets of float32 rows in the panel. Order: the sum over p from zero by fma, then y.
    """

    def emit(builder, args):
        y, y_stride, panel, table, d, d_stride, count = args
        y, panel, table, d = (builder.inttoptr(a, POINTER) for a in (y, panel, table, d))
        sources = []
        for m in range(rows):
            offset = builder.load(_offset(builder, table, I64(4 * m)), typ=I32, align=4)
            sources.append(_offset(builder, panel, builder.sext(offset, I64)))

        def body(p, totals):
            row = _offset(builder, d, builder.mul(p, d_stride))
            columns = [
                builder.load(_offset(builder, row, I64(64 * v)), typ=VECTOR, align=64)
                for v in range(vectors)
            ]
            step = builder.mul(p, I64(4))
            weights = [
                splat(builder, builder.load(_offset(builder, source, step), typ=F32, align=4))
                for source in sources
            ]
            return _multiply(builder, weights, columns, totals)

        totals = _loop(builder, count, [constant(0.0)] * (rows * vectors), body)
        for m in range(rows):
            y_row = _offset(builder, y, builder.mul(y_stride, I64(m)))
            for v in range(vectors):
                place = _offset(builder, y_row, I64(64 * v))
                old = builder.load(place, typ=VECTOR, align=64)
                builder.store(builder.fadd(old, totals[m * vectors + v]), place, align=64)

    return outlined(f"et_gemm_outer_{rows}x{vectors}", 7, emit)


@functools.cache
def gemm_dots(rows: int):
    """(sums, line, panel, table, count): sums[m][lane] += sum of panel[table[m] + p] * line[p].

    p runs over `count` floats, lane = p modulo 16; sums are `rows` vectors, table int32 byte
    offsets. What lies after `count` in line and panel is read, and taken for zero.
    """

    def emit(builder, args):
        sums, line, panel, table = (builder.inttoptr(a, POINTER) for a in args[:4])
        places = [_offset(builder, sums, I64(64 * m)) for m in range(rows)]
        sources = []
        for m in range(rows):
            offset = builder.load(_offset(builder, table, I64(4 * m)), typ=I32, align=4)
            sources.append(_offset(builder, panel, builder.sext(offset, I64)))
        lanes = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH)))

        def add(v, totals, keep):
            step = builder.mul(v, I64(64))
            factor = keep(builder.load(_offset(builder, line, step), typ=VECTOR, align=4))
            return [
                fused(
                    builder,
                    keep(builder.load(_offset(builder, source, step), typ=VECTOR, align=4)),
                    factor,
                    total,
                )
                for source, total in zip(sources, totals, strict=True)
            ]

        whole = builder.ashr(args[4], I64(4))
        rest = builder.trunc(builder.sub(args[4], builder.shl(whole, I64(4))), I32)
        mask = builder.icmp_signed("<", lanes, splat(builder, rest))
        totals = [builder.load(place, typ=VECTOR, align=64) for place in places]
        totals = _loop(builder, whole, totals, lambda v, t: add(v, t, lambda value: value))
        totals = add(whole, totals, lambda value: builder.select(mask, value, constant(0.0)))
        for place, total in zip(places, totals, strict=True):
            builder.store(total, place, align=64)

    return outlined(f"et_gemm_dots_{rows}", 5, emit)


def _total(builder, value):
    """The sum of the lanes in each of them, halves first."""
    for half in (8, 4, 2, 1):
        swapped = shuffle(builder, value, value, [lane ^ half for lane in range(WIDTH)])
        value = builder.fadd(value, swapped)
    return value


def _lane_sum(builder, args):
    value = builder.load(builder.inttoptr(args[1], POINTER), typ=VECTOR, align=4)
    total = builder.extract_element(_total(builder, value), I32(0))
    builder.store(total, builder.inttoptr(args[0], POINTER), align=4)


# (target, source): float32 sum of the 16 lanes at `source`, halves first
lane_sum = define(types.void(types.int64, types.int64), _lane_sum)


def _nine_sums(builder, args):
    *values, ninth = args
    for half in (8, 4, 2):
        low = [lane for lane in range(2 * WIDTH) if not lane & half]
        high = [lane | half for lane in low]
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [
            builder.fadd(shuffle(builder, a, b, low), shuffle(builder, a, b, high))
            for a, b in pairs
        ]
    even, odd = ([lane % WIDTH for lane in range(at, 2 * WIDTH, 2)] for at in (0, 1))
    (value,) = values
    sums = builder.fadd(shuffle(builder, value, value, even), shuffle(builder, value, value, odd))
    last = _total(builder, ninth)
    return shuffle(builder, sums, last, [*range(8), *[WIDTH] * 8])


# (nine vectors) -> what `lane_sum` makes of each, the ninth in the other lanes too
nine_sums = define(V16(*[V16] * 9), _nine_sums)


square16 = stack(4 * WIDTH * WIDTH)  # () -> address of 16 x 16 float32 of the kernel's own


def _transposed(builder, rows):
    """16 vectors -> the 16 columns, by exchanging blocks of 8, 4, 2, 1."""
    for half in (8, 4, 2, 1):
        low = [i + WIDTH - half if i & half else i for i in range(WIDTH)]
        high = [i + WIDTH if i & half else i + half for i in range(WIDTH)]
        out = list(rows)
        for i in range(WIDTH):
            if not i & half:
                out[i] = shuffle(builder, rows[i], rows[i + half], low)
                out[i + half] = shuffle(builder, rows[i], rows[i + half], high)
        rows = out
    return rows


def _transpose(builder, args):
    target, target_stride, source, source_stride = args
    source, target = (builder.inttoptr(a, POINTER) for a in (source, target))
    rows = []
    for i in range(WIDTH):
        place = _offset(builder, source, builder.mul(source_stride, I64(i)))
        rows.append(builder.load(place, typ=VECTOR, align=4))
    for i, column in enumerate(_transposed(builder, rows)):
        place = _offset(builder, target, builder.mul(target_stride, I64(i)))
        builder.store(column, place, align=4)


# (target, target_stride, source, source_stride): 16 x 16 float32, strides in bytes
transpose16 = outlined("et_transpose16", 4, _transpose)


@functools.cache
def turned_lines(storage: Storage):
    """(target, step, count, x, at, stride): float32 target[j][i] = x[at + i * stride + j].

    For i < 16 and j < count, rows of target being `step` bytes apart; 16 lines of 16 are read.
    """

    def emit(builder, args):
        target, step, count, x, at, stride = args
        first, rows = element(builder, x, at, storage.nbytes), []
        for i in range(WIDTH):
            place = _offset(builder, first, builder.mul(stride, I64(i * storage.nbytes)))
            rows.append(load_vector(builder, storage, place))
        target = builder.inttoptr(target, POINTER)
        for j, column in enumerate(_transposed(builder, rows)):
            with builder.if_then(builder.icmp_signed("<", I64(j), count), likely=True):
                place = _offset(builder, target, builder.mul(step, I64(j)))
                builder.store(column, place, align=4)

    return outlined(f"et_turned_{storage.name}", 6, emit)
