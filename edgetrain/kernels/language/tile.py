"""Register tiles: rows of sums that stay in registers while a loop adds products to them.

Gemm, convolutions and recurrences use them. Loops carry their sums as phi values, which Python
variables cannot express for lists. Vectors are WIDTH floats wide; LLVM splits them if the
processor's are shorter. Addresses are int64, strides bytes unless a docstring says elements.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .calls import emitted
from .number import copies, fused
from .prim import F32, I8, I32, I64, POINTER
from .square import turned_quads
from .vector import (
    V16,
    VECTOR,
    WIDTH,
    constant,
    define,
    load_first,
    load_vector,
    outlined,
    shuffle,
    splat,
)

SET, ADD, GO_ON = 0, 1, 2  # how a register tile starts and stores its sums
TALL = 4  # rows of a recurrence's tile
AHEAD = 12  # how many rows ahead a matrix is prefetched


class Rows(NamedTuple):
    """Float32 numbers at `address`. Neighbours are `step` bytes apart along their own dimension,
    and `k` bytes along the contracted one."""

    address: int
    step: int
    k: int


def _at(builder, pointer, nbytes):
    return builder.gep(pointer, [nbytes], source_etype=I8)


def _loop(builder, count, values, body):
    """for j in range(count): values = body(j, values); returns the final values."""
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


def _loop_once(builder, count, state: list, body: Callable) -> list:
    """`state = body(index, state)` for index 0 .. count - 1, at least once."""
    before = builder.block
    inside = builder.append_basic_block("loop")
    after = builder.append_basic_block("done")
    builder.branch(inside)
    builder.position_at_end(inside)
    index = builder.phi(I64)
    index.add_incoming(I64(0), before)
    phis = [builder.phi(value.type) for value in state]
    new = body(index, phis)
    following = builder.add(index, I64(1))
    for phi, start, value in zip([index, *phis], [None, *state], [following, *new], strict=True):
        if start is not None:
            phi.add_incoming(start, before)
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)
    return new


def _multiply(builder, numbers, columns, totals):
    """totals[m][v] + numbers[m] * columns[v], flat; numbers are vectors of copies."""
    return [
        fused(builder, numbers[i // len(columns)], columns[i % len(columns)], total)
        for i, total in enumerate(totals)
    ]


def _folded(builder, vectors: list, halves):
    """For each two neighbouring vectors, one vector: lanes that are `half` apart, added."""
    for half in halves:
        low = [lane for lane in range(2 * WIDTH) if not lane & half]
        high = [lane | half for lane in low]
        vectors = [
            builder.fadd(shuffle(builder, a, b, low), shuffle(builder, a, b, high))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors


@functools.cache
def gemm_columns(rows: int, vectors: int):
    """(y, y_stride, panel, w, w_stride, table, count): y[m][:] += sum_k w[m][k] * panel[k].

    `rows` output rows of `vectors` vectors stay in registers; strides are bytes; w is float32. For
    each k, table has a pair of int32 byte offsets: into the panel and into a row of w. Order of a
    sum: the value in y, then k ascending, by fma.
    """

    def emit(builder, args):
        y, y_stride, panel, w, w_stride, table, count = args
        y, panel, w, table = (builder.inttoptr(a, POINTER) for a in (y, panel, w, table))
        y_rows = [_at(builder, y, builder.mul(y_stride, I64(m))) for m in range(rows)]
        w_rows = [_at(builder, w, builder.mul(w_stride, I64(m))) for m in range(rows)]
        places = [_at(builder, row, I64(64 * v)) for row in y_rows for v in range(vectors)]

        def body(k, totals):
            pair = _at(builder, table, builder.mul(k, I64(8)))
            offset = builder.load(pair, typ=I32, align=4)
            column = _at(builder, panel, builder.sext(offset, I64))
            offset = builder.load(_at(builder, pair, I64(4)), typ=I32, align=4)
            step = builder.sext(offset, I64)
            columns = [
                builder.load(_at(builder, column, I64(64 * v)), typ=VECTOR, align=4)
                for v in range(vectors)
            ]
            weights = [
                splat(builder, builder.load(_at(builder, row, step), typ=F32, align=4))
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

    y rows and d rows are `vectors` vectors wide; strides are bytes; table has `rows` int32 byte
    offsets of float32 rows in the panel. Order: the sum over p from zero by fma, then y.
    """

    def emit(builder, args):
        y, y_stride, panel, table, d, d_stride, count = args
        y, panel, table, d = (builder.inttoptr(a, POINTER) for a in (y, panel, table, d))
        sources = []
        for m in range(rows):
            offset = builder.load(_at(builder, table, I64(4 * m)), typ=I32, align=4)
            sources.append(_at(builder, panel, builder.sext(offset, I64)))

        def body(p, totals):
            row = _at(builder, d, builder.mul(p, d_stride))
            columns = [
                builder.load(_at(builder, row, I64(64 * v)), typ=VECTOR, align=64)
                for v in range(vectors)
            ]
            step = builder.mul(p, I64(4))
            weights = [
                splat(builder, builder.load(_at(builder, source, step), typ=F32, align=4))
                for source in sources
            ]
            return _multiply(builder, weights, columns, totals)

        totals = _loop(builder, count, [constant(0.0)] * (rows * vectors), body)
        for m in range(rows):
            y_row = _at(builder, y, builder.mul(y_stride, I64(m)))
            for v in range(vectors):
                place = _at(builder, y_row, I64(64 * v))
                old = builder.load(place, typ=VECTOR, align=64)
                builder.store(builder.fadd(old, totals[m * vectors + v]), place, align=64)

    return outlined(f"et_gemm_outer_{rows}x{vectors}", 7, emit)


