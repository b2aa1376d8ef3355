"""Depthwise 3 x 3 convolutions whose output is as large as the input, and their gradients.

A channel of an image is one run of pixels. It is copied to float32 with the row above and the row
below; a tap is then the run shifted by some pixels, zero beyond the ends of a line. For maps of at
most 16 pixels see depthwise3x3_small.py. Sums are those of the plain kernel, tap by tap in its
order: the bias first, each product by fma.
"""

import functools

import numpy as np

from ..language.calls import outline
from ..language.fused_activation import ZERO, act_value, norm_scale, norm_shift
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, div, mod
from ..language.vector import WIDTH, loads, loads_first, stores, vkeep, vsplat
from .depthwise3x3_parts import Ends, Place, Room, Taps, every, storing, taken, vand
from .depthwise3x3_small import is_small, small_maps
from .pack_parts import vinside
from .records import Conv, Prologue

_MOST = 256  # most pixels of a band of rows
_TAPS = 9 * 64  # bytes of `Taps`
_vld, _vst, _ld = loads(FP32), stores(FP32), FP32.ld


@inline
def is_depthwise3x3(p: Conv):
    """Whether these kernels handle the convolution."""
    same = p.kh == 3 and p.kw == 3 and p.ph == 1 and p.pw == 1 and p.oh == p.h and p.ow == p.wd
    return same and p.sh * p.sw * p.dh * p.dw == 1 and p.wd <= _MOST


@inline
def _multiplied(total, address, row, step, taps: Taps, ends: Ends):
    """total + the products of the nine taps around `address`; `row`, `step`: bytes from one tap
    row (column) to the next."""
    total = fma(vand(_vld(address - row - step, 0), ends.first), taps.w0, total)
    total = fma(_vld(address - row, 0), taps.w1, total)
    total = fma(vand(_vld(address - row + step, 0), ends.last), taps.w2, total)
    total = fma(vand(_vld(address - step, 0), ends.first), taps.w3, total)
    total = fma(_vld(address, 0), taps.w4, total)
    total = fma(vand(_vld(address + step, 0), ends.last), taps.w5, total)
    total = fma(vand(_vld(address + row - step, 0), ends.first), taps.w6, total)
    total = fma(_vld(address + row, 0), taps.w7, total)
    return fma(vand(_vld(address + row + step, 0), ends.last), taps.w8, total)


@inline
def _zeros(address, first, last):
    """Zero numbers `first` <= j < `last`, in whole vectors."""
    for j in range(first, last, WIDTH):
        _vst(address, j, vsplat(ZERO), WIDTH)


@functools.cache
def _copier(S: Storage):
    """Inline function that copies pixels to float32, through the prologue."""
    vld, vfirst = loads(S), loads_first(S)

    @inline
    def copy(address, x, first, count, scale, shift, pro):
        """Copy `count` pixels from element `first` on, then up to 15 more."""
        for j in range(0, count, WIDTH):
            left = count - j
            v = vld(x, first + j) if left >= WIDTH else vfirst(x, first + j, left)
            if pro.stat != 0:
                v = fma(v, scale, shift)
            _vst(address, j, act_value(pro.act, v, pro.lo, pro.hi), WIDTH)

    return copy


@functools.cache
def _band(S: Storage, turn: int):
    """Function that computes the outputs of a band of rows from a copy of their pixels.

    It is not inlined: in the kernel's loops the compiler would not keep all weights in registers.
    """
    store = storing(S)

    def band(place: Place, room: Room, index, address, count, wd, bias: np.float32):
        """`count` outputs from element `index` on, from a copy at `address`; scratch begins with
        the `Taps`."""
        row, step, all_ = 4 * wd * turn, 4 * turn, every()
        first, taps = vsplat(bias), taken(room.address)
        if mod(WIDTH, wd) == 0:
            left, right = vinside(all_, 0, wd, -turn), vinside(all_, 0, wd, turn)
            ends = Ends(left, right, all_, all_)
            for j in range(0, count, WIDTH):
                total = _multiplied(first, address + 4 * j, row, step, taps, ends)
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
            ends = Ends(left, right, all_, all_)
            total = _multiplied(first, address + 4 * j, row, step, taps, ends)
            store(place, index + j, total, min(WIDTH, count - j))
            start = mod(start + WIDTH, wd)

    return outline(f"et_depthwise3x3_band_{S.name}_{'back' if turn < 0 else 'forward'}", band)


