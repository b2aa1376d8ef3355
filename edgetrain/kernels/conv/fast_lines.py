"""Packing of panels (conv/fast_tile.py) whose tiles hold whole lines of the input.

The tap column without shift is read, converted and normalised; the others are copies of it, each
moved along the lines and zero where it leaves them.
"""

import functools

from llvmlite import ir
from numba import types

from ..jit import inline
from ..words.act import NONE, ONE, RELU, ZERO, norm_scale, norm_shift
from ..words.prim import FP32, I32, Storage, div, mod
from ..words.vector import (
    V16,
    WIDTH,
    constant,
    define,
    loads,
    loads_first,
    outline,
    prefetch,
    shuffle,
    splat,
    stores,
    vfma,
    vkeep,
    vsplat,
)
from ..words.vector_act import vact_value
from .fast_tile import region_floats

_vld, _vst = loads(FP32), stores(FP32)


def _keep_inside(builder, args):
    """(value, start, width, shift): lanes whose place + shift lies in their line, else 0.

    The place of lane i is start + i modulo width, for start < width.
    """
    value, *numbers = args
    start, width, shift = (splat(builder, builder.trunc(n, I32)) for n in numbers)
    kind = ir.VectorType(I32, WIDTH)
    place = builder.add(start, ir.Constant(kind, list(range(WIDTH))))
    for step in reversed(range(5)):
        less = builder.sub(place, builder.shl(width, ir.Constant(kind, [step] * WIDTH)))
        fits = builder.icmp_signed(">=", less, ir.Constant(kind, [0] * WIDTH))
        place = builder.select(fits, less, place)
    inside = builder.icmp_unsigned("<", builder.add(place, shift), width)
    return builder.select(inside, value, constant(0.0))


_inside = define(V16(V16, types.int64, types.int64, types.int64), _keep_inside)


@inline
def _moved(target, middle, shift, count, width):
    """target[j] = middle[j + shift], 0 where that is in another line; count floats in all."""
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
            _vst(target, j, _inside(_vld(middle, j + shift), 0, width, shift), WIDTH)
    else:
        start, step = 0, mod(WIDTH, width)
        for j in range(0, count, WIDTH):
            _vst(target, j, _inside(_vld(middle, j + shift), start, width, shift), WIDTH)
            start += step
            start -= width if start >= width else 0


def _lanes(*lanes):
    """(a, b) -> lanes of a (0..) and b (16..), those below 0 zero."""

    def emit(builder, args):
        value = shuffle(builder, *args, [max(lane, 0) for lane in lanes])
        if min(lanes) >= 0:
            return value
        kept = ir.Constant(ir.VectorType(ir.IntType(1), WIDTH), [lane >= 0 for lane in lanes])
        return builder.select(kept, value, constant(0.0))

    return define(V16(V16, V16), emit)


_later = _lanes(*range(15, 31))  # lane i of b moved to i + 1, the last of a before them
_sooner = _lanes(*range(1, 17))  # lane i + 1 of a moved to i, the first of b after them
_later8 = _lanes(*[i - 1 if i % 8 else -1 for i in range(WIDTH)])  # two lines of 8
_sooner8 = _lanes(*[i + 1 if i % 8 != 7 else -1 for i in range(WIDTH)])


@inline
def _sides(left, right, middle, count, width):
    """`_moved` by -1 to the left and by 1 to the right; width 8 or a multiple of 16."""
    zero = vsplat(ZERO)
    if width == 8:
        for j in range(0, count, WIDTH):
            v = _vld(middle, j)
            _vst(left, j, _later8(v, v), WIDTH)
            _vst(right, j, _sooner8(v, v), WIDTH)
    else:
        for line in range(0, count, width):
            before, v, last = zero, _vld(middle, line), line + width - WIDTH
            for j in range(line, last, WIDTH):
                after = _vld(middle, j + WIDTH)
                _vst(left, j, _later(before, v), WIDTH)
                _vst(right, j, _sooner(v, after), WIDTH)
                before, v = v, after
            _vst(left, last, _later(before, v), WIDTH)
            _vst(right, last, _sooner(v, zero), WIDTH)


@inline
def _nothing(target, count):
    """`count` zeros and up to 15 more."""
    zero = vsplat(ZERO)
    for j in range(0, count, WIDTH):
        _vst(target, j, zero, WIDTH)


