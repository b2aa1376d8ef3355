"""Shared by the ways of packing panels (pack.py): prologues, zeros, shifted lines."""

from typing import Any, NamedTuple

import numpy as np

from ..language.fused_activation import ONE, ZERO, norm_scale, norm_shift
from ..language.inlining import inline
from ..language.number import alike, where
from ..language.prim import FP32, mod
from ..language.vector import WIDTH, loads, numbers16, stores, unsigned, vkeep, vsplat
from .records import Affine

_vld, _vst = loads(FP32), stores(FP32)
_MINUS_ZERO = np.float32(-0.0)


class Way(NamedTuple):
    """A way to pack panels.

    Attributes:
      name: used in the name of its compiled function.
      suits: inline (tile, source, window, prologue): whether it can pack a tile's panel.
      bank: storage -> inline (Bank, source, tile, window, affine) that writes a channel's bank.
      middle: inline (tap columns) -> the tap column that `bank` writes first.
      finish: inline (target, region, middle, tile, window), called after a channel's banks.
      fetched: least pixels of a tile for which the input of the next tile is prefetched.
      one_bank: whether every window it suits has one bank.
      unchanged: whether it is compiled a second time, for maps that are read without a prologue.
    """

    name: str
    suits: Any
    bank: Any
    middle: Any = inline(lambda columns: 0)
    finish: Any = inline(lambda target, region, middle, tile, window: None)
    fetched: int = 0
    one_bank: bool = False
    unchanged: bool = False


@inline
def affine_of(prologue, channel, channels):
    """The prologue of one of the map's channels."""
    norm, scale, shift = 0, ONE, ZERO
    if prologue.stat != 0:
        norm = 1
        scale = norm_scale(prologue.stat, prologue.gamma, channel, channels)
        shift = norm_shift(prologue.stat, prologue.gamma, prologue.beta, channel, channels)
    return Affine(norm, scale, shift, prologue.act, prologue.lo, prologue.hi)


@inline
def always(how):
    """The same affine without a special case for "not normalised": v * 1 + -0 has the bits of v."""
    return Affine(0, ONE, _MINUS_ZERO, how.act, how.lo, how.hi) if how.norm == 0 else how


@inline
def zeros(target, count):
    """Write `count` zeros, and up to 15 more."""
    zero = vsplat(ZERO)
    for j in range(0, count, WIDTH):
        _vst(target, j, zero, WIDTH)


@inline
def _less(place, width):
    less = place - width
    return where(less >= 0, less, place)


@inline
def vinside(value, start, width, shift):
    """Keep the lanes of `value` whose position + shift is inside their line, zero the others.

    Lane i has position start + i modulo width, for start < width.
    """
    place = numbers16() + start
    widths = alike(place, width)
    place = _less(_less(_less(place, widths << 4), widths << 3), widths << 2)
    place = _less(_less(place, widths << 1), widths)
    return where(unsigned(place + shift) < unsigned(widths), value, ZERO)


@inline
def moved(target, middle, shift, count, width):
    """target[j] = middle[j + shift], or 0 if that is in another line; count floats in all."""
    head, tail = max(-shift, 0), WIDTH - max(shift, 0)
    if mod(width, WIDTH) == 0:
        for line in range(0, count, width):
            low = head
            for j in range(line, line + width - WIDTH, WIDTH):
                _vst(target, j, vkeep(_vld(middle, j + shift), low, WIDTH), WIDTH)
                low = 0
            j = line + width - WIDTH
            _vst(target, j, vkeep(_vld(middle, j + shift), low, tail), WIDTH)
    elif mod(WIDTH, width) == 0:
        for j in range(0, count, WIDTH):
            _vst(target, j, vinside(_vld(middle, j + shift), 0, width, shift), WIDTH)
    else:
        start, step = 0, mod(WIDTH, width)
        for j in range(0, count, WIDTH):
            _vst(target, j, vinside(_vld(middle, j + shift), start, width, shift), WIDTH)
            start += step
            start -= width if start >= width else 0
