"""Products of a few rows with a weight matrix as it lies: the inner loops of recurrences.

A step of a recurrence multiplies a small batch with the same large matrix as the step before, so
packing would cost more than it saves. `dots` reads rows of the matrix along the contracted axis,
`outer` across it. Rows and columns of a tile beyond the last are the last one again: they compute
and store the same numbers twice. Vectors are 16 floats; an element of a result is the same
whatever tile, thread or processor it is made by.
"""

import functools
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..language.calls import outline
from ..language.inlining import inline
from ..language.number import fused
from ..language.prim import F32, I8, I32, I64, POINTER
from ..language.vector import (
    WIDTH,
    constant,
    load_first,
    load_vector,
    shuffle,
    splat,
)

TALL = 4  # rows of a tile
AHEAD = 12  # rows of a matrix that are fetched before they are needed
_V = ir.VectorType(F32, WIDTH)


class Factor(NamedTuple):
    """A matrix: element (i, j) is the one at + i * row + j * step behind an address."""

    address: int
    at: int
    row: int
    step: int


def _at(builder, pointer, nbytes):
    return builder.gep(pointer, [nbytes], source_etype=I8)


def fetch(builder, pointer):
    """Bring a line into the caches; any address will do."""
    kind = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
    name = "llvm.prefetch.p0"
    known = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(known, [pointer, I32(0), I32(3), I32(1)])


def _row(builder, base, step, k: int, last, nbytes: int):
    """Pointer to row min(k, last) of rows `step` elements apart."""
    k = I64(k)
    k = builder.select(builder.icmp_signed("<", k, last), k, last)
    return _at(builder, base, builder.mul(builder.mul(k, step), I64(nbytes)))


