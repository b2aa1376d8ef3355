"""What gemm's tiles are made of, emitted as vector IR: register tiles, copies, transposes.

Vectors are WIDTH floats wide in the text; LLVM splits them where the processor's are shorter.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .conv.calls import emitted
from .words.prim import F32, I8, I32, I64, POINTER, element
from .words.vector import VECTOR, WIDTH, constant, fused, load_vector, shuffle, splat

SET, ADD, GO_ON = 0, 1, 2  # what a register tile does with its sums


class Rows(NamedTuple):
    """Float32 numbers at `at`, neighbours along their own dimension `own` bytes apart, along the
    contracted one `k` bytes."""

    at: int
    own: int
    k: int


def _at(builder, pointer, nbytes):
    return builder.gep(pointer, [nbytes], source_etype=I8)


def _loop(builder, count, state: list, body: Callable) -> list:
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


@functools.cache
def micro_kernel(rows: int, vectors: int):
    """(a, b, c, k, how): c[rows][vectors * 16] (+)= a[rows][k] * b[k][vectors * 16].

    a: `Rows` of single numbers; b: of vectors of 16 in a row; c: rows of sums `c.own` bytes apart,
    vectors of 16 in a row. The products start from zero and go up k by fma, then they are stored
    (how SET) or added (ADD); or they go on from c (GO_ON).
    """

    def emit(b, left, right, result, count, how):
        a_base, b_base, c_base = (b.inttoptr(r.at, POINTER) for r in (left, right, result))
        a_rows = [_at(b, a_base, b.mul(left.own, I64(r))) for r in range(rows)]
        b_rows = [_at(b, b_base, b.mul(right.own, I64(v))) for v in range(vectors)]

        def body(_, state):
            a_step, b_step, *sums = state
            columns = [b.load(_at(b, row, b_step), typ=VECTOR, align=4) for row in b_rows]
            new = []
            for r, row in enumerate(a_rows):
                number = splat(b, b.load(_at(b, row, a_step), typ=F32, align=4))
                new += [
                    fused(b, number, column, sums[r * vectors + v])
                    for v, column in enumerate(columns)
                ]
            return [b.add(a_step, left.k), b.add(b_step, right.k), *new]

        places = [
            _at(b, c_base, b.add(b.mul(result.own, I64(r)), I64(4 * WIDTH * v)))
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
        _, _, *sums = _loop(b, count, [I64(0), I64(0), *firsts], body)
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


def stack(nbytes: int):
    """() -> address of bytes of the thread's stack, the same at every call in a kernel."""

    @intrinsic
    def memory(typingctx):
        def codegen(context, builder, signature, args):
            with builder.goto_entry_block():
                place = builder.alloca(ir.ArrayType(I8, nbytes))
                place.align = 64
            return builder.ptrtoint(place, I64)

        return types.int64(), codegen

    return memory


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


def _squared(b, storage, source, at, step, last, side: int) -> list:
    """`side` vectors: the transpose of the square whose rows start at `at + min(r, last) * step`;
    the last ones are those of row `last` where there are fewer."""
    rows = []
    for r in range(side):
        row = I64(r)
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
                new[r], new[r + half] = (shuffle(b, *pair, lanes) for lanes in (low, high))
        rows, half = new, 2 * half
    return rows


def transposer(storage, side: int):
    """(source, at, step, valid, panel, to, panel_step): a square of `side` x `side`, transposed.

    Row r of the source starts at `at + min(r, valid - 1) * step`; row r of the panel at
    `to + r * panel_step`.
    """

    def codegen(context, builder, signature, args):
        b = builder
        source, at, step, valid, panel, to, panel_step = args
        rows = _squared(b, storage, source, at, step, b.sub(valid, I64(1)), side)
        for r, value in enumerate(rows):
            place = b.add(to, b.mul(I64(r), panel_step))
            b.store(value, element(b, panel, place, 4), align=4)
        return context.get_dummy_value()

    @intrinsic
    def transpose(typingctx, source, at, step, valid, panel, to, panel_step):
        return types.void(*[types.int64] * 7), codegen

    return transpose


@functools.cache
def turned_row(storage, side: int):
    """(a, b, at, step, valid, c, k, how): c[16] (+)= a[k] * b[k][16]; b's columns lie along k.

    a: float32 numbers `a.k` bytes apart; column j of b starts at element `at + j * step`, of those
    from `valid` on nothing is read; k is a multiple of `side`. Chains as in `micro_kernel`, how SET
    or ADD: squares are turned in registers, no panel is written.
    """
    kind = ir.VectorType(F32, side)

    def emit(b, left, source, at, step, valid, c, count, how):
        base, row = b.inttoptr(left.at, POINTER), b.inttoptr(c, POINTER)
        last = b.sub(valid, I64(1))
        places = [_at(b, row, I64(4 * first)) for first in range(0, WIDTH, side)]
        name = f"llvm.fma.v{side}f32"
        fma = b.module.globals.get(name) or ir.Function(
            b.module, ir.FunctionType(kind, [kind] * 3), name
        )

        def body(index, state):
            number, *sums = state
            first = b.add(at, b.mul(index, I64(side)))
            new = []
            for part, total in enumerate(sums):
                start = b.add(first, b.mul(step, I64(part * side)))
                rest = b.sub(last, I64(part * side))
                rest = b.select(b.icmp_signed("<", rest, I64(0)), b.neg(I64(part * side)), rest)
                columns = _squared(b, storage, source, start, step, rest, side)
                for r, column in enumerate(columns):
                    place = _at(b, base, b.add(number, b.mul(left.k, I64(r))))
                    value = b.load(place, typ=F32, align=4)
                    undefined = ir.Constant(kind, ir.Undefined)
                    single = b.insert_element(undefined, value, I32(0))
                    zeros = ir.Constant(ir.VectorType(I32, side), [0] * side)
                    factor = b.shuffle_vector(single, undefined, zeros)
                    total = b.call(fma, [factor, column, total])
                new.append(total)
            return [b.add(number, b.mul(left.k, I64(side))), *new]

        zero = ir.Constant(kind, [0.0] * side)
        turns = b.sdiv(count, I64(side))
        _, *sums = _loop(b, turns, [I64(0), *[zero] * len(places)], body)
        with b.if_else(b.icmp_signed("==", how, I64(ADD))) as (then, otherwise):
            with then:
                for place, value in zip(places, sums, strict=True):
                    b.store(b.fadd(b.load(place, typ=kind, align=4), value), place, align=4)
            with otherwise:
                for place, value in zip(places, sums, strict=True):
                    b.store(value, place, align=4)

    integers = dict.fromkeys(("b", "at", "step", "valid", "c", "k", "how"), int)
    return emitted(f"et_gemm_turned_{storage.name}_{side}", {"a": Rows, **integers}, emit)
