"""Transforms a block's weights to points, from a dense weight or one in compressed rows.

Each function returns an inline function (to, room, w, first, made, begin, channels, k, c):
to[p][i][o] becomes point p of the weights between input channel begin + i, i < channels, and output
channel first + o, o < made. In the input gradient, weights are flipped, and input and output
channels are swapped.
"""

from ..conv.csr import lower_bounds
from ..conv.records import PoolRows
from ..language.inlining import inline
from ..language.prim import FP32, Storage, div, ld_i32, to_float
from ..language.vector import WIDTH, prefetch, stores, vsplat
from .lines import turns
from .transforms import of_weights

_TAPS = 9
_AHEAD = 4  # rows to prefetch ahead
_vst, _stf = stores(FP32), FP32.st


def of_dense(W: Storage):
    """From a dense w [k, c, 3, 3]."""
    turn = turns(W)

    @inline
    def points(to, room, w, first, made, begin, channels, k, c):
        size, taps = k * c * _TAPS, room.padded
        for o in range(0, made, WIDTH):
            for i in range(0, channels, WIDTH):
                lines, count = min(WIDTH, k - first - o), min(WIDTH, channels - i)
                offset = ((first + o) * c + begin + i) * _TAPS
                turn(taps, room.square, room.nothing, w, size, offset, 9 * c, lines, 9 * count)
                for j in range(count):
                    place = to.address + 4 * ((i + j) * to.lanes + o)
                    of_weights(taps + 576 * j, 192, 64, place, 6 * to.plane, to.plane)

    return points


def of_dense_flipped(W: Storage):
    """From a dense w [k, c, 3, 3], for the input gradient."""
    turn, nbytes = turns(W), W.nbytes

    @inline
    def points(to, room, w, first, made, begin, channels, k, c):
        size, taps = k * c * _TAPS, room.padded
        for o in range(0, made, WIDTH):
            lines = min(WIDTH, c - first - o)
            for i in range(channels):
                offset = ((begin + i) * c + first + o) * _TAPS
                ahead = w + nbytes * (offset + _AHEAD * _TAPS * c)
                for line in range(0, nbytes * _TAPS * WIDTH, 64):  # hardware stops at a page's end
                    prefetch(ahead + line)
                turn(taps, room.square, room.nothing, w, size, offset, 9, lines, 9)
                place = to.address + 4 * (i * to.lanes + o)
                of_weights(taps + 512, -192, -64, place, 6 * to.plane, to.plane)

    return points


@inline
def _clear(taps, count, nothing):
    """Set `count` vectors to 0."""
    zero = vsplat(to_float(nothing))
    for j in range(count):
        _vst(taps, WIDTH * j, zero, WIDTH)


def of_rows(W: Storage, INDEX: Storage):
    """From a layer in compressed rows: a chunk of input channels is expanded at a time, whole even
    if a piece of the channels begins or ends inside it."""
    ldw, ldc = W.ld, INDEX.ld

    @inline
    def points(to, room, w: PoolRows, first, made, begin, channels, k, c):
        taps, end = room.padded, begin + channels
        for o in range(0, made, WIDTH):
            lines = min(WIDTH, k - first - o)
            for q in range(div(begin, w.chunk), div(end - 1, w.chunk) + 1):
                channel, group = q * w.chunk, (first + o) * w.chunks + q
                count = min(w.chunk, c - channel)
                _clear(taps, _TAPS * count, room.nothing)
                for line in range(lines):
                    for e in range(ld_i32(w.pointers, group), ld_i32(w.pointers, group + 1)):
                        _stf(taps, WIDTH * ldc(w.columns, e) + line, ldw(w.w, e))
                    group += w.chunks
                for j in range(max(begin - channel, 0), min(count, end - channel)):
                    place = to.address + 4 * ((channel - begin + j) * to.lanes + o)
                    of_weights(taps + 576 * j, 192, 64, place, 6 * to.plane, to.plane)

    return points


def of_rows_flipped(W: Storage, INDEX: Storage):
    """From a layer in compressed rows, for the input gradient: expands the block's channels row by
    row."""
    ldw, ldc, lower_bound = W.ld, INDEX.ld, lower_bounds(INDEX)

    @inline
    def expand(taps, w: PoolRows, row, first, end):
        """taps[(i - first) // 16][tap][(i - first) % 16] of a row's channels i < end."""
        for q in range(div(first, w.chunk), div(end - 1, w.chunk) + 1):
            group, shift = row * w.chunks + q, q * w.chunk - first
            stop, last = ld_i32(w.pointers, group + 1), _TAPS * (end - q * w.chunk)
            e = lower_bound(w.columns, ld_i32(w.pointers, group), stop, -_TAPS * shift)
            while e < stop:
                column = ldc(w.columns, e)
                if column >= last:
                    break
                i = div(column, _TAPS)
                lane, tap = i + shift, column - _TAPS * i
                block = (lane >> 4) * (_TAPS * WIDTH)
                _stf(taps, block + WIDTH * tap + (lane & 15), ldw(w.w, e))
                e += 1

    @inline
    def points(to, room, w: PoolRows, first, made, begin, channels, k, c):
        taps, end = room.padded, min(first + made, c)
        for i in range(channels):
            _clear(taps, div(_TAPS * made, WIDTH), room.nothing)
            expand(taps, w, begin + i, first, end)
            for o in range(0, made, WIDTH):
                place = to.address + 4 * (i * to.lanes + o)
                source = taps + 4 * _TAPS * o + 512
                of_weights(source, -192, -64, place, 6 * to.plane, to.plane)

    return points
