"""Depthwise convolutions of 3 x 3 taps whose output is as large as the input, and their gradients.

A channel of an image is one run of pixels. It is copied to float32 with the row above and the row
below; a tap is then the run moved by so many pixels, zero where that leaves the line. Where maps
are of at most 16 pixels a vector holds as many channels as it can, with a weight to each lane.
Sums are those of the plain kernel, tap by tap in its order: the bias first, each product by fma.
"""

import functools
from typing import Any, NamedTuple

from llvmlite import ir

from ..jit import inline
from ..words.act import ZERO, norm_scale, norm_shift
from ..words.prim import FP32, I32, Storage, div, mod, st_i32
from ..words.vector import (
    V16,
    WIDTH,
    define,
    loads,
    loads_first,
    stores,
    vadd,
    vfma,
    vkeep,
    vsplat,
)
from ..words.vector_act import vact_value
from .fast_lines import vinside
from .records import Conv, Prologue

_MOST = 256  # pixels of a band of rows
_RING = 4  # images of small maps that are copied before they are read
_vld, _vst, _ld = loads(FP32), stores(FP32), FP32.ld
_BITS = ir.VectorType(I32, WIDTH)


def _and(builder, args):
    a, b = (builder.bitcast(value, _BITS) for value in args)
    return builder.bitcast(builder.and_(a, b), args[0].type)


def _all(builder, args):
    ones = ir.Constant(_BITS, [0xFFFFFFFF] * WIDTH)
    return builder.bitcast(ones, ir.VectorType(ir.FloatType(), WIDTH))


vand, every = define(V16(V16, V16), _and), define(V16(), _all)


class Place(NamedTuple):
    """Where maps are read and written: addresses; `acc`: what was there is added."""

    source: int
    weights: int
    bias: int
    target: int
    acc: int


class Room(NamedTuple):
    """Scratch: its address, and that of `floats` for bands of rows."""

    at: int
    bands: int
    floats: int


class Taps(NamedTuple):
    """Weights of the taps in order, a vector each."""

    w0: Any
    w1: Any
    w2: Any
    w3: Any
    w4: Any
    w5: Any
    w6: Any
    w7: Any
    w8: Any


class _Ends(NamedTuple):
    """Lanes, as bits, whose neighbour by the first and by the last tap column is in the map, then
    the same of rows."""

    first: Any
    last: Any
    top: Any
    bottom: Any


class _Lanes(NamedTuple):
    """Vectors of small maps: the bias, the prologue's scale and shift; lanes that there are."""

    bias: Any
    scale: Any
    shift: Any
    filled: int


@inline
def is_near(p: Conv):
    """Whether the convolution is one of these."""
    same = p.kh == 3 and p.kw == 3 and p.ph == 1 and p.pw == 1 and p.oh == p.h and p.ow == p.wd
    return same and p.sh * p.sw * p.dh * p.dw == 1 and p.wd <= _MOST


@inline
def _is_small(p: Conv):
    return p.h * p.wd <= WIDTH and p.wd < WIDTH


@inline
def _multiplied(total, at, row, step, taps: Taps, ends: _Ends):
    """total + the products of nine taps around address `at`; `row`, `step`: bytes from a tap row
    (column) to the next."""
    total = vfma(vand(_vld(at - row - step, 0), ends.first), taps.w0, total)
    total = vfma(_vld(at - row, 0), taps.w1, total)
    total = vfma(vand(_vld(at - row + step, 0), ends.last), taps.w2, total)
    total = vfma(vand(_vld(at - step, 0), ends.first), taps.w3, total)
    total = vfma(_vld(at, 0), taps.w4, total)
    total = vfma(vand(_vld(at + step, 0), ends.last), taps.w5, total)
    total = vfma(vand(_vld(at + row - step, 0), ends.first), taps.w6, total)
    total = vfma(_vld(at + row, 0), taps.w7, total)
    return vfma(vand(_vld(at + row + step, 0), ends.last), taps.w8, total)


@inline
def _multiplied_small(total, at, row, step, taps: Taps, ends: _Ends):
    """As `_multiplied`, of lanes in which rows end too."""
    a, b = vand(ends.top, ends.first), vand(ends.top, ends.last)
    c, d = vand(ends.bottom, ends.first), vand(ends.bottom, ends.last)
    total = vfma(vand(_vld(at - row - step, 0), a), taps.w0, total)
    total = vfma(vand(_vld(at - row, 0), ends.top), taps.w1, total)
    total = vfma(vand(_vld(at - row + step, 0), b), taps.w2, total)
    total = vfma(vand(_vld(at - step, 0), ends.first), taps.w3, total)
    total = vfma(_vld(at, 0), taps.w4, total)
    total = vfma(vand(_vld(at + step, 0), ends.last), taps.w5, total)
    total = vfma(vand(_vld(at + row - step, 0), c), taps.w6, total)
    total = vfma(vand(_vld(at + row, 0), ends.bottom), taps.w7, total)
    return vfma(vand(_vld(at + row + step, 0), d), taps.w8, total)


