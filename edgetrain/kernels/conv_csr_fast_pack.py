"""Packing for sparse convolutions, whose few products do not pay for every shifted copy anew."""

import functools

from .conv_fast_pack import panel_fill
from .conv_fast_tile import region_floats
from .jit import inline
from .prim import FP32, Storage, div, mod, to_float
from .vector import WIDTH, loads, outline, stores

_vld, _vst, _st = loads(FP32), stores(FP32), FP32.st


@inline
def _shifted(target, none, middle, shift, lines, wd):
    """target[line][j] = middle[line][j + shift], 0 where that is outside the line."""
    for j in range(0, lines * wd, WIDTH):
        _vst(target, j, _vld(middle, j + shift), WIDTH)
    first, last = max(-shift, 0), wd - max(shift, 0)
    for line in range(lines):
        for j in range(first):
            _st(target, line * wd + j, none)
        for j in range(last, wd):
            _st(target, line * wd + j, none)


@functools.cache
def shifting_fill(S: Storage):
    """`conv_fast_pack.panel_fill`, same arguments and panel.

    Where a tile has whole lines and a tap column no shift, only that one is read, converted and
    normalised; the others are copies of it.
    """
    fill = panel_fill(S)

    def run(
        panel, nothing, x, size, first_image, first_channel, channels, c, h, wd,
        images, row0, rows, col0, tw, sy, ylow, ydist, banks, sx, xlow, xdist, taps_w,
        stat, gamma, beta, act, lo, hi, ahead, span,
    ):  # fmt: skip
        """Panel of x [., c, h, wd] (`size` elements) for a tile at (row0, col0)."""
        high = xlow + (taps_w - 1) * xdist
        if (
            taps_w == 1 or sx != 1 or tw != wd or xdist > WIDTH or xlow > 0 or high < 0
            or -xlow >= wd or high >= wd or mod(-xlow, xdist) != 0
        ):  # fmt: skip
            fill(
                panel, nothing, x, size, first_image, first_channel, channels, c, h, wd,
                images, row0, rows, col0, tw, sy, ylow, ydist, banks, sx, xlow, xdist, taps_w,
                stat, gamma, beta, act, lo, hi, ahead, span,
            )  # fmt: skip
            return
        region, centre = 4 * region_floats(banks * rows, images * wd), div(-xlow, xdist)
        for i in range(channels):
            target = panel + i * taps_w * region
            middle = target + centre * region
            fill(
                middle, nothing, x, size, first_image, first_channel + i, 1, c, h, wd,
                images, row0, rows, 0, wd, sy, ylow, ydist, banks, 1, 0, 1, 1,
                stat, gamma, beta, act, lo, hi, ahead, span,
            )  # fmt: skip
            for p in range(taps_w):
                if p != centre:
                    _shifted(
                        target + p * region, to_float(nothing), middle, xlow + p * xdist,
                        banks * rows * images, wd,
                    )  # fmt: skip

    return outline(f"et_shifting_{S.name}", run, ("lo", "hi"))
