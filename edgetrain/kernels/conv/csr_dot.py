"""Weight gradient of sparse convolutions: a dot product over pixels for each nonzero weight.

The gradient of weight (o, column) is the sum over a tile's pixels of dy's channel o (the line)
times the panel's row for that column. Only columns of nonzeros are computed.
"""

import functools

from ..language.block import add_wide
from ..language.calls import outline
from ..language.fused_activation import ZERO
from ..language.inlining import inline
from ..language.lanes import halved
from ..language.number import fma, lane, shuffled, to, where
from ..language.prim import FP32, Storage, ld_i32, st_i32
from ..language.vector import WIDTH, loads, numbers16, stores, vsplat
from .records import Pieces, Walk

_ld, _st, _vld = FP32.ld, FP32.st, loads(FP32)
_ld4, _st4 = loads(FP32, 1, 4), stores(FP32, 4)
_first, _int32 = lane(0), to("int32")


def _merging(step: int):
    """Inline function that adds neighbours `step` lanes apart: in the result, lanes from a and b
    alternate in blocks of `step`."""
    low: list[int] = []
    high: list[int] = []
    for number in range(0, WIDTH, 2 * step):
        for source in (number, WIDTH + number):
            low += range(source, source + step)
            high += range(source + step, source + 2 * step)
    lower, upper = shuffled(tuple(low)), shuffled(tuple(high))

    @inline
    def merged(a, b):
        return lower(a, b) + upper(a, b)

    return merged


_by1, _by2, _by8, _by4 = _merging(1), _merging(2), halved(add_wide, 8), halved(add_wide, 4)


@inline
def _four_sums(a, b, c, d):
    """Four vectors -> a vector of 4 with the sum of the lanes of each."""
    return _by4(_by8(_by2(_by1(a, b), _by1(c, d))))


def _line_loader(S: Storage, vectors: int, piece: int):
    """Inline (line, o) -> vectors of row o's line, read in pieces from a map instead of packed."""
    vld, each = loads(S, 1, piece), WIDTH // piece
    firsts, both = tuple(range(0, vectors * each, each)), shuffled(tuple(range(WIDTH)))

    @inline
    def load(line, o):
        address, places = line.address + o * line.stride, line.places
        if each == 1:
            return tuple(vld(address + ld_i32(places, i), 0) for i in firsts)
        return tuple(
            both(vld(address + ld_i32(places, i), 0), vld(address + ld_i32(places, i + 1), 0))
            for i in firsts
        )

    return load


def _products(vectors: int, piece: int):
    """Inline functions (load a line of floats, multiply it by rows of the panel)."""
    lanes = tuple(WIDTH * v for v in range(vectors))
    further, last = lanes[1:], lanes[-1]

    @inline
    def load(address, number, mask):
        """A vector of a line; invalid lanes of the last vector are zeroed."""
        value = _vld(address, number)
        return where(mask, value, ZERO) if piece == 0 and number == last else value

    @inline
    def load_line(line, o, mask):
        address = line.address + o * line.stride
        return tuple(load(address, number, mask) for number in lanes)

    @inline
    def multiply(pixels, places, mask):
        """A line's pixels times those of rows of the panel, lane by lane.

        Rows are interleaved: each row's sum is a dependency chain, and processors look only some
        instructions ahead.
        """
        totals = tuple(pixels[0] * load(place, 0, mask) for place in places)
        for v, number in enumerate(further):
            totals = tuple(
                fma(pixels[v + 1], load(place, number, mask), total)
                for place, total in zip(places, totals, strict=True)
            )
        return totals

    return load_line, multiply