@functools.cache
def storing(S: Storage):
    """Inline function (place, index, value, count): store, or add to what is there."""
    vfirst, vst = loads_first(S), stores(S)

    @inline
    def store(place, index, value, count):
        if place.acc != 0:
            value = vadd(value, vfirst(place.target, index, count))
        vst(place.target, index, value, count)

    return store


@functools.cache
def _bands(S: Storage, W: Storage, turn: int):
    """Inline function: channels of more than 16 pixels, band of rows after band."""
    vld, vfirst, ldw, store = loads(S), loads_first(S), W.ld, storing(S)

    @inline
    def zeros(at, first, last):
        for j in range(first, last, WIDTH):
            _vst(at, j, vsplat(ZERO), WIDTH)

    @inline
    def copy(at, x, first, count, scale, shift, pro):
        """Pixels from element `first` on, `count` of them, then up to 15 more."""
        for j in range(0, count, WIDTH):
            left = count - j
            v = vld(x, first + j) if left >= WIDTH else vfirst(x, first + j, left)
            if pro.stat != 0:
                v = vfma(v, scale, shift)
            _vst(at, j, vact_value(pro.act, v, pro.lo, pro.hi), WIDTH)

    @inline
    def band(place, index, at, count, wd, bias, taps):
        """`count` outputs from element `index` on, of a copy at address `at`."""
        row, step, all_ = 4 * wd * turn, 4 * turn, every()
        if mod(WIDTH, wd) == 0:
            left, right = vinside(all_, 0, wd, -turn), vinside(all_, 0, wd, turn)
            ends = _Ends(left, right, all_, all_)
            for j in range(0, count, WIDTH):
                total = _multiplied(bias, at + 4 * j, row, step, taps, ends)
                store(place, index + j, total, min(WIDTH, count - j))
            return
        start = 0
        for j in range(0, count, WIDTH):
            if mod(wd, WIDTH) == 0:
                head, tail = 1 if start == 0 else 0, WIDTH - 1 if start + WIDTH == wd else WIDTH
                left, right = vkeep(all_, head, WIDTH), vkeep(all_, 0, tail)
                if turn < 0:
                    left, right = right, left
            else:
                left, right = vinside(all_, start, wd, -turn), vinside(all_, start, wd, turn)
            ends = _Ends(left, right, all_, all_)
            total = _multiplied(bias, at + 4 * j, row, step, taps, ends)
            store(place, index + j, total, min(WIDTH, count - j))
            start = mod(start + WIDTH, wd)

    @inline
    def weights(place, ch):
        w, i = place.weights, 9 * ch
        return Taps(
            vsplat(ldw(w, i)),
            vsplat(ldw(w, i + 1)),
            vsplat(ldw(w, i + 2)),
            vsplat(ldw(w, i + 3)),
            vsplat(ldw(w, i + 4)),
            vsplat(ldw(w, i + 5)),
            vsplat(ldw(w, i + 6)),
            vsplat(ldw(w, i + 7)),
            vsplat(ldw(w, i + 8)),
        )

    @inline
    def run(lo, hi, place: Place, p: Conv, pro: Prologue, room: Room):
        """Channels from `lo` to before `hi`."""
        wd, rows = p.wd, max(1, min(p.h, div(_MOST, p.wd)))
        # a line of zeros or of the map before and after the rows; what vectors reach past them
        whole = ((rows + 2) * wd + 3 * WIDTH) // 4 * 4
        together = max(1, min(p.n, div(room.floats, whole)))
        for ch in range(lo, hi):
            bias = vsplat(_ld(place.bias, ch)) if place.bias != 0 else vsplat(ZERO)
            scale, shift, taps = vsplat(ZERO), vsplat(ZERO), weights(place, ch)
            if pro.stat != 0:
                scale = vsplat(norm_scale(pro.stat, pro.gamma, ch, p.c))
                shift = vsplat(norm_shift(pro.stat, pro.gamma, pro.beta, ch, p.c))
            for b0 in range(0, p.n, together):
                last = min(p.n, b0 + together)
                for r0 in range(0, p.h, rows):
                    r1 = min(p.h, r0 + rows)
                    top, bottom = max(r0 - 1, 0), min(r1 + 1, p.h)
                    for b in range(b0, last):
                        at = room.bands + 4 * ((b - b0) * whole + WIDTH)
                        first = ((b * p.c + ch) * p.h + top) * wd
                        if r0 == 0:
                            zeros(at, -WIDTH, wd)
                        begin, count = (wd if r0 == 0 else 0), (bottom - top) * wd
                        copy(at + 4 * begin, place.source, first, count, scale, shift, pro)
                        if r1 == p.h:
                            zeros(at, begin + count, (rows + 2) * wd + WIDTH)
                    for b in range(b0, last):
                        at = room.bands + 4 * ((b - b0) * whole + WIDTH + wd)
                        index = ((b * p.c + ch) * p.h + r0) * wd
                        band(place, index, at, (r1 - r0) * wd, wd, bias, taps)

    return run


