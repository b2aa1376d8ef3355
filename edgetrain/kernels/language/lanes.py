"""Rows and columns in blocks of LANES elements: every inner loop has one fixed length.

A walk along the middle axis of [outer, n, inner] is cut into work items: a row (inner 1: its
positions modulo LANES have a float64 partial result each, combined in a fixed tree) or LANES
columns (a result each; one element of each at a time). Either way lane j of block t is the element
at base + t * step + j, and lanes from `width` on are padding.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .block import get, put, put_wide
from .inlining import inline
from .prim import F64, I32, div

LANES = 64


def _larger(builder, a, b):
    unordered = builder.fcmp_unordered("uno", a, a)
    return builder.select(builder.or_(builder.fcmp_ordered(">", a, b), unordered), a, b)


def _smaller(builder, a, b):
    unordered = builder.fcmp_unordered("uno", a, a)
    return builder.select(builder.or_(builder.fcmp_ordered("<", a, b), unordered), a, b)


_COMBINE = {
    "add": lambda builder, a, b: builder.fadd(a, b),
    "mul": lambda builder, a, b: builder.fmul(a, b),
    "max": _larger,
    "min": _smaller,
}


def fold(kind: str):
    """fold(wide): sum, product, max or min of LANES float64 by halves: j with j + 32, ... ."""
    combine = _COMBINE[kind]

    @intrinsic
    def fold(typingctx, wide):
        def codegen(context, builder, signature, args):
            whole = ir.VectorType(F64, LANES)
            value = builder.load(builder.bitcast(args[0], whole.as_pointer()), align=64)
            half = LANES // 2
            while half:
                low, high = (
                    builder.shuffle_vector(
                        value,
                        ir.Constant(value.type, ir.Undefined),
                        ir.Constant(ir.VectorType(I32, half), list(range(start, start + half))),
                    )
                    for start in (0, half)
                )
                value, half = combine(builder, low, high), half // 2
            return builder.extract_element(value, ir.Constant(I32, 0))

        return types.float64(types.voidptr), codegen

    return fold


@inline
def reset(wide, first, value):
    """LANES partial results from `first` on become `value`."""
    for j in range(LANES):
        put_wide(wide, first + j, value)


def loader(load):
    """load64(buffer, address, at, m, rest): LANES elements from `at` on; `rest` from the m-th."""

    @inline
    def load64(buffer, address, at, m, rest):
        if m == LANES:
            for j in range(LANES):
                put(buffer, j, load(address, at + j))
        else:
            for j in range(m):
                put(buffer, j, load(address, at + j))
            for j in range(m, LANES):
                put(buffer, j, rest)

    return load64


def storer(store):
    """store64(buffer, address, at, m): the first m <= LANES elements go to `at` on."""

    @inline
    def store64(buffer, address, at, m):
        if m == LANES:
            for j in range(LANES):
                store(address, at + j, get(buffer, j))
        else:
            for j in range(m):
                store(address, at + j, get(buffer, j))

    return store64


@intrinsic
def real(typingctx, count):
    """A count (of at most 31 bits) as float64, without a call on 32-bit processors."""

    def codegen(context, builder, signature, args):
        return builder.sitofp(builder.trunc(args[0], I32), F64)

    return types.float64(types.int64), codegen


@inline
def items(outer, inner):
    """Number of work items."""
    return outer * div(inner + LANES - 1, LANES)


@inline
def item(k, n, inner):
    """(base, columns or 0 for a row, blocks, step) of work item k."""
    if inner == 1:
        return k * n, 0, div(n + LANES - 1, LANES), LANES
    across = div(inner + LANES - 1, LANES)
    row = div(k, across)
    column = (k - row * across) * LANES
    return row * n * inner + column, min(LANES, inner - column), n, inner


@inline
def width(t, columns, n):
    """Elements of block t."""
    return columns if columns > 0 else min(LANES, n - t * LANES)
