"""Weight gradient of sparse convolutions: a dot product over pixels for each nonzero weight.

The gradient of weight (o, column) is the sum over a tile's pixels of dy's channel o (the line)
times the panel's row for that column. Only columns of nonzeros are computed. The inner loops are
written as LLVM's vector instructions.
"""

import functools

from ..language.calls import emitted
from ..language.inlining import inline
from ..language.number import fused
from ..language.prim import F32, FP32, I32, I64, POINTER, Storage
from ..language.vector import VECTOR, WIDTH, constant, first_lanes, shuffle
from .csr_loops import Row, for_rows, load_i32, place_at, pointers, while_loop
from .records import Pieces, Walk

_FOUR = FP32.vector(4)


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


class _Dot:
    """Writes the function of `sparse_dots`."""

    def __init__(self, builder, S: Storage, vectors: int, piece: int, valid) -> None:
        self.builder, self.S, self.vectors, self.piece = builder, S, vectors, piece
        self.mask = first_lanes(builder, valid, WIDTH)

    def load(self, pointer, v):
        """Vector v of a line of floats; of the last one the valid lanes."""
        place = place_at(self.builder, pointer, I64(64 * v), 1)
        value = self.builder.load(place, typ=VECTOR, align=4)
        last = self.piece == 0 and v == self.vectors - 1
        return self.builder.select(self.mask, value, constant(0.0)) if last else value

    def line(self, line, o):
        """Vectors of row o's line."""
        builder, piece = self.builder, self.piece
        source, places = pointers(builder, line.at, line.places)
        source = place_at(builder, source, builder.mul(o, line.stride), 1)
        if piece == 0:
            return [self.load(source, v) for v in range(self.vectors)]
        out = []
        for v in range(self.vectors):
            parts = []
            for number in range(v * WIDTH // piece, (v + 1) * WIDTH // piece):
                offset = load_i32(builder, place_at(builder, places, I64(number), 4))
                place, kind = place_at(builder, source, offset, 1), self.S.vector(piece)
                parts.append(builder.load(place, typ=kind, align=self.S.nbytes))
            value = parts[0] if piece == WIDTH else shuffle(builder, *parts, range(WIDTH))
            out.append(self.S.widen(builder, value))
        return out

    def products(self, pixels, panel, offsets):
        """A line's pixels times those of rows of the panel, by lane.

        The rows take turns: each one's sum is a chain, and processors look some instructions ahead.
        """
        places = [place_at(self.builder, panel, offset, 1) for offset in offsets]
        totals = [self.builder.fmul(pixels[0], self.load(place, 0)) for place in places]
        for v in range(1, self.vectors):
            found = [self.load(place, v) for place in places]
            pairs = zip(found, totals, strict=True)
            totals = [fused(self.builder, pixels[v], value, total) for value, total in pairs]
        return totals


@functools.cache
def sparse_dots(vectors: int, S: Storage, index: Storage, piece: int, abreast: int):
    """Function: sums[shifts[o] + e] += sum over pixels of line[o] * panel[table[column of e]].

    It does this for each nonzero e of a walk's rows o. A sum has 16 partial sums, lane by lane with
    fma, which are then added in a fixed order.

    Args:
      vectors: of 16 pixels in a line.
      piece: 0: lines are float32 vectors, of the last of which `valid` lanes count. 8 or 16: lines
        are read from the map itself, in pieces of so many elements of S.
      abreast: nonzeros computed at once, as many as registers hold: 8, or a divisor of 4.
    Returns:
      A function of (sums, shifts, line, valid, panel, table, columns, walk); `table` has a byte
      offset in the panel for each column, int32.
    """

    def emit(builder, sums, shifts, line, valid, panel, table, columns, walk):
        dot, none = _Dot(builder, S, vectors, piece, valid), constant(0.0)
        panel, table, shifts = pointers(builder, panel, table, shifts)

        def row_stop(o):
            row, pixels = Row(builder, walk, columns, index, o), dot.line(line, o)
            shift = builder.mul(load_i32(builder, place_at(builder, shifts, o, 4)), I64(4))
            target = builder.inttoptr(builder.add(sums, shift), POINTER)

            def products(e, count):
                columns = [row.column(builder.add(e, I64(i))) for i in range(count)]
                places = [place_at(builder, table, column, 4) for column in columns]
                offsets = [load_i32(builder, place) for place in places]
                found = []
                for first in range(0, count, abreast):
                    found += dot.products(pixels, panel, offsets[first : first + abreast])
                return found

            def several(e, count):
                found = products(e, count)
                for first in range(0, count, 4):
                    place = place_at(builder, target, builder.add(e, I64(first)), 4)
                    old = builder.load(place, typ=_FOUR, align=4)
                    four = _four_sums(builder, found[first : first + 4])
                    builder.store(builder.fadd(old, four), place, align=4)
                return builder.add(e, I64(count)), []

            def one(e, _):
                found = _four_sums(builder, [*products(e, 1), none, none, none])
                place = place_at(builder, target, e, 4)
                old = builder.load(place, typ=F32, align=4)
                total = builder.fadd(old, builder.extract_element(found, I32(0)))
                builder.store(total, place, align=4)
                return builder.add(e, I64(1)), []

            at = row.start
            for count in (8, 4) if abreast == 8 else (4,):
                at, _ = while_loop(
                    builder, at, [], row.more(count), lambda e, _, n=count: several(e, n)
                )
            return while_loop(builder, at, [], row.more(1), one)[0]

        for_rows(builder, walk, row_stop)

    name = f"et_sparse_dots_{vectors}_{S.name if piece else 'packed'}_{index.name}_{piece}"
    parameters = {"sums": int, "shifts": int, "line": Pieces, "valid": int, "panel": int}
    return emitted(name, parameters | {"table": int, "columns": int, "walk": Walk}, emit)


@functools.cache
def row_dots(most: int, S: Storage, index: Storage, piece: int):
    """Inline function over `sparse_dots` of 1, 2, 4 ... `most` vectors, most 4, 8 or 16."""
    abreast = 8 if most > 8 else (4 if most > 4 else 2)
    one, two, four, eight, sixteen = (
        sparse_dots(v, S, index, piece, abreast) for v in (1, 2, 4, 8, 16)
    )
    step_of_line, step_of_places = (0, 64 // piece) if piece else (64, 0)

    @inline
    def dots(sums, shifts, line, pixels, panel, table, columns, walk):
        """`pixels` of a line, in runs of 16, 8, 4, 2, 1 vectors; at most `most`."""
        left, done = (pixels + 15) >> 4, 0
        last = pixels - 16 * (left - 1)
        while left > 0:
            at, places = line.at + step_of_line * done, line.places + step_of_places * done
            part, row = Pieces(line.elements, at, line.stride, places), panel + 64 * done
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