@functools.cache
def _small(S: Storage, W: Storage, turn: int):
    """Inline function: maps of at most 16 pixels, as many channels at once as are in a vector."""
    vld, vfirst, ldw, store = loads(S), loads_first(S), W.ld, storing(S)

    @inline
    def list_ends(at, p):
        """Bits of the lanes of `_Ends` at address `at`."""
        for lane in range(WIDTH):
            place = mod(lane, p.h * p.wd)
            x, y = mod(place, p.wd), div(place, p.wd)
            left, right = x > 0, x < p.wd - 1
            above, below = y > 0, y < p.h - 1
            if turn < 0:
                left, right, above, below = right, left, below, above
            st_i32(at, lane, -1 if left else 0)
            st_i32(at, WIDTH + lane, -1 if right else 0)
            st_i32(at, 2 * WIDTH + lane, -1 if above else 0)
            st_i32(at, 3 * WIDTH + lane, -1 if below else 0)

    @inline
    def list_lanes(at, place, ch, channels, p, pro):
        """Weights, bias, scale and shift of lanes, 16 floats each, rising: a vector spills."""
        size = p.h * p.wd
        for tap in range(9):
            for j in range(channels):
                _vst(at, 16 * tap + j * size, vsplat(ldw(place.weights, 9 * (ch + j) + tap)), WIDTH)
        for j in range(channels):
            bias = vsplat(_ld(place.bias, ch + j)) if place.bias != 0 else vsplat(ZERO)
            _vst(at, 144 + j * size, bias, WIDTH)
        if pro.stat != 0:
            for j in range(channels):
                scale = norm_scale(pro.stat, pro.gamma, ch + j, p.c)
                _vst(at, 160 + j * size, vsplat(scale), WIDTH)
            for j in range(channels):
                shift = norm_shift(pro.stat, pro.gamma, pro.beta, ch + j, p.c)
                _vst(at, 176 + j * size, vsplat(shift), WIDTH)

    @inline
    def taken(at):
        return Taps(
            _vld(at, 0),
            _vld(at, 16),
            _vld(at, 32),
            _vld(at, 48),
            _vld(at, 64),
            _vld(at, 80),
            _vld(at, 96),
            _vld(at, 112),
            _vld(at, 128),
        )

    @inline
    def images(place, p, pro, ch, ring, lanes: _Lanes, taps, ends):
        row, step, n = 4 * p.wd * turn, 4 * turn, lanes.filled
        for b0 in range(0, p.n, _RING):
            last = min(p.n, b0 + _RING)
            for b in range(b0, last):
                first = (b * p.c + ch) * p.h * p.wd
                whole = n == WIDTH
                v = vld(place.source, first) if whole else vfirst(place.source, first, n)
                if pro.stat != 0:
                    v = vfma(v, lanes.scale, lanes.shift)
                v = vact_value(pro.act, v, pro.lo, pro.hi)
                _vst(ring + 192 * (b - b0), WIDTH, v, WIDTH)
            for b in range(b0, last):
                at = ring + 192 * (b - b0) + 64
                total = _multiplied_small(lanes.bias, at, row, step, taps, ends)
                store(place, (b * p.c + ch) * p.h * p.wd, total, n)

    @inline
    def run(lo, hi, place: Place, p: Conv, pro: Prologue, room: Room):
        """Channels from `lo` to before `hi`."""
        at = room.at + 256
        list_ends(room.at, p)
        many = div(WIDTH, p.h * p.wd)
        first, last = _vld(room.at, 0), _vld(room.at, 16)
        ends = _Ends(first, last, _vld(room.at, 32), _vld(room.at, 48))
        for ch in range(lo, hi, many):
            channels = min(many, hi - ch)
            list_lanes(at, place, ch, channels, p, pro)
            lanes = _Lanes(_vld(at, 144), _vld(at, 160), _vld(at, 176), channels * p.h * p.wd)
            images(place, p, pro, ch, at + 768, lanes, taken(at), ends)

    return run


@functools.cache
def near(S: Storage, W: Storage, turn: int):
    """Inline function (thread, nthreads, place, shapes, prologue, room): the convolution.

    turn: 1, or -1 for the gradient of the input. Threads split channels. Of the scratch 1856 bytes
    are used, and `room.floats`, which hold two rows more than a band has.
    """
    bands, small = _bands(S, W, turn), _small(S, W, turn)

    @inline
    def run(thread, nthreads, place: Place, p: Conv, pro: Prologue, room: Room):
        lo, hi = div(p.c * thread, nthreads), div(p.c * (thread + 1), nthreads)
        if _is_small(p):
            small(lo, hi, place, p, pro, room)
        else:
            bands(lo, hi, place, p, pro, room)

    return run