@functools.cache
def _spread(W: Storage):
    """Inline (place, channel, address): store the channel's `Taps`, each weight in all lanes."""
    ldw = W.ld

    @inline
    def spread(place, ch, address):
        for tap in range(9):
            _vst(address, WIDTH * tap, vsplat(ldw(place.weights, 9 * ch + tap)), WIDTH)

    return spread


@functools.cache
def _bands(S: Storage, W: Storage, turn: int):
    """Inline function for channels of more than 16 pixels, band of rows after band."""
    copy, band, spread = _copier(S), _band(S, turn), _spread(W)

    @inline
    def run(lo, hi, place: Place, p: Conv, pro: Prologue, room: Room):
        """Compute channels `lo` <= ch < `hi`."""
        wd, rows = p.wd, max(1, min(p.h, div(_MOST, p.wd)))
        # a line of zeros or of the map before and after the rows; room for vectors to spill
        padded = ((rows + 2) * wd + 3 * WIDTH) // 4 * 4
        images = max(room.bands, room.address + _TAPS)
        together = max(1, min(p.n, div(room.floats - ((images - room.bands) >> 2), padded)))
        for ch in range(lo, hi):
            bias = _ld(place.bias, ch) if place.bias != 0 else ZERO
            scale, shift = vsplat(ZERO), vsplat(ZERO)
            spread(place, ch, room.address)
            if pro.stat != 0:
                scale = vsplat(norm_scale(pro.stat, pro.gamma, ch, p.c))
                shift = vsplat(norm_shift(pro.stat, pro.gamma, pro.beta, ch, p.c))
            for b0 in range(0, p.n, together):
                last = min(p.n, b0 + together)
                for r0 in range(0, p.h, rows):
                    r1 = min(p.h, r0 + rows)
                    top, bottom = max(r0 - 1, 0), min(r1 + 1, p.h)
                    for b in range(b0, last):
                        address = images + 4 * ((b - b0) * padded + WIDTH)
                        first = ((b * p.c + ch) * p.h + top) * wd
                        if r0 == 0:
                            _zeros(address, -WIDTH, wd)
                        begin, count = (wd if r0 == 0 else 0), (bottom - top) * wd
                        copy(address + 4 * begin, place.source, first, count, scale, shift, pro)
                        if r1 == p.h:
                            _zeros(address, begin + count, (rows + 2) * wd + WIDTH)
                    for b in range(b0, last):
                        address = images + 4 * ((b - b0) * padded + WIDTH + wd)
                        index = ((b * p.c + ch) * p.h + r0) * wd
                        band(place, room, index, address, (r1 - r0) * wd, wd, bias)

    return run


@functools.cache
def depthwise3x3(S: Storage, W: Storage, turn: int):
    """Inline function (thread, nthreads, place, shapes, prologue, room): the convolution.

    turn: 1, or -1 for the gradient of the input. Threads split channels. It uses 1856 bytes of the
    scratch, and `room.floats` floats, which must hold two rows more than a band has.
    """
    bands, small = _bands(S, W, turn), small_maps(S, W, turn)

    @inline
    def run(thread, nthreads, place: Place, p: Conv, pro: Prologue, room: Room):
        lo, hi = div(p.c * thread, nthreads), div(p.c * (thread + 1), nthreads)
        if is_small(p):
            small(lo, hi, place, p, pro, room)
        else:
            bands(lo, hi, place, p, pro, room)

    return run
