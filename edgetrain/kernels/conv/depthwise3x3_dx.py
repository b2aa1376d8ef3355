"""Input gradients of depthwise convolutions with 3 x 3 taps, stride 2 and padding 1.

Each gradient is copied to the 2 x 2 input pixels it corresponds to. Pixel (y, x) takes the
gradients one row and column after it, then, if y or x is odd, those before it: the plain kernel's
order.
"""

import functools
from typing import Any, NamedTuple

from ..language.calls import outline
from ..language.fused_activation import ZERO
from ..language.inlining import inline
from ..language.number import fma, where
from ..language.prim import FP32, Storage, div, mod, st_i32
from ..language.vector import (
    WIDTH,
    floats,
    ints,
    loads,
    loads_first,
    numbers16,
    stores,
    vinterleave,
    vkeep,
    vsplat,
)
from .depthwise3x3_parts import Place, Room, every, storing, vand
from .pack_parts import vinside
from .records import Conv

_MOST = 256  # most pixels of a band of rows; two rows if they are longer
_vld, _vst = loads(FP32), stores(FP32)
_LISTED = 13  # vectors at the start of scratch: lanes of lines in odd rows, three `_Weights`


@inline
def vpick(bits, a, b):
    """Lanes of a if their bits are set, else of b."""
    return where(ints(bits) < 0, a, b)


@inline
def _odd_columns():
    """All bits of the odd lanes."""
    return floats(-(numbers16() & 1))


class _Weights(NamedTuple):
    """Taps for each lane: of the next row and next column, the next row and previous column, the
    previous row and next column, the previous row and column."""

    a: Any
    b: Any
    c: Any
    d: Any


@inline
def is_halved(p: Conv):
    """Whether these kernels handle the input gradient."""
    taps = p.kh == 3 and p.kw == 3 and p.ph == 1 and p.pw == 1 and p.dh * p.dw == 1
    twice = p.h == 2 * p.oh and p.wd == 2 * p.ow and p.sh == 2 and p.sw == 2
    fits = mod(p.wd, WIDTH) == 0 or p.wd == 8 or (p.wd == 4 and mod(p.h, 4) == 0)
    return taps and twice and fits


@inline
def _rows(p: Conv):
    """Rows of a band, an even number."""
    return min(p.h, max(2, div(_MOST, 2 * p.wd) * 2))


@inline
def needs(p: Conv):
    """Floats of scratch."""
    return (_rows(p) + 4) * p.wd + (4 + _LISTED) * WIDTH


@inline
def _taken(total, address, row, odd_row, right, weights: _Weights):
    """total + the weighted gradients of the pixels at `address`, in lines of `row` bytes."""
    odd, after, before = _odd_columns(), address + row, address - row
    total = fma(vand(_vld(after + 4, 0), right), weights.a, total)
    total = vpick(odd, fma(_vld(after - 4, 0), weights.b, total), total)
    more = fma(vand(_vld(before + 4, 0), right), weights.c, total)
    more = vpick(odd, fma(_vld(before - 4, 0), weights.d, more), more)
    return vpick(odd_row, more, total)


@functools.cache
def _spread(W: Storage):
    """Inline (place, channel, scratch): store the `_Weights` of even rows, of odd rows, and of
    vectors with lines of both, where `_listed` reads them."""
    ldw = W.ld

    @inline
    def weights(w, i, odd_row):
        odd = _odd_columns()
        w0, w1, w2 = vsplat(ldw(w, i)), vsplat(ldw(w, i + 1)), vsplat(ldw(w, i + 2))
        w3, w4, w5 = vsplat(ldw(w, i + 3)), vsplat(ldw(w, i + 4)), vsplat(ldw(w, i + 5))
        w6, w7, w8 = vsplat(ldw(w, i + 6)), vsplat(ldw(w, i + 7)), vsplat(ldw(w, i + 8))
        a = vpick(odd_row, vpick(odd, w0, w1), vpick(odd, w3, w4))
        return _Weights(a, vpick(odd_row, w2, w5), vpick(odd, w6, w7), w8)

    @inline
    def spread(place, ch, address):
        for number, odd_row in enumerate((vsplat(ZERO), every(), _vld(address, 0))):
            lanes = weights(place.weights, 9 * ch, odd_row)
            for q, value in enumerate(lanes):
                _vst(address, WIDTH * (1 + 4 * number + q), value, WIDTH)

    return spread


