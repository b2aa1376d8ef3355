"""What gemm's tiles are made of, emitted as vector IR: register tiles, copies, transposes.

Vectors are WIDTH floats wide in the text; LLVM splits them where the processor's are shorter.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..language.calls import emitted
from ..language.number import fused
from ..language.prim import F32, I8, I32, I64, POINTER, element
from ..language.vector import VECTOR, WIDTH, constant, load_vector, shuffle, splat
from .panels import KC

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


def _turned_quads(b, storage, source, at, offsets) -> list:
    """Four vectors: elements `at` to `at + 3` of lines, one line after the other in each vector.

    Four numbers each go to their place as they are loaded, which takes half the exchanges between
    vectors that a square does.
    """
    side, rows = len(offsets), []
    for r in range(4):
        parts = [_load_vector(b, storage, source, b.add(at, o), 4) for o in offsets[r:side:4]]
        while len(parts) > 1:
            both = range(2 * parts[0].type.count)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [shuffle(b, low, high, both) for low, high in pairs]
        rows += parts
    for each in (1, 2):  # numbers that are exchanged at once, within groups of four lanes
        halves: tuple[list[int], list[int]] = [], []
        for lane in range(0, side, 4):
            for half, lanes in enumerate(halves):
                for k in range(lane + 2 * half, lane + 2 * half + 2, each):
                    lanes += [*range(k, k + each), *range(side + k, side + k + each)]
        rows = [
            shuffle(b, one, other, lanes)
            for one, other in ((rows[0], rows[1]), (rows[2], rows[3]))
            for lanes in halves
        ]
        if each == 1:
            rows = [rows[0], rows[2], rows[1], rows[3]]
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
def turned_row(storage, side: int, across: int = WIDTH):
    """(a, b, at, step, valid, c, k, how): c[across] (+)= a[k] * b[k][across]; b's columns lie
    along k.

    a: float32 numbers `a.k` bytes apart; column j of b starts at element `at + j * step`, of those
    from `valid` on nothing is read; k is a multiple of `side`. A chain has KC terms, the chains are
    summed in order, and the sum is stored or added (how SET or ADD). Columns are turned in
    registers, no panel is written.
    """
    kind = ir.VectorType(F32, side)

    def emit(b, left, source, at, step, valid, c, count, how):
        base, row = b.inttoptr(left.at, POINTER), b.inttoptr(c, POINTER)
        last = b.sub(valid, I64(1))
        places = [_at(b, row, I64(4 * first)) for first in range(0, across, side)]
        name = f"llvm.fma.v{side}f32"
        fma = b.module.globals.get(name) or ir.Function(
            b.module, ir.FunctionType(kind, [kind] * 3), name
        )
        zero, undefined = ir.Constant(kind, [0.0] * side), ir.Constant(kind, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(I32, side), [0] * side)
        offsets = [
            b.mul(step, b.select(b.icmp_signed("<", I64(r), last), I64(r), last))
            for r in range(across)
        ]

        def body(_, state):
            number, first, *sums = state
            factors = []
            for r in range(side):
                place = _at(b, base, b.add(number, b.mul(left.k, I64(r))))
                single = b.insert_element(undefined, b.load(place, typ=F32, align=4), I32(0))
                factors.append(b.shuffle_vector(single, undefined, zeros))
            new = []
            for part, total in enumerate(sums):
                lines = offsets[part * side : (part + 1) * side]
                for r in range(0, side, 4):
                    columns = _turned_quads(b, storage, source, b.add(first, I64(r)), lines)
                    for factor, column in zip(factors[r:], columns, strict=False):
                        total = b.call(fma, [factor, column, total])
                new.append(total)
            return [b.add(number, b.mul(left.k, I64(side))), b.add(first, I64(side)), *new]

        def chain(index, state):
            number, first, *totals = state
            terms = b.sub(count, b.mul(index, I64(KC)))
            terms = b.select(b.icmp_signed("<", terms, I64(KC)), terms, I64(KC))
            start = [number, first, *[zero] * len(places)]
            number, first, *sums = _loop(b, b.sdiv(terms, I64(side)), start, body)
            begun = b.icmp_signed(">", index, I64(0))
            totals = [
                b.select(begun, b.fadd(total, value), value)
                for total, value in zip(totals, sums, strict=True)
            ]
            return [number, first, *totals]

        chains = b.sdiv(b.add(count, I64(KC - 1)), I64(KC))
        _, _, *sums = _loop(b, chains, [I64(0), at, *[zero] * len(places)], chain)
        with b.if_else(b.icmp_signed("==", how, I64(ADD))) as (then, otherwise):
            with then:
                for place, value in zip(places, sums, strict=True):
                    b.store(b.fadd(b.load(place, typ=kind, align=4), value), place, align=4)
            with otherwise:
                for place, value in zip(places, sums, strict=True):
                    b.store(value, place, align=4)

    integers = dict.fromkeys(("b", "at", "step", "valid", "c", "k", "how"), int)
    return emitted(f"et_gemm_turned_{storage.name}_{side}_{across}", {"a": Rows, **integers}, emit)