@functools.cache
def gemm_dots(rows: int):
    """(sums, line, panel, table, count): sums[m][lane] += sum of panel[table[m] + p] * line[p].

    p runs over `count` floats, and lane is p modulo 16; sums are `rows` vectors, table int32 byte
    offsets. Values after `count` in line and panel are read, but count as zero.
    """

    def emit(builder, args):
        sums, line, panel, table = (builder.inttoptr(a, POINTER) for a in args[:4])
        places = [_at(builder, sums, I64(64 * m)) for m in range(rows)]
        sources = []
        for m in range(rows):
            offset = builder.load(_at(builder, table, I64(4 * m)), typ=I32, align=4)
            sources.append(_at(builder, panel, builder.sext(offset, I64)))
        lanes = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH)))

        def add(v, totals, keep):
            step = builder.mul(v, I64(64))
            factor = keep(builder.load(_at(builder, line, step), typ=VECTOR, align=4))
            return [
                fused(
                    builder,
                    keep(builder.load(_at(builder, source, step), typ=VECTOR, align=4)),
                    factor,
                    total,
                )
                for source, total in zip(sources, totals, strict=True)
            ]

        full = builder.ashr(args[4], I64(4))
        rest = builder.trunc(builder.sub(args[4], builder.shl(full, I64(4))), I32)
        mask = builder.icmp_signed("<", lanes, splat(builder, rest))
        totals = [builder.load(place, typ=VECTOR, align=64) for place in places]
        totals = _loop(builder, full, totals, lambda v, t: add(v, t, lambda value: value))
        totals = add(full, totals, lambda value: builder.select(mask, value, constant(0.0)))
        for place, total in zip(places, totals, strict=True):
            builder.store(total, place, align=64)

    return outlined(f"et_gemm_dots_{rows}", 5, emit)


def _total(builder, value):
    """The sum of all lanes, in every lane; halves are added first."""
    for half in (8, 4, 2, 1):
        swapped = shuffle(builder, value, value, [lane ^ half for lane in range(WIDTH)])
        value = builder.fadd(value, swapped)
    return value


