"""Moving data between maps and the panels and sums of fast convolutions (conv/fast_tile.py).

Panels are written in rising order, so a vector store may spill past the end of a row.
"""

import functools

from ..jit import inline
from ..words.act import ONE, ZERO, act_value, norm_scale, norm_shift
from ..words.prim import FP32, Storage, div, fma, mod, to_float
from ..words.vector import (
    WIDTH,
    loads,
    outline,
    prefetch,
    stores,
    vadd,
    vfma,
    vinterleave,
    vkeep,
    vsplat,
)
from ..words.vector_act import vact_value
from ..words.vector_gemm import gemm_columns
from .fast_lines import holds_lines, lines_fill
from .fast_tile import ceil_div, region_floats

_vld, _vst, _ld, _st = loads(FP32), stores(FP32), FP32.ld, FP32.st


@inline
def _valid(offset, stride, size, count):
    """[first, last) of the j < count with 0 <= offset + j * stride < size."""
    if stride == 1:
        return min(max(-offset, 0), count), max(min(size - offset, count), 0)
    first = min(count, ceil_div(-offset, stride)) if offset < 0 else 0
    last = min(count, ceil_div(size - offset, stride)) if offset < size else 0
    return first, max(first, last)


@functools.cache
def _line(S: Storage):
    """Inline functions that fill one row of a panel, the second at most a vector long."""
    vld, vld2, ld = loads(S), loads(S, 2), S.ld

    @inline
    def prologue(v, scale, shift, norm, act, lo, hi):
        if norm:
            v = vfma(v, vsplat(scale), vsplat(shift))
        return vact_value(act, v, lo, hi)

    @inline
    def short(target, x, at, first, last, stride, scale, shift, norm, act, lo, hi):
        v = vld(x, at) if stride == 1 else vld2(x, at)
        v = prologue(v, scale, shift, norm, act, lo, hi)
        _vst(target, 0, vkeep(v, first, last), WIDTH)

    @inline
    def line(
        target, zero, x, source, first, last, count, stride, fast, scale, shift, norm, act, lo, hi
    ):
        """target[j] = prologue(x[source + j * stride]) for first <= j < last, else 0; j < count.

        fast: stride is 1 or 2, and x may be read 32 elements further.
        """
        j = 0
        while j < first:
            _vst(target, j, zero, WIDTH)
            j += WIDTH
        j = first
        while fast and j < last:
            at = source + j * stride
            v = vld(x, at) if stride == 1 else vld2(x, at)
            _vst(target, j, prologue(v, scale, shift, norm, act, lo, hi), WIDTH)
            j += WIDTH
        while j < last:
            z = ld(x, source + j * stride)
            if norm:
                z = fma(z, scale, shift)
            _st(target, j, act_value(act, z, lo, hi))
            j += 1
        j = last
        while j < count:
            _vst(target, j, zero, WIDTH)
            j += WIDTH

    return line, short


@functools.cache
def _lines(S: Storage):
    """Function that fills the rows of one bank."""
    line, short = _line(S)

    def rows(
        target, nothing, x, source, row_step, image_step, count, top, bottom, images, tw,
        first, last, stride, fast, scale, shift, norm, act, lo, hi,
    ):  # fmt: skip
        """`count` rows of `images` lines; those outside top..bottom are zero."""
        zero = vsplat(to_float(nothing))
        if fast != 0 and tw <= WIDTH and first < last and source + top * row_step >= 0:
            for row in range(count):
                at = source + row * row_step
                for _ in range(images):
                    if top <= row and row < bottom:
                        short(
                            target, x, at, first, last, stride, scale, shift, norm != 0,
                            act, lo, hi,
                        )  # fmt: skip
                    else:
                        _vst(target, 0, zero, WIDTH)
                    at += image_step
                    target += 4 * tw
            return
        for row in range(count):
            head, tail = (first, last) if top <= row and row < bottom else (tw, tw)
            at = source + row * row_step
            for _ in range(images):
                line(
                    target, zero, x, at, head, tail, tw, stride, fast != 0, scale, shift,
                    norm != 0, act, lo, hi,
                )  # fmt: skip
                at += image_step
                target += 4 * tw

    return outline(f"et_rows_{S.name}", rows, ("scale", "shift", "lo", "hi"))


