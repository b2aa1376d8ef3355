"""Packs any panel: each tap column is loaded from the map separately, line by line."""

import functools

from ..language.calls import outline
from ..language.fused_activation import act_value
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, to_float
from ..language.vector import WIDTH, loads, stores, vkeep, vsplat
from .fast_tile import valid_range
from .pack_parts import Way
from .records import Affine, Lines

_vst, _st = stores(FP32), FP32.st


@functools.cache
def _line(S: Storage):
    """(line, short): inline functions that fill one row of a panel, `short` at most a vector."""
    vld, vld2, ld = loads(S), loads(S, 2), S.ld

    @inline
    def prologue(v, how):
        if how.norm != 0:
            v = fma(v, how.scale, how.shift)
        return act_value(how.act, v, how.lo, how.hi)

    @inline
    def short(target, lines, offset, how):
        v = vld(lines.x, offset) if lines.stride == 1 else vld2(lines.x, offset)
        _vst(target, 0, vkeep(prologue(v, how), lines.columns.first, lines.columns.last), WIDTH)

    @inline
    def line(target, zero, lines, offset, inside, how):
        """Write a line of the panel from element `offset` on, or zeros if its row is outside."""
        x, stride, count = lines.x, lines.stride, lines.columns.total
        first, last = (lines.columns.first, lines.columns.last) if inside else (count, count)
        j = 0
        while j < first:
            _vst(target, j, zero, WIDTH)
            j += WIDTH
        j = first
        while lines.fast != 0 and j < last:
            v = vld(x, offset + j * stride) if stride == 1 else vld2(x, offset + j * stride)
            _vst(target, j, prologue(v, how), WIDTH)
            j += WIDTH
        while j < last:
            z = ld(x, offset + j * stride)
            if how.norm != 0:
                z = fma(z, how.scale, how.shift)
            _st(target, j, act_value(how.act, z, how.lo, how.hi))
            j += 1
        j = last
        while j < count:
            _vst(target, j, zero, WIDTH)
            j += WIDTH

    return line, short


@functools.cache
def _rows(S: Storage):
    """Function that fills the rows of one bank."""
    line, short = _line(S)

    def rows(target, nothing, lines: Lines, how: Affine):
        zero, step = vsplat(to_float(nothing)), 4 * lines.columns.total
        columns, top, bottom = lines.columns, lines.rows.first, lines.rows.last
        is_short = lines.fast != 0 and columns.total <= WIDTH and columns.first < columns.last
        if is_short and lines.offset + top * lines.row_step >= 0:
            for row in range(lines.rows.total):
                offset = lines.offset + row * lines.row_step
                for _ in range(lines.images):
                    if top <= row and row < bottom:
                        short(target, lines, offset, how)
                    else:
                        _vst(target, 0, zero, WIDTH)
                    offset += lines.image_step
                    target += step
            return
        for row in range(lines.rows.total):
            inside, offset = top <= row and row < bottom, lines.offset + row * lines.row_step
            for _ in range(lines.images):
                line(target, zero, lines, offset, inside, how)
                offset += lines.image_step
                target += step

    return outline(f"et_rows_{S.name}", rows)


def _bank(S: Storage):
    rows = _rows(S)

    @inline
    def bank(to, source, tile, window, how):
        h, wd, columns, count = (
            source.height,
            source.width,
            window.columns,
            tile.rows + window.extra,
        )
        sy, sx, area = window.row_stride, window.column_stride, source.channels * h * wd
        down, end = valid_range(to.low, sy, h, count), to.plane + (tile.images - 1) * area + h * wd
        fast = 1 if sx <= 2 and end + 2 * WIDTH <= source.size else 0
        for p in range(columns.taps):
            offset = tile.column0 * sx + columns.low + p * columns.distance
            across = valid_range(offset, sx, wd, tile.columns)
            start = to.plane + to.low * wd + offset
            lines = Lines(source.address, start, sy * wd, area, tile.images, down, across, sx, fast)
            rows(to.target + p * to.region, to.nothing, lines, how)

    return bank


shifted = Way("shifted", inline(lambda tile, source, window, prologue: True), _bank)