def _lane_sum(builder, args):
    value = builder.load(builder.inttoptr(args[1], POINTER), typ=VECTOR, align=4)
    total = builder.extract_element(_total(builder, value), I32(0))
    builder.store(total, builder.inttoptr(args[0], POINTER), align=4)


# (target, source): store the float32 sum of the 16 lanes at `source`, halves first
lane_sum = define(types.void(types.int64, types.int64), _lane_sum)


def _nine_sums(builder, args):
    *values, ninth = args
    values = _folded(builder, values, (8, 4, 2))
    even, odd = ([lane % WIDTH for lane in range(offset, 2 * WIDTH, 2)] for offset in (0, 1))
    (value,) = values
    sums = builder.fadd(shuffle(builder, value, value, even), shuffle(builder, value, value, odd))
    last = _total(builder, ninth)
    return shuffle(builder, sums, last, [*range(8), *[WIDTH] * 8])


# (nine vectors) -> the `lane_sum` of each; the ninth's is also in the other lanes
nine_sums = define(V16(*[V16] * 9), _nine_sums)


@functools.cache
def micro_kernel(rows: int, vectors: int):
    """(a, b, c, k, how): c[rows][vectors * 16] (+)= a[rows][k] * b[k][vectors * 16].

    a: `Rows` of single numbers; b: `Rows` of vectors of 16 consecutive numbers; c: rows of sums,
    `c.step` bytes apart, in vectors of 16. With SET and ADD, sums start from zero, add products by
    fma in the order of k, and are then stored (SET) or added to c (ADD). With GO_ON, they continue
    from c.
    """

    def emit(b, left, right, result, count, how):
        a_base, b_base, c_base = (b.inttoptr(r.address, POINTER) for r in (left, right, result))
        a_rows = [_at(b, a_base, b.mul(left.step, I64(r))) for r in range(rows)]
        b_rows = [_at(b, b_base, b.mul(right.step, I64(v))) for v in range(vectors)]

        def body(_, state):
            a_step, b_step, *sums = state
            columns = [b.load(_at(b, row, b_step), typ=VECTOR, align=4) for row in b_rows]
            new = []
            for r, row in enumerate(a_rows):
                number = splat(b, b.load(_at(b, row, a_step), typ=F32, align=4))
                new += _multiply(b, [number], columns, sums[r * vectors : (r + 1) * vectors])
            return [b.add(a_step, left.k), b.add(b_step, right.k), *new]

        places = [
            _at(b, c_base, b.add(b.mul(result.step, I64(r)), I64(4 * WIDTH * v)))
            for r in range(rows)
            for v in range(vectors)
        ]
        start = b.block
        with b.if_then(b.icmp_signed("==", how, I64(GO_ON))):
            before = [b.load(place, typ=VECTOR, align=4) for place in places]
            loaded = b.block
        firsts = []
        for value in before:
            first = b.phi(VECTOR)
            first.add_incoming(constant(0.0), start)
            first.add_incoming(value, loaded)
            firsts.append(first)
        _, _, *sums = _loop_once(b, count, [I64(0), I64(0), *firsts], body)
        with b.if_else(b.icmp_signed("==", how, I64(ADD))) as (then, otherwise):
            with then:
                for place, value in zip(places, sums, strict=True):
                    old = b.load(place, typ=VECTOR, align=4)
                    b.store(b.fadd(old, value), place, align=4)
            with otherwise:
                for place, value in zip(places, sums, strict=True):
                    b.store(value, place, align=4)

    parameters = {"a": Rows, "b": Rows, "c": Rows, "k": int, "how": int}
    return emitted(f"et_gemm_{rows}x{vectors}", parameters, emit)