@functools.cache
def panel_fill(S: Storage):
    """Function that packs a chunk of channels into a panel."""
    fill_rows, nbytes, fill_lines = _lines(S), S.nbytes, lines_fill(S)

    def fill(
        panel, nothing, x, size, first_image, first_channel, channels, c, h, wd,
        images, row0, rows, col0, tw, sy, ylow, ydist, banks, sx, xlow, xdist, taps_w,
        stat, gamma, beta, act, lo, hi, ahead, span,
    ):  # fmt: skip
        """Panel of x [., c, h, wd] (`size` elements) for a tile at (row0, col0).

        Output (row, column) at tap (bank, p) reads input row (row0 + row) * sy + ylow +
        bank * ydist and column (col0 + column) * sx + xlow + p * xdist. `nothing` is 0, which
        the compiler must not know: it would call memset for rows of a few zeros. In each plane
        `span` elements are prefetched, `ahead` elements after the tile's first.
        """
        if holds_lines(tw, wd, sx, xlow, xdist, taps_w):
            fill_lines(
                panel, x, size, first_image, first_channel, channels, c, h, wd,
                images, row0, rows, sy, ylow, ydist, banks, xlow, xdist, taps_w,
                stat, gamma, beta, act, lo, hi, ahead, span,
            )  # fmt: skip
            return
        norm, scale, shift = 1 if stat != 0 else 0, ONE, ZERO
        region, image_step = 4 * region_floats(banks * rows, images * tw), c * h * wd
        for i in range(channels):
            if norm != 0:
                scale = norm_scale(stat, gamma, first_channel + i, c)
                shift = norm_shift(stat, gamma, beta, first_channel + i, c)
            plane = (first_image * c + first_channel + i) * h * wd
            end = plane + (images - 1) * image_step + h * wd
            fast = 1 if sx <= 2 and end + 2 * WIDTH <= size else 0
            for image in range(images):
                at = plane + image * image_step + row0 * sy * wd + col0 * sx + ahead
                for j in range(0, span * nbytes, 64):
                    prefetch(x + at * nbytes + j)
            for p in range(taps_w):
                offset = col0 * sx + xlow + p * xdist
                first, last = _valid(offset, sx, wd, tw)
                target = panel + (i * taps_w + p) * region
                for bank in range(banks):
                    low = row0 * sy + ylow + bank * ydist
                    top, bottom = _valid(low, sy, h, rows)
                    source = plane + low * wd + offset
                    fill_rows(
                        target, nothing, x, source, sy * wd, image_step, rows, top, bottom,
                        images, tw, first, last, sx, fast, scale, shift, norm, act, lo, hi,
                    )  # fmt: skip
                    target += 4 * rows * images * tw

    return outline(f"et_panel_{S.name}", fill, ("lo", "hi"))


@functools.cache
def tile_store(S: Storage):
    """Function that stores the sums of one channel."""
    vlds, vst, ld, st = loads(S), stores(S), S.ld, S.st

    @inline
    def run(y, index, source, count, acc):
        for j in range(0, count, WIDTH):
            v = _vld(source, j)
            if acc == 0:
                vst(y, index + j, v, count - j)
            elif count - j >= WIDTH:
                vst(y, index + j, vadd(v, vlds(y, index + j)), WIDTH)
            else:
                for i in range(j, count):
                    st(y, index + i, _ld(source, i) + ld(y, index + i))

    def store(y, first, image_step, source, images, row0, rows, col0, tw, width, acc):
        """Sums, flat over the tile, (added) to the channel's map of `width` columns at `first`."""
        if images == 1 and tw == width:
            run(y, first + row0 * width, source, rows * width, acc)
        else:
            for row in range(rows):
                for image in range(images):
                    index = first + image * image_step + (row0 + row) * width + col0
                    run(y, index, source + 4 * (row * images + image) * tw, tw, acc)

    return outline(f"et_store_{S.name}", store)


