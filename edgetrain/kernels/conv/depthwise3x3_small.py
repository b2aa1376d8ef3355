"""Depthwise 3 x 3 convolutions and gradients (depthwise3x3.py) on maps of at most 16 pixels.

A vector holds as many channels as fit, with a weight for each lane.
"""

import functools
from typing import Any, NamedTuple

from ..language.fused_activation import ZERO, act_value, norm_scale, norm_shift
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, div, mod, st_i32
from ..language.vector import WIDTH, loads, loads_first, stores, vsplat
from .depthwise3x3_parts import Ends, Place, Room, Taps, storing, taken, vand
from .records import Conv, Prologue

_RING = 4  # images that are copied before they are read
_vld, _vst, _ld = loads(FP32), stores(FP32), FP32.ld


class _Lanes(NamedTuple):
    """Vectors of small maps: the bias, the prologue's scale and shift; `filled`: lanes in use."""

    bias: Any
    scale: Any
    shift: Any
    filled: int


@inline
def is_small(p: Conv):
    """Whether a map fits in a vector and its lines are shorter than one."""
    return p.h * p.wd <= WIDTH and p.wd < WIDTH


@inline
def _multiplied(total, address, row, step, taps: Taps, ends: Ends):
    """total + the products of the nine taps around `address`, in lanes that may also be at the
    top or bottom of a map; `row`, `step`: bytes from one tap row (column) to the next."""
    a, b = vand(ends.top, ends.first), vand(ends.top, ends.last)
    c, d = vand(ends.bottom, ends.first), vand(ends.bottom, ends.last)
    total = fma(vand(_vld(address - row - step, 0), a), taps.w0, total)
    total = fma(vand(_vld(address - row, 0), ends.top), taps.w1, total)
    total = fma(vand(_vld(address - row + step, 0), b), taps.w2, total)
    total = fma(vand(_vld(address - step, 0), ends.first), taps.w3, total)
    total = fma(_vld(address, 0), taps.w4, total)
    total = fma(vand(_vld(address + step, 0), ends.last), taps.w5, total)
    total = fma(vand(_vld(address + row - step, 0), c), taps.w6, total)
    total = fma(vand(_vld(address + row, 0), ends.bottom), taps.w7, total)
    return fma(vand(_vld(address + row + step, 0), d), taps.w8, total)


@functools.cache
def _end_lister(turn: int):
    """Inline function that finds which lanes of small maps have neighbours."""

    @inline
    def list_ends(address, p):
        """Store the bit masks of `Ends` at `address`."""
        for lane in range(WIDTH):
            place = mod(lane, p.h * p.wd)
            x, y = mod(place, p.wd), div(place, p.wd)
            left, right = x > 0, x < p.wd - 1
            above, below = y > 0, y < p.h - 1
            if turn < 0:
                left, right, above, below = right, left, below, above
            st_i32(address, lane, -1 if left else 0)
            st_i32(address, WIDTH + lane, -1 if right else 0)
            st_i32(address, 2 * WIDTH + lane, -1 if above else 0)
            st_i32(address, 3 * WIDTH + lane, -1 if below else 0)

    return list_ends


@functools.cache
def _lane_lister(W: Storage):
    """Inline function that lists the parameters of the channels in a vector of small maps."""
    ldw = W.ld

    @inline
    def list_lanes(address, place, ch, channels, p, pro):
        """Weights, bias, scale and shift of lanes, 16 floats each, in ascending order because
        vectors spill."""
        size = p.h * p.wd
        for tap in range(9):
            for j in range(channels):
                _vst(
                    address,
                    16 * tap + j * size,
                    vsplat(ldw(place.weights, 9 * (ch + j) + tap)),
                    WIDTH,
                )
        for j in range(channels):
            bias = vsplat(_ld(place.bias, ch + j)) if place.bias != 0 else vsplat(ZERO)
            _vst(address, 144 + j * size, bias, WIDTH)
        if pro.stat != 0:
            for j in range(channels):
                scale = norm_scale(pro.stat, pro.gamma, ch + j, p.c)
                _vst(address, 160 + j * size, vsplat(scale), WIDTH)
            for j in range(channels):
                shift = norm_shift(pro.stat, pro.gamma, pro.beta, ch + j, p.c)
                _vst(address, 176 + j * size, vsplat(shift), WIDTH)

    return list_lanes


@functools.cache
def _images(S: Storage, turn: int):
    """Inline function that computes the images of a vector of small maps, a few at a time."""
    vld, vfirst, store = loads(S), loads_first(S), storing(S)

    @inline
    def images(place, p, pro, ch, ring, lanes: _Lanes, taps, ends):
        row, step, n = 4 * p.wd * turn, 4 * turn, lanes.filled
        for b0 in range(0, p.n, _RING):
            last = min(p.n, b0 + _RING)
            for b in range(b0, last):
                first = (b * p.c + ch) * p.h * p.wd
                is_full = n == WIDTH
                v = vld(place.source, first) if is_full else vfirst(place.source, first, n)
                if pro.stat != 0:
                    v = fma(v, lanes.scale, lanes.shift)
                v = act_value(pro.act, v, pro.lo, pro.hi)
                _vst(ring + 192 * (b - b0), WIDTH, v, WIDTH)
            for b in range(b0, last):
                address = ring + 192 * (b - b0) + 64
                total = _multiplied(lanes.bias, address, row, step, taps, ends)
                store(place, (b * p.c + ch) * p.h * p.wd, total, n)

    return images


@functools.cache
def small_maps(S: Storage, W: Storage, turn: int):
    """Inline function for maps of at most 16 pixels, with as many channels as fit in a vector."""
    list_ends, list_lanes, images = _end_lister(turn), _lane_lister(W), _images(S, turn)

    @inline
    def run(lo, hi, place: Place, p: Conv, pro: Prologue, room: Room):
        """Compute channels `lo` <= ch < `hi`."""
        address = room.address + 256
        list_ends(room.address, p)
        many = div(WIDTH, p.h * p.wd)
        first, last = _vld(room.address, 0), _vld(room.address, 16)
        ends = Ends(first, last, _vld(room.address, 32), _vld(room.address, 48))
        for ch in range(lo, hi, many):
            channels = min(many, hi - ch)
            list_lanes(address, place, ch, channels, p, pro)
            lanes = _Lanes(
                _vld(address, 144), _vld(address, 160), _vld(address, 176), channels * p.h * p.wd
            )
            images(place, p, pro, ch, address + 768, lanes, taken(address), ends)

    return run
