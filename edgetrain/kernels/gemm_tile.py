"""What gemm's tiles are made of, emitted as vector IR: register tiles, copies, transposes.

Vectors are WIDTH floats wide in the text; LLVM splits them where the processor's are shorter.
"""

import functools
from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .words.prim import F32, I32, I64, POINTER, element
from .words.vector import load_vector

MT, NT, KC = 64, 64, 96  # rows and columns of a tile of c, terms of a block
WIDTH = 16  # floats of a vector


def _vector(count: int, scalar=F32) -> ir.VectorType:
    return ir.VectorType(scalar, count)


def _splat(builder, value, count: int):
    undefined = ir.Constant(_vector(count), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(_vector(count, I32), [0] * count))


def _fma(builder, a, b, c):
    name = f"llvm.fma.v{a.type.count}f32"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return builder.call(function, [a, b, c])


def _loop(builder, count, state: list, body: Callable) -> list:
    """`state = body(index, state)` for index 0 .. count - 1, at least once."""
    before = builder.block
    inside = builder.append_basic_block("loop")
    after = builder.append_basic_block("done")
    builder.branch(inside)
    builder.position_at_end(inside)
    index = builder.phi(I64)
    index.add_incoming(ir.Constant(I64, 0), before)
    phis = [builder.phi(value.type) for value in state]
    new = body(index, phis)
    following = builder.add(index, ir.Constant(I64, 1))
    for phi, start, value in zip([index, *phis], [None, *state], [following, *new], strict=True):
        if start is not None:
            phi.add_incoming(start, before)
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)
    return new


@functools.cache
def micro_kernel(rows: int, vectors: int):
    """(a, b, c, k, add): c[rows][vectors * 16] (+)= a[rows][k] * b[vectors][k][16], all packed."""

    def codegen(context, builder, signature, args):
        b = builder
        a_panel, b_panel, c_tile, count, add = args
        a_base, b_base, c_base = (b.inttoptr(p, POINTER) for p in (a_panel, b_panel, c_tile))

        def at(base, floats):
            return b.gep(base, [ir.Constant(I64, 4 * floats)], source_etype=ir.IntType(8))

        def body(k, sums):
            ak = b.gep(a_base, [k], source_etype=F32)
            bk = b.gep(b_base, [k], source_etype=_vector(WIDTH))
            right = [
                b.load(at(bk, v * KC * WIDTH), typ=_vector(WIDTH), align=64) for v in range(vectors)
            ]
            new = []
            for r in range(rows):
                left = _splat(b, b.load(at(ak, r * KC), typ=F32, align=4), WIDTH)
                new += [_fma(b, left, right[v], sums[r * vectors + v]) for v in range(vectors)]
            return new

        zero = ir.Constant(_vector(WIDTH), [0.0] * WIDTH)
        sums = _loop(b, count, [zero] * (rows * vectors), body)
        places = [at(c_base, r * NT + v * WIDTH) for r in range(rows) for v in range(vectors)]
        with b.if_else(b.icmp_signed("!=", add, ir.Constant(I64, 0))) as (then, otherwise):
            with then:
                for place, value in zip(places, sums, strict=True):
                    old = b.load(place, typ=_vector(WIDTH), align=64)
                    b.store(b.fadd(old, value), place, align=64)
            with otherwise:
                for place, value in zip(places, sums, strict=True):
                    b.store(value, place, align=64)
        return context.get_dummy_value()

    @intrinsic
    def micro(typingctx, a, b, c, k, add):
        return types.void(*[types.int64] * 5), codegen

    return micro


def _load_vector(builder, storage, address, index, count):
    return load_vector(builder, storage, element(builder, address, index, storage.nbytes), count)


def copier(storage):
    """(source, at, panel, to): 16 elements in a row to float32."""

    @intrinsic
    def copy(typingctx, source, at, panel, to):
        def codegen(context, builder, signature, args):
            value = _load_vector(builder, storage, args[0], args[1], WIDTH)
            builder.store(value, element(builder, args[2], args[3], 4), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return copy


def transposer(storage, side: int):
    """(source, at, step, valid, panel, to, panel_step): a square of `side` x `side`, transposed.

    Row r of the source starts at `at + min(r, valid - 1) * step`; row r of the panel at
    `to + r * panel_step`.
    """

    def codegen(context, builder, signature, args):
        b = builder
        source, at, step, valid, panel, to, panel_step = args
        last = b.sub(valid, ir.Constant(I64, 1))
        rows = []
        for r in range(side):
            row = ir.Constant(I64, r)
            row = b.select(b.icmp_signed("<", row, last), row, last)
            place = b.add(at, b.mul(row, step))
            rows.append(_load_vector(b, storage, source, place, side))
        half = 1
        while half < side:
            low = [j if not j & half else side + j - half for j in range(side)]
            high = [j + half if not j & half else side + j for j in range(side)]
            new = list(rows)
            for r in range(side):
                if not r & half:
                    pair = rows[r], rows[r + half]
                    masks = [ir.Constant(_vector(side, I32), m) for m in (low, high)]
                    new[r], new[r + half] = (b.shuffle_vector(*pair, m) for m in masks)
            rows, half = new, 2 * half
        for r, value in enumerate(rows):
            place = b.add(to, b.mul(ir.Constant(I64, r), panel_step))
            b.store(value, element(b, panel, place, 4), align=4)
        return context.get_dummy_value()

    @intrinsic
    def transpose(typingctx, source, at, step, valid, panel, to, panel_step):
        return types.void(*[types.int64] * 7), codegen

    return transpose