@functools.cache
def class_store(S: Storage):
    """Function that stores one row class of one channel, the column classes alternating."""
    vlds, vst, ld, st = loads(S), stores(S), S.ld, S.st

    def store(
        y, first, image_step, source, map_bytes, a, sh, sw,
        images, row0, rows, col0, tw, h, wd, acc,
    ):  # fmt: skip
        """y[.., (row0 + row) * sh + a, (col0 + column) * sw + b] (+)= map b at (row, column)."""
        count = min(tw * sw, wd - col0 * sw)
        for part in range(rows * images):
            row, image = div(part, images), mod(part, images)
            iy = (row0 + row) * sh + a
            index = first + image * image_step + iy * wd + col0 * sw
            at = source + 4 * part * tw
            for j in range(0, count if iy < h else 0, WIDTH):
                if sw == 2 and (count - j >= WIDTH or acc == 0):
                    half = div(j, 2 * WIDTH) * WIDTH
                    even, odd = _vld(at, half), _vld(at + map_bytes, half)
                    v = vinterleave(even, odd, mod(div(j, WIDTH), 2))
                    if acc != 0:
                        v = vadd(v, vlds(y, index + j))
                    vst(y, index + j, v, count - j)
                else:
                    for i in range(j, min(j + WIDTH, count)):
                        total = _ld(at + mod(i, sw) * map_bytes, div(i, sw))
                        st(y, index + i, total + ld(y, index + i) if acc != 0 else total)

    return outline(f"et_store_classes_{S.name}", store)


@functools.cache
def classes_store(S: Storage):
    """Inline function that stores the sums of several channels, of one row class."""
    plain, alternating = tile_store(S), class_store(S)

    @inline
    def store(
        y, first, channels, image_step, sums, count, map_bytes, a, sh, sw,
        images, row0, rows, col0, tw, h, wd, acc,
    ):  # fmt: skip
        """`count` vectors of sums a channel; channels follow each other in y from `first` on."""
        for i in range(channels):
            source, plane = sums + i * count * 64, first + i * h * wd
            if sh == 1 and sw == 1:
                plain(y, plane, image_step, source, images, row0, rows, col0, tw, wd, acc)
            else:
                alternating(
                    y, plane, image_step, source, map_bytes, a, sh, sw,
                    images, row0, rows, col0, tw, h, wd, acc,
                )  # fmt: skip

    return store


@functools.cache
def weight_runs(W: Storage):
    """Function that copies runs of weights to float32."""
    vld, ld = loads(W), W.ld

    def copy(target, w, size, source, step, runs, pitch, count):
        """target[o][j] = w[source + o * step + j], j < count <= pitch, o < runs.

        Runs in target are `pitch` floats apart. Up to 15 floats after the last are overwritten;
        w has `size` elements.
        """
        for o in range(runs):
            at, j = source + o * step, 0
            while j < count and at + j + WIDTH <= size:
                _vst(target, j, vld(w, at + j), WIDTH)
                j += WIDTH
            while j < count:
                _st(target, j, ld(w, at + j))
                j += 1
            target += 4 * pitch

    return outline(f"et_weights_{W.name}", copy)


@inline
def set_row(target, value, count):
    """`count` vectors equal to `value`."""
    for v in range(count):
        _vst(target, v * WIDTH, value, WIDTH)


@functools.cache
def block_products(rows: int, vectors: int):
    """Inline function that multiplies a block of weights with every vector of a panel."""
    wide, single = gemm_columns(rows, vectors), gemm_columns(rows, 1)
    pair = gemm_columns(rows, 2) if vectors > 2 else wide

    @inline
    def products(sums, sums_stride, panel, w, w_stride, table, taps, count):
        """sums[m][v] += sum over taps; strides in bytes, `count` vectors."""
        v = 0
        while v + vectors <= count:
            wide(sums + v * 64, sums_stride, panel + v * 64, w, w_stride, table, taps)
            v += vectors
        if vectors > 2 and v + 2 <= count:
            pair(sums + v * 64, sums_stride, panel + v * 64, w, w_stride, table, taps)
            v += 2
        while v < count:
            single(sums + v * 64, sums_stride, panel + v * 64, w, w_stride, table, taps)
            v += 1

    return products