@functools.cache
def turned_row(storage, side: int, chain_terms: int, across: int = WIDTH):
    """(a, b, offset, step, valid, c, k, how): c[across] (+)= a[k] * b[k][across], with columns of b
    contiguous along k.

    a: float32 numbers `a.k` bytes apart. Column j of b starts at element `offset + j * step`;
    columns from `valid` on are not read. k is a multiple of `side`. A chain has `chain_terms`
    terms; chains are summed in order, and the sum is stored or added (how SET or ADD). Columns are
    transposed in registers; no panel is written.
    """
    kind = ir.VectorType(F32, side)

    def emit(b, left, source, offset, step, valid, c, count, how):
        base, row = b.inttoptr(left.address, POINTER), b.inttoptr(c, POINTER)
        last = b.sub(valid, I64(1))
        places = [_at(b, row, I64(4 * first)) for first in range(0, across, side)]
        zero = ir.Constant(kind, [0.0] * side)
        offsets = [
            b.mul(step, b.select(b.icmp_signed("<", I64(r), last), I64(r), last))
            for r in range(across)
        ]

        def body(_, state):
            number, first, *sums = state
            factors = []
            for r in range(side):
                place = _at(b, base, b.add(number, b.mul(left.k, I64(r))))
                factors.append(copies(b, b.load(place, typ=F32, align=4), side))
            new = []
            for part, total in enumerate(sums):
                lines = offsets[part * side : (part + 1) * side]
                for r in range(0, side, 4):
                    columns = turned_quads(b, storage, source, b.add(first, I64(r)), lines)
                    for factor, column in zip(factors[r:], columns, strict=False):
                        total = fused(b, factor, column, total)
                new.append(total)
            return [b.add(number, b.mul(left.k, I64(side))), b.add(first, I64(side)), *new]

        def chain(index, state):
            number, first, *totals = state
            terms = b.sub(count, b.mul(index, I64(chain_terms)))
            terms = b.select(b.icmp_signed("<", terms, I64(chain_terms)), terms, I64(chain_terms))
            start = [number, first, *[zero] * len(places)]
            number, first, *sums = _loop_once(b, b.sdiv(terms, I64(side)), start, body)
            begun = b.icmp_signed(">", index, I64(0))
            totals = [
                b.select(begun, b.fadd(total, value), value)
                for total, value in zip(totals, sums, strict=True)
            ]
            return [number, first, *totals]

        chains = b.sdiv(b.add(count, I64(chain_terms - 1)), I64(chain_terms))
        _, _, *sums = _loop_once(b, chains, [I64(0), offset, *[zero] * len(places)], chain)
        with b.if_else(b.icmp_signed("==", how, I64(ADD))) as (then, otherwise):
            with then:
                for place, value in zip(places, sums, strict=True):
                    b.store(b.fadd(b.load(place, typ=kind, align=4), value), place, align=4)
            with otherwise:
                for place, value in zip(places, sums, strict=True):
                    b.store(value, place, align=4)

    integers = dict.fromkeys(("b", "at", "step", "valid", "c", "k", "how"), int)
    return emitted(f"et_gemm_turned_{storage.name}_{side}_{across}", {"a": Rows, **integers}, emit)


def _fetch(builder, pointer):
    """Prefetch a cache line; any address is allowed."""
    kind = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
    name = "llvm.prefetch.p0"
    known = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(known, [pointer, I32(0), I32(3), I32(1)])


def _row(builder, base, step, k: int, last, nbytes: int):
    """Pointer to row min(k, last) of rows `step` elements apart."""
    k = I64(k)
    k = builder.select(builder.icmp_signed("<", k, last), k, last)
    return _at(builder, base, builder.mul(builder.mul(k, step), I64(nbytes)))


def _scalar(builder, storage, pointer):
    value = builder.load(pointer, typ=storage.element, align=storage.nbytes)
    return storage.widen(builder, value)


