"""Squares of numbers that are transposed in registers.

Addresses are int64; indices and steps count elements, unless a docstring says bytes.
"""

import functools

from numba import types

from .block import stack
from .inlining import inline
from .prim import FP32, I8, I64, POINTER, Storage, element
from .vector import VECTOR, WIDTH, define, load_vector, loads, outlined, shuffle, stores


def _at(builder, pointer, nbytes):
    return builder.gep(pointer, [nbytes], source_etype=I8)


def _exchanged(builder, rows, halves):
    """The columns of a square of vectors, by exchanging blocks of these sizes in turn."""
    side = len(rows)
    for half in halves:
        low = [j if not j & half else side + j - half for j in range(side)]
        high = [j + half if not j & half else side + j for j in range(side)]
        out = list(rows)
        for r in range(side):
            if not r & half:
                pair = rows[r], rows[r + half]
                out[r], out[r + half] = (shuffle(builder, *pair, lanes) for lanes in (low, high))
        rows = out
    return rows


square16 = stack(4 * WIDTH * WIDTH)  # () -> address of 16 x 16 float32 in the kernel's frame


def _transpose(builder, args):
    target, target_stride, source, source_stride = args
    source, target = (builder.inttoptr(a, POINTER) for a in (source, target))
    rows = []
    for i in range(WIDTH):
        place = _at(builder, source, builder.mul(source_stride, I64(i)))
        rows.append(builder.load(place, typ=VECTOR, align=4))
    for i, column in enumerate(_exchanged(builder, rows, (8, 4, 2, 1))):
        place = _at(builder, target, builder.mul(target_stride, I64(i)))
        builder.store(column, place, align=4)


# (target, target_stride, source, source_stride): 16 x 16 float32, strides in bytes
transpose16 = outlined("et_transpose16", 4, _transpose)


@functools.cache
def turned_lines(storage: Storage):
    """(target, step, count, x, offset, stride): float32 target[j][i] = x[offset + i * stride + j].

    For i < 16 and j < count. Rows of target are `step` bytes apart; reads 16 rows of 16 elements.
    """

    def emit(builder, args):
        target, step, count, x, offset, stride = args
        first, rows = element(builder, x, offset, storage.nbytes), []
        for i in range(WIDTH):
            place = _at(builder, first, builder.mul(stride, I64(i * storage.nbytes)))
            rows.append(load_vector(builder, storage, place))
        target = builder.inttoptr(target, POINTER)
        for j, column in enumerate(_exchanged(builder, rows, (8, 4, 2, 1))):
            with builder.if_then(builder.icmp_signed("<", I64(j), count), likely=True):
                place = _at(builder, target, builder.mul(step, I64(j)))
                builder.store(column, place, align=4)

    return outlined(f"et_turned_{storage.name}", 6, emit)


def _load_vector(builder, storage, address, index, count):
    return load_vector(builder, storage, element(builder, address, index, storage.nbytes), count)


@functools.cache
def copier(storage: Storage):
    """Inline (source, offset, panel, to): copy 16 consecutive elements to float32."""
    ld, st = loads(storage), stores(FP32)

    @inline
    def copy(source, offset, panel, to):
        st(panel, to, ld(source, offset), WIDTH)

    return copy


def _squared(b, storage, source, offset, step, last, side: int) -> list:
    """`side` vectors: the transpose of the square whose rows start at `offset + min(r, last) *
    step`; missing rows repeat row `last`."""
    rows = []
    for r in range(side):
        row = I64(r)
        row = b.select(b.icmp_signed("<", row, last), row, last)
        place = b.add(offset, b.mul(row, step))
        rows.append(_load_vector(b, storage, source, place, side))
    return _exchanged(b, rows, [1 << k for k in range(side.bit_length() - 1)])


def turned_quads(b, storage, source, first, offsets) -> list:
    """Four vectors: vector k has element `first + k` of each line.

    Each four numbers are loaded into their final group of lanes, which takes half the shuffles that
    transposing a square does.
    """
    side, rows = len(offsets), []
    for r in range(4):
        parts = [_load_vector(b, storage, source, b.add(first, o), 4) for o in offsets[r:side:4]]
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
            shuffle(b, item, other, lanes)
            for item, other in ((rows[0], rows[1]), (rows[2], rows[3]))
            for lanes in halves
        ]
        if each == 1:
            rows = [rows[0], rows[2], rows[1], rows[3]]
    return rows


@functools.cache
def transposer(storage, side: int):
    """(source, offset, step, valid, panel, to, panel_step): a square, transposed.

    Row r of the source starts at `offset + min(r, valid - 1) * step`; row r of the panel at
    `to + r * panel_step`.
    """

    def emit(b, args):
        source, offset, step, valid, panel, to, panel_step = args
        rows = _squared(b, storage, source, offset, step, b.sub(valid, I64(1)), side)
        for r, value in enumerate(rows):
            place = b.add(to, b.mul(I64(r), panel_step))
            b.store(value, element(b, panel, place, 4), align=4)

    return define(types.void(*[types.int64] * 7), emit)