@functools.cache
def _span(S: Storage):
    """Inline function that reads a run of elements."""
    vld, vfirst = loads(S), loads_first(S)

    @inline
    def span(target, x, at, count, size, scale, shift, norm, act, lo, hi):
        """target[j] = act(x[at + j] * scale + shift), j < count; up to 15 more are written."""
        a, b, j = vsplat(scale), vsplat(shift), 0
        if norm != 0 and act == RELU:
            while j + WIDTH <= count:
                v = vfma(vld(x, at + j), a, b)
                _vst(target, j, vact_value(RELU, v, lo, hi), WIDTH)
                j += WIDTH
        elif norm == 0 and act == NONE:
            while j + WIDTH <= count:
                _vst(target, j, vld(x, at + j), WIDTH)
                j += WIDTH
        while j < count:
            v = vld(x, at + j) if at + j + WIDTH <= size else vfirst(x, at + j, count - j)
            if norm != 0:
                v = vfma(v, a, b)
            _vst(target, j, vact_value(act, v, lo, hi), WIDTH)
            j += WIDTH

    return span


@functools.cache
def lines_fill(S: Storage):
    """Function that packs a chunk of channels, for tiles that `holds_lines`."""
    span, vld, nbytes = _span(S), loads(S), S.nbytes

    @inline
    def middle(
        target, x, size, plane, map_size, h, wd, images, rows, low, sy,
        scale, shift, norm, act, lo, hi,
    ):  # fmt: skip
        """Lines [row][image] of the input rows low, low + sy, ..., zero outside the map."""
        line, step = images * wd, 4 * images * wd
        if sy == 1 and images == 1:
            top = min(max(-low, 0), rows)
            bottom = max(min(h - low, rows), top)
            _nothing(target, top * line)
            span(
                target + top * step, x, plane + (low + top) * wd, (bottom - top) * line, size,
                scale, shift, norm, act, lo, hi,
            )  # fmt: skip
            _nothing(target + bottom * step, (rows - bottom) * line)
            return
        short = wd <= WIDTH and plane + (images - 1) * map_size + h * wd + WIDTH <= size
        for row in range(rows):
            y = low + row * sy
            if y < 0 or y >= h:
                _nothing(target, line)
            elif short:
                at = plane + y * wd
                for image in range(images):
                    v = vld(x, at + image * map_size)
                    if norm != 0:
                        v = vfma(v, vsplat(scale), vsplat(shift))
                    if act == RELU:
                        v = vact_value(RELU, v, lo, hi)
                    elif act != NONE:
                        v = vact_value(act, v, lo, hi)
                    _vst(target, image * wd, v, WIDTH)
            else:
                for image in range(images):
                    span(
                        target + 4 * image * wd, x, plane + image * map_size + y * wd, wd, size,
                        scale, shift, norm, act, lo, hi,
                    )  # fmt: skip
            target += step

    def fill(
        panel, x, size, first_image, first_channel, channels, c, h, wd,
        images, row0, rows, sy, ylow, ydist, banks, xlow, xdist, taps_w,
        stat, gamma, beta, act, lo, hi, ahead, span,
    ):  # fmt: skip
        """Arguments as of fast_pack.panel_fill."""
        norm, scale, shift = 1 if stat != 0 else 0, ONE, ZERO
        region, count = 4 * region_floats(banks * rows, images * wd), banks * rows * images * wd
        centre = div(-xlow, xdist) if xlow != 0 else 0
        near = taps_w == 3 and xlow == -1 and xdist == 1 and (wd == 8 or mod(wd, WIDTH) == 0)
        for i in range(channels):
            if norm != 0:
                scale = norm_scale(stat, gamma, first_channel + i, c)
                shift = norm_shift(stat, gamma, beta, first_channel + i, c)
            plane = (first_image * c + first_channel + i) * h * wd
            for image in range(images):
                at = plane + image * c * h * wd + row0 * sy * wd + ahead
                for j in range(0, span * nbytes, 64):
                    prefetch(x + at * nbytes + j)
            target = panel + i * taps_w * region
            for bank in range(banks):
                middle(
                    target + centre * region + 4 * bank * rows * images * wd, x, size, plane,
                    c * h * wd, h, wd, images, rows, row0 * sy + ylow + bank * ydist, sy,
                    scale, shift, norm, act, lo, hi,
                )  # fmt: skip
            if near:
                _sides(target, target + 2 * region, target + region, count, wd)
                continue
            for p in range(taps_w):
                if p != centre:
                    _moved(
                        target + p * region, target + centre * region, xlow + p * xdist, count, wd
                    )

    return outline(f"et_lines_{S.name}", fill, ("lo", "hi"))


@inline
def holds_lines(tw, wd, sx, xlow, xdist, taps_w):
    """Whether a tile of `tw` columns has whole lines and one of its tap columns no shift."""
    high = xlow + (taps_w - 1) * xdist
    return (
        sx == 1 and tw == wd and xlow <= 0 and high >= 0 and -xlow <= WIDTH and high <= WIDTH
        and (xlow == 0 or mod(-xlow, xdist) == 0)
    )  # fmt: skip