def dot_tile(storage, rows: int):
    """(h, h_step, last_row, w, w_step, last_column, k, out, out_step): a tile of `rows` x (16 /
    rows) dot products."""
    columns = WIDTH // rows

    def codegen(context, builder, signature, args):
        h, h_step, last_row, w, w_step, last_column, k, out, out_step = args
        h, w, out = (builder.inttoptr(p, POINTER) for p in (h, w, out))
        left = [_row(builder, h, h_step, r, last_row, 4) for r in range(rows)]
        right = [_row(builder, w, w_step, c, last_column, storage.nbytes) for c in range(columns)]

        def multiply(index, totals, load):
            offset = builder.mul(index, I64(4 * WIDTH))
            states = [builder.load(_at(builder, p, offset), typ=VECTOR, align=4) for p in left]
            offset = builder.mul(index, I64(storage.nbytes * WIDTH))
            weights = [load(_at(builder, p, offset)) for p in right]
            return _multiply(builder, states, weights, totals)

        blocks = builder.ashr(k, I64(4))
        rest = builder.and_(k, I64(WIDTH - 1))

        further = builder.mul(w_step, I64(columns * storage.nbytes))

        def full(index, totals):
            # prefetch the next rows of the matrix
            offset = builder.add(further, builder.mul(index, I64(storage.nbytes * WIDTH)))
            for p in right:
                _fetch(builder, _at(builder, p, offset))
            return multiply(index, totals, lambda p: load_vector(builder, storage, p))

        def part(index, totals):
            index = builder.add(index, blocks)
            return multiply(index, totals, lambda p: load_first(builder, storage, p, rest))

        totals = _loop(builder, blocks, [constant(0.0)] * WIDTH, full)
        more = builder.zext(builder.icmp_signed(">", rest, I64(0)), I64)
        totals = _loop(builder, more, totals, part)
        (sums,) = _folded(builder, totals, (8, 4, 2, 1))
        for r in range(rows):
            place = _row(builder, out, out_step, r, last_row, 4)
            for c in range(columns):
                value = builder.extract_element(sums, I32(r * columns + c))
                builder.store(value, _row(builder, place, I64(1), c, last_column, 4), align=4)
        return context.get_dummy_value()

    @intrinsic
    def tile(typingctx, h, h_step, last_row, w, w_step, last_column, k, out, out_step):
        return types.void(*[types.int64] * 9), codegen

    return tile


def outer_tile(left, right, vectors: int):
    """(a, a_row, a_step, last_row, w, w_step, valid, count, out, out_step): 4 rows of a tile.

    Adds a product to `out`. `valid`: number of columns to load, if there is only one vector.
    """

    def codegen(context, builder, signature, args):
        a, a_row, a_step, last_row, w, w_step, valid, count, out, out_step = args
        a, w, out = (builder.inttoptr(p, POINTER) for p in (a, w, out))
        sources = [_row(builder, a, a_row, r, last_row, left.nbytes) for r in range(TALL)]

        def body(index, totals):
            line = _at(builder, w, builder.mul(builder.mul(index, w_step), I64(right.nbytes)))
            places = [_at(builder, line, I64(WIDTH * v * right.nbytes)) for v in range(vectors)]
            for place in places:  # the same columns of a row to come
                _fetch(builder, _at(builder, place, builder.mul(w_step, I64(AHEAD * right.nbytes))))
            if vectors == 1:
                weights = [load_first(builder, right, places[0], valid)]
            else:
                weights = [load_vector(builder, right, place) for place in places]
            offset = builder.mul(builder.mul(index, a_step), I64(left.nbytes))
            values = [
                splat(builder, _scalar(builder, left, _at(builder, source, offset)))
                for source in sources
            ]
            return _multiply(builder, values, weights, totals)

        totals = _loop(builder, count, [constant(0.0)] * (TALL * vectors), body)
        places = [
            _at(builder, _row(builder, out, out_step, r, last_row, 4), I64(4 * WIDTH * v))
            for r in range(TALL)
            for v in range(vectors)
        ]
        old = [builder.load(place, typ=VECTOR, align=4) for place in places]
        for place, before, total in zip(places, old, totals, strict=True):
            builder.store(builder.fadd(before, total), place, align=4)
        return context.get_dummy_value()

    @intrinsic
    def tile(typingctx, a, a_row, a_step, last_row, w, w_step, valid, count, out, out_step):
        return types.void(*[types.int64] * 10), codegen

    return tile
