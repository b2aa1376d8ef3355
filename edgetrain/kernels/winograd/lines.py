"""Converts between maps and vectors that hold 16 channels of a pixel.

A map's channels are planes; buffers hold a vector of channels for each pixel, so that the loops
handle maps of any height and width. Lanes beyond a map's channels hold arbitrary numbers.
"""

import functools

from ..conv.records import Map, Prologue
from ..language.calls import outline
from ..language.fused_activation import act_value
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, to_float
from ..language.square import transpose16, turned_lines
from ..language.vector import WIDTH, loads, loads_first, stores, vsplat

_vld, _vst, _first, _ld = loads(FP32), stores(FP32), loads_first(FP32), FP32.ld


@functools.cache
def turns(S: Storage):
    """Inline (target, square, nothing, x, size, at, stride, lines, length): transpose lines of x.

    target[j][i] = x[at + i * stride + j] for j < length and i < lines <= 16. x has `size` elements.
    Up to 16 vectors after target's last are overwritten.
    """
    turned, vfirst = turned_lines(S), loads_first(S)

    def careful(target, square, nothing, x, offset, stride, lines, count):
        for i in range(WIDTH):
            if i < lines:
                _vst(square, WIDTH * i, vfirst(x, offset + i * stride, count), WIDTH)
            else:
                _vst(square, WIDTH * i, vsplat(to_float(nothing)), WIDTH)
        transpose16(target, 64, square, 64)

    last = outline(f"et_turned_last_{S.name}", careful)

    @inline
    def turn(target, square, nothing, x, size, offset, stride, lines, length):
        for j in range(0, length, WIDTH):
            count = min(WIDTH, length - j)
            if offset + j + (WIDTH - 1) * stride + WIDTH <= size:
                turned(target + 64 * j, 64, count, x, offset + j, stride)
            else:
                last(target + 64 * j, square, nothing, x, offset + j, stride, lines, count)

    return turn


@functools.cache
def pads(S: Storage):
    """Function that copies part of 16 channels of an image to a buffer, with zeros around it."""
    turn = turns(S)

    def pad(
        padded,
        turned,
        square,
        nothing,
        source: Map,
        image,
        channel,
        row,
        rows,
        column,
        columns,
        prologue: Prologue,
    ):
        """padded[r * columns + j] = prologue(pixel (row + r, column + j)) of channels from
        `channel` on."""
        h, wd, plane = source.height, source.width, source.height * source.width
        lines, first = min(WIDTH, source.channels - channel), image * source.channels + channel
        top, bottom = max(row, 0), min(row + rows, h)
        left, right = max(column, 0), min(column + columns, wd)
        width, offset = right - left, first * plane + top * wd + left
        if width == wd:
            length = max(bottom - top, 0) * wd
            turn(turned, square, nothing, source.address, source.size, offset, plane, lines, length)
        else:
            to = turned
            for _ in range(top, bottom):
                turn(to, square, nothing, source.address, source.size, offset, plane, lines, width)
                offset += wd
                to += 64 * width
        zero = vsplat(to_float(nothing))
        scale, shift = zero, zero
        if prologue.stat != 0:
            c = source.channels
            scale = _first(prologue.stat, c + channel, lines)
            if prologue.gamma != 0:
                scale = scale * _first(prologue.gamma, channel, lines)
            beta = _first(prologue.beta, channel, lines) if prologue.beta != 0 else zero
            shift = fma(-_first(prologue.stat, channel, lines), scale, beta)
        plain = prologue.stat == 0 and prologue.act == 0
        to = padded
        for y in range(row, row + rows):
            inside = y >= top and y < bottom and width > 0
            begin, end = (left - column, right - column) if inside else (columns, columns)
            for j in range(begin):
                _vst(to, WIDTH * j, zero, WIDTH)
            pixel = turned + 64 * ((y - top) * width - begin)
            if plain:
                for j in range(begin, end):
                    _vst(to, WIDTH * j, _vld(pixel, WIDTH * j), WIDTH)
            else:
                for j in range(begin, end):
                    v = _vld(pixel, WIDTH * j)
                    if prologue.stat != 0:
                        v = fma(v, scale, shift)
                    v = act_value(prologue.act, v, prologue.lo, prologue.hi)
                    _vst(to, WIDTH * j, v, WIDTH)
            for j in range(end, columns):
                _vst(to, WIDTH * j, zero, WIDTH)
            to += 64 * columns

    return outline(f"et_padded_{S.name}", pad)


@functools.cache
def unturns(S: Storage):
    """Function that stores pixels of 16 channels in the channels' planes."""
    vst, vfirst = stores(S), loads_first(S)

    def run(target: Map, offset, source, square, lines, length, bias, acc):
        plane = target.height * target.width
        for j in range(0, length, WIDTH):
            left, to = length - j, offset + j
            transpose16(square, 64, source + 64 * j, 64)
            for i in range(lines):
                v = _vld(square, WIDTH * i)
                if bias != 0:
                    v = v + vsplat(_ld(bias, i))
                if acc != 0:
                    v = v + vfirst(target.address, to, left)
                vst(target.address, to, v, left)
                to += plane

    store_run = outline(f"et_unturned_run_{S.name}", run)

    def unturn(target: Map, image, channel, row, rows, column, columns, source, square, bias, acc):
        """Pixels (row + r, column + j) of channels from `channel` on (+)= v + bias[channel], where
        v is source[r * columns + j]."""
        lines, first = min(WIDTH, target.channels - channel), image * target.channels + channel
        offset = (first * target.height + row) * target.width + column
        shift = bias + 4 * channel if bias != 0 else bias
        if columns == target.width:
            store_run(target, offset, source, square, lines, rows * columns, shift, acc)
        else:
            for _ in range(rows):
                store_run(target, offset, source, square, lines, columns, shift, acc)
                offset += target.width
                source += 64 * columns

    return outline(f"et_unturned_{S.name}", unturn)