@inline
def _listed(address, number):
    first = WIDTH * (1 + 4 * number)
    a, b = _vld(address, first), _vld(address, first + WIDTH)
    return _Weights(a, b, _vld(address, first + 2 * WIDTH), _vld(address, first + 3 * WIDTH))


@functools.cache
def _band(S: Storage):
    """Function that computes the pixels of a band of rows from copies of their gradients.

    It is not inlined: in the kernel's loops the compiler would not keep all weights in registers.
    """
    store = storing(S)

    def band(place: Place, room: Room, index, address, count, wd):
        """`count` pixels from element `index` on; the first is in an even row. Scratch begins with
        the lanes of lines in odd rows."""
        row, all_, odd_lines = 4 * wd, every(), _vld(room.address, 0)
        if wd < WIDTH:
            lanes, right = _listed(room.address, 2), vinside(all_, 0, wd, 1)
            for j in range(0, count, WIDTH):
                total = _taken(vsplat(ZERO), address + 4 * j, row, odd_lines, right, lanes)
                store(place, index + j, total, WIDTH)
            return
        even = vsplat(ZERO)
        lanes0, lanes1 = _listed(room.address, 0), _listed(room.address, 1)
        for first in range(0, count, 2 * wd):
            for j in range(first, first + wd, WIDTH):
                right = vkeep(all_, 0, WIDTH - 1 if j + WIDTH == first + wd else WIDTH)
                here = address + 4 * j
                total = _taken(vsplat(ZERO), here, row, even, right, lanes0)
                store(place, index + j, total, WIDTH)
                total = _taken(vsplat(ZERO), here + row, row, all_, right, lanes1)
                store(place, index + j + wd, total, WIDTH)

    return outline(f"et_depthwise3x3_halved_{S.name}", band)


@functools.cache
def halved(S: Storage, W: Storage):
    """Inline (thread, nthreads, place, shapes, room): the gradient. Threads split channels."""
    vld, vfirst, band, spread = loads(S), loads_first(S), _band(S), _spread(W)

    @inline
    def zeros(address, first, last):
        for j in range(first, last, WIDTH):
            _vst(address, j, vsplat(ZERO), WIDTH)

    @inline
    def double(address, dy, first, p):
        """Write a row of gradients, each twice, as two rows of pixels from `address` on, and up
        to 31 floats more."""
        size = p.n * p.c * p.oh * p.ow
        for row in range(2):
            for j in range(0, p.ow, WIDTH):
                left = size - first - j
                v = vld(dy, first + j) if left >= WIDTH else vfirst(dy, first + j, left)
                _vst(address, row * p.wd + 2 * j, vinterleave(v, v, 0), WIDTH)
                if p.ow - j > 8:
                    _vst(address, row * p.wd + 2 * j + WIDTH, vinterleave(v, v, 1), WIDTH)

    @inline
    def run(thread, nthreads, place: Place, p: Conv, room: Room):
        rows, wd = _rows(p), p.wd
        for lane in range(WIDTH):
            st_i32(room.address, lane, -mod(div(lane, wd), 2))
        bands = room.address + 64 * _LISTED
        for ch in range(div(p.c * thread, nthreads), div(p.c * (thread + 1), nthreads)):
            spread(place, ch, room.address)
            for b in range(p.n):
                for r0 in range(0, p.h, rows):
                    r1, plane = min(p.h, r0 + rows), b * p.c + ch
                    address = bands + 4 * WIDTH  # row r0 - 2
                    if r0 == 0:
                        zeros(address, -WIDTH, 2 * wd)
                    for q in range(max(div(r0, 2) - 1, 0), min(div(r1, 2) + 1, p.oh)):
                        place_of = address + 4 * (2 * q - r0 + 2) * wd
                        double(place_of, place.source, (plane * p.oh + q) * p.ow, p)
                    if r1 == p.h:
                        zeros(address, (r1 - r0 + 2) * wd, (r1 - r0 + 3) * wd + WIDTH)
                    index = (plane * p.h + r0) * wd
                    band(place, room, index, address + 8 * wd, (r1 - r0) * wd, wd)

    return run