@functools.cache
def sparse_dots(vectors: int, S: Storage, index: Storage, piece: int, abreast: int):
    """Function: sums[shifts[o] + e] += sum over pixels of line[o] * panel[table[column of e]].

    It does this for each nonzero e of a walk's rows o. A sum has 16 partial sums, lane by lane with
    fma, which are then added in a fixed order.

    Args:
      vectors: of 16 pixels in a line.
      piece: 0: lines are packed float32 vectors, with `valid` lanes in the last. 8 or 16: lines are
        read from the map itself, in pieces of that many elements of S.
      abreast: nonzeros computed at once, as many as registers hold: 8, 4 or 2.
    Returns:
      A function of (sums, shifts, line, valid, panel, table, columns, walk); `table` has a byte
      offset in the panel for each column, int32.
    """

    load_line, multiply = _products(vectors, piece)
    load = _line_loader(S, vectors, piece) if piece else None
    ldc, four, eight = index.ld, tuple(range(4)), tuple(range(8))

    @inline
    def products(e, ahead, pixels, panel, table, columns, mask):
        """Products by lane for nonzeros e, e + 1, ..."""
        places = tuple(panel + ld_i32(table, ldc(columns, e + i)) for i in ahead)
        if len(ahead) <= abreast:
            return multiply(pixels, places, mask)
        rest = multiply(pixels, places[abreast:], mask)
        return multiply(pixels, places[:abreast], mask) + rest

    @inline
    def add_four(target, e, a, b, c, d):
        _st4(target, e, _ld4(target, e) + _four_sums(a, b, c, d), 4)

    def add_dots(sums, shifts, line: Pieces, valid, panel, table, columns, walk: Walk):
        mask, zero, limit = numbers16() < _int32(valid), vsplat(ZERO), walk.limit
        for o in range(walk.rows):
            pixels = load(line, o) if piece else load_line(line, o, mask)
            target, e = sums + 4 * ld_i32(shifts, o), ld_i32(walk.cursors, o)
            end = ld_i32(walk.ends + o * walk.ends_stride, 0)
            while abreast == 8 and e + 7 < end and ldc(columns, e + 7) < limit:
                result = products(e, eight, pixels, panel, table, columns, mask)
                add_four(target, e, *result[:4])
                add_four(target, e + 4, *result[4:])
                e += 8
            while e + 3 < end and ldc(columns, e + 3) < limit:
                add_four(target, e, *products(e, four, pixels, panel, table, columns, mask))
                e += 4
            while e < end and ldc(columns, e) < limit:
                (value,) = products(e, (0,), pixels, panel, table, columns, mask)
                total = _first(_four_sums(value, zero, zero, zero))
                _st(target, e, _ld(target, e) + total)
                e += 1
            st_i32(walk.stops, o, e)

    name = f"et_sparse_dots_{vectors}_{S.name if piece else 'packed'}_{index.name}_{piece}"
    return outline(name, add_dots)


@functools.cache
def row_dots(most: int, S: Storage, index: Storage, piece: int):
    """Inline function over `sparse_dots` of 1, 2, 4 ... `most` vectors; `most` is 4, 8 or 16."""
    abreast = 8 if most > 8 else (4 if most > 4 else 2)
    one, two, four, eight, sixteen = (
        sparse_dots(v, S, index, piece, abreast) for v in (1, 2, 4, 8, 16)
    )
    step_of_line, step_of_places = (0, 64 // piece) if piece else (64, 0)

    @inline
    def dots(sums, shifts, line, pixels, panel, table, columns, walk):
        """Process `pixels` pixels of a line in runs of 16, 8, 4, 2, 1 vectors, `most` at most."""
        left, done = (pixels + 15) >> 4, 0
        last = pixels - 16 * (left - 1)
        while left > 0:
            address, places = (
                line.address + step_of_line * done,
                line.places + step_of_places * done,
            )
            part, row = Pieces(line.elements, address, line.stride, places), panel + 64 * done
            if most >= 16 and left >= 16:
                valid, step = last if left == 16 else 16, 16
                sixteen(sums, shifts, part, valid, row, table, columns, walk)
            elif most >= 8 and left >= 8:
                valid, step = last if left == 8 else 16, 8
                eight(sums, shifts, part, valid, row, table, columns, walk)
            elif left >= 4:
                valid, step = last if left == 4 else 16, 4
                four(sums, shifts, part, valid, row, table, columns, walk)
            elif left >= 2:
                valid, step = last if left == 2 else 16, 2
                two(sums, shifts, part, valid, row, table, columns, walk)
            else:
                step = 1
                one(sums, shifts, part, last, row, table, columns, walk)
            left -= step
            done += step

    return dots
