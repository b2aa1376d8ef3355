"""Packs panels that hold each pixel of the map once: one tap, no stride, no shift.

Pointwise convolutions read their input this way, and weight gradients read the output's gradient. A
tile is one contiguous run of each image. In small maps that is a vector or two.
"""

from ..language.fused_activation import NONE, act_value
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage
from ..language.vector import WIDTH, loads, loads_first, stores, vsplat
from .pack_parts import Way

_vst = stores(FP32)


@inline
def _suits(tile, source, window, prologue):
    """Whether a tile's pixels are one run of each image, inside it, without stride or shift."""
    rows, columns = window.rows, window.columns
    if rows.taps * columns.taps * window.row_stride * window.column_stride != 1:
        return False
    if rows.low != 0 or columns.low != 0 or window.banks != 1 or window.extra != 0:
        return False
    if tile.row0 + tile.rows > source.height or tile.column0 + tile.columns > source.width:
        return False
    return tile.rows == 1 or (tile.images == 1 and tile.columns == source.width)


def _bank(S: Storage):
    vld, vfirst = loads(S), loads_first(S)

    @inline
    def copies(target, x, offset, step, images, count):
        """target[image][j] = x[offset + image * step + j]."""
        if count <= WIDTH:
            for image in range(images):
                _vst(target, image * count, vld(x, offset + image * step), WIDTH)
            return
        for _ in range(images):
            for j in range(0, count, WIDTH):
                _vst(target, j, vld(x, offset + j), WIDTH)
            target += 4 * count
            offset += step

    @inline
    def changes(target, source, offset, step, images, count, how):
        """The same through a prologue, or if a vector must not reach past the end of the map."""
        a, b = vsplat(how.scale), vsplat(how.shift)
        for _ in range(images):
            for j in range(0, count, WIDTH):
                is_full = offset + j + WIDTH <= source.size
                v = (
                    vld(source.address, offset + j)
                    if is_full
                    else vfirst(source.address, offset + j, count - j)
                )
                if how.norm != 0:
                    v = fma(v, a, b)
                _vst(target, j, act_value(how.act, v, how.lo, how.hi), WIDTH)
            target += 4 * count
            offset += step

    @inline
    def bank(to, source, tile, window, how):
        count, images = tile.rows * tile.columns, tile.images
        step = source.channels * source.height * source.width
        offset = to.plane + tile.row0 * source.width + tile.column0
        if how.norm != 0 or how.act != NONE:
            changes(to.target, source, offset, step, images, count, how)
            return
        inside = offset + (images - 1) * step + count + WIDTH <= source.size
        if inside:
            copies(to.target, source.address, offset, step, images, count)
        else:
            changes(to.target, source, offset, step, images, count, how)

    return bank


contiguous = Way("contiguous", _suits, _bank, fetched=64, one_bank=True, unchanged=True)