def _loop(builder, count, state: list, body) -> list:
    """state = body(index, state) for index 0 .. count - 1."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(I64(0), before)
    phis = [builder.phi(value.type) for value in state]
    for phi, value in zip(phis, state, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, after)
    builder.position_at_end(inside)
    new = body(index, phis)
    index.add_incoming(builder.add(index, I64(1)), builder.block)
    for phi, value in zip(phis, new, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return phis


def _scalar(builder, storage, pointer):
    value = builder.load(pointer, typ=storage.element, align=storage.nbytes)
    return storage.widen(builder, value)


def _sums(builder, vectors: list):
    """A vector of the sums of 16 vectors' lanes, each by halves: j with j + 8, j + 4, ..."""
    half = WIDTH // 2
    while half:
        low = [lane for lane in range(2 * WIDTH) if not lane & half]
        high = [lane for lane in range(2 * WIDTH) if lane & half]
        vectors = [
            builder.fadd(shuffle(builder, a, b, low), shuffle(builder, a, b, high))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
        half //= 2
    return vectors[0]


def _dot_tile(storage, rows: int):
    """(h, h_step, last_row, w, w_step, last_column, k, out, out_step): `rows` x 16 / rows dots."""
    columns = WIDTH // rows

    def codegen(context, builder, signature, args):
        h, h_step, last_row, w, w_step, last_column, k, out, out_step = args
        h, w, out = (builder.inttoptr(p, POINTER) for p in (h, w, out))
        left = [_row(builder, h, h_step, r, last_row, 4) for r in range(rows)]
        right = [_row(builder, w, w_step, c, last_column, storage.nbytes) for c in range(columns)]

        def multiply(index, totals, load):
            at = builder.mul(index, I64(4 * WIDTH))
            states = [builder.load(_at(builder, p, at), typ=_V, align=4) for p in left]
            at = builder.mul(index, I64(storage.nbytes * WIDTH))
            weights = [load(_at(builder, p, at)) for p in right]
            return [
                fused(builder, states[i // columns], weights[i % columns], total)
                for i, total in enumerate(totals)
            ]

        whole = builder.ashr(k, I64(4))
        rest = builder.and_(k, I64(WIDTH - 1))

        further = builder.mul(w_step, I64(columns * storage.nbytes))

        def full(index, totals):
            # the next rows of the matrix come from far
            at = builder.add(further, builder.mul(index, I64(storage.nbytes * WIDTH)))
            for p in right:
                fetch(builder, _at(builder, p, at))
            return multiply(index, totals, lambda p: load_vector(builder, storage, p))

        def part(index, totals):
            index = builder.add(index, whole)
            return multiply(index, totals, lambda p: load_first(builder, storage, p, rest))

        totals = _loop(builder, whole, [constant(0.0)] * WIDTH, full)
        more = builder.zext(builder.icmp_signed(">", rest, I64(0)), I64)
        totals = _loop(builder, more, totals, part)
        sums = _sums(builder, totals)
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


@functools.cache
def dots(storage):
    """(h, rows, w, columns, terms, out, out_step): out[r, c] = h[r] . w[c].

    h and out are float32; rows of h are readable, and 0, up to a multiple of 16 elements. Order: 16
    chains of fma over every 16th term, added by halves.
    """
    quad, single = _dot_tile(storage, TALL), _dot_tile(storage, 1)
    nbytes = storage.nbytes

    def product(h, h_step, rows, w, w_step, columns, k, out, out_step):
        if rows == 1:
            for c in range(0, columns, 16):
                last = min(15, columns - 1 - c)
                single(h, h_step, 0, w + c * w_step * nbytes, w_step, last, k, out + 4 * c, 0)
        else:
            for c in range(0, columns, 4):
                last, place = min(3, columns - 1 - c), w + c * w_step * nbytes
                for r in range(0, rows, 4):
                    left, bottom = h + 4 * r * h_step, min(3, rows - 1 - r)
                    to = out + 4 * (r * out_step + c)
                    quad(left, h_step, bottom, place, w_step, last, k, to, out_step)

    product = outline(f"et_recurrent_dots_{storage.name}", product)

    @inline
    def multiply(h, rows, w, columns, terms, out, out_step):
        left, right = h.address + 4 * h.at, w.address + w.at * nbytes
        product(left, h.row, rows, right, w.row, columns, terms, out, out_step)

    return multiply


def _outer_tile(left, right, vectors: int):
    """(a, a_row, a_step, last_row, w, w_step, valid, count, out, out_step): 4 rows of a tile.

    `valid`: columns to load of the only vector, where there is one.
    """

    def codegen(context, builder, signature, args):
        a, a_row, a_step, last_row, w, w_step, valid, count, out, out_step = args
        a, w, out = (builder.inttoptr(p, POINTER) for p in (a, w, out))
        sources = [_row(builder, a, a_row, r, last_row, left.nbytes) for r in range(TALL)]

        def body(index, totals):
            line = _at(builder, w, builder.mul(builder.mul(index, w_step), I64(right.nbytes)))
            places = [_at(builder, line, I64(WIDTH * v * right.nbytes)) for v in range(vectors)]
            for place in places:  # the same columns of a row to come
                fetch(builder, _at(builder, place, builder.mul(w_step, I64(AHEAD * right.nbytes))))
            if vectors == 1:
                weights = [load_first(builder, right, places[0], valid)]
            else:
                weights = [load_vector(builder, right, place) for place in places]
            at = builder.mul(builder.mul(index, a_step), I64(left.nbytes))
            values = [
                splat(builder, _scalar(builder, left, _at(builder, source, at)))
                for source in sources
            ]
            return [
                fused(builder, values[i // vectors], weights[i % vectors], total)
                for i, total in enumerate(totals)
            ]

        totals = _loop(builder, count, [constant(0.0)] * (TALL * vectors), body)
        places = [
            _at(builder, _row(builder, out, out_step, r, last_row, 4), I64(4 * WIDTH * v))
            for r in range(TALL)
            for v in range(vectors)
        ]
        old = [builder.load(place, typ=_V, align=4) for place in places]
        for place, before, total in zip(places, old, totals, strict=True):
            builder.store(builder.fadd(before, total), place, align=4)
        return context.get_dummy_value()

    @intrinsic
    def tile(typingctx, a, a_row, a_step, last_row, w, w_step, valid, count, out, out_step):
        return types.void(*[types.int64] * 10), codegen

    return tile


@functools.cache
def outer(left, right):
    """(a, rows, w, columns, terms, out, out_step): out[r, c] += sum over i of a[r, i] * w[i, c].

    Columns of w are neighbours; out is float32 and writable up to a multiple of 16 columns. Order:
    a chain of fma, then out.
    """
    wide, narrow = _outer_tile(left, right, 4), _outer_tile(left, right, 1)
    lbytes, rbytes = left.nbytes, right.nbytes

    def product(a, a_row, a_step, rows, w, w_step, columns, terms, out, out_step):
        c = 0
        while c < columns:
            step, right_at = 64 if c + 64 <= columns else 16, w + c * rbytes
            for r in range(0, rows, 4):
                last, source = min(3, rows - 1 - r), a + r * a_row * lbytes
                to = out + 4 * (r * out_step + c)
                if step == 64:
                    wide(source, a_row, a_step, last, right_at, w_step, 64, terms, to, out_step)
                else:
                    rest = columns - c
                    narrow(source, a_row, a_step, last, right_at, w_step, rest, terms, to, out_step)
            c += step

    product = outline(f"et_recurrent_outer_{left.name}_{right.name}", product)

    @inline
    def multiply(a, rows, w, columns, terms, out, out_step):
        source, weights = a.address + a.at * lbytes, w.address + w.at * rbytes
        product(source, a.row, a.step, rows, weights, w.row, columns, terms, out, out_step)

    return multiply
