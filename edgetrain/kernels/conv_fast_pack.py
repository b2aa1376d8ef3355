"""Tiles of output pixels and the panels of inputs that fast convolutions read.

All of them compute out[m, jy, jx] = sum over channels and taps of in[ch, jy*SY + ey, jx*SX + ex]
times a weight, where ey and ex run over arithmetic progressions of tap offsets.

- A tile is `rows` x `images` x `tw` output pixels of one range of columns, flattened in this
  order: pitch = images * tw floats from a row to the next, no gaps. So small maps fill vectors
  with several images.
- The panel holds float32 [channel][tap column][bank][row][image][column]: for each tap column one
  copy of the input shifted (and strided) so that output column j reads panel column j; tap rows
  share rows of a bank where their distance is 1 (bank = distance mod SY), else each has a bank.
  A tap is then one byte offset into the panel, the same for all pixels of the tile, and a
  vector of pixels one contiguous load.
"""

from .act import CLIP, ONE, RELU, ZERO, act_value, norm_scale, norm_shift
from .conv_fast import PANEL
from .jit import inline
from .prim import FP32, Storage, div, fma, mod, st_i32
from .vector import (
    WIDTH,
    gemm_columns,
    gemm_outer,
    loads,
    stores,
    vadd,
    vclip,
    vfma,
    vinterleave,
    vrelu,
    vsplat,
)


@inline
def ceil_div(a, b):
    """a / b rounded up, for a >= 0."""
    return div(a + b - 1, b)


@inline
def tiling(n, height, width, limit):
    """(columns, rows, images) of a tile of at most `limit` pixels, parts of equal size."""
    if width > limit:
        parts = ceil_div(width, limit)
        return ceil_div(ceil_div(width, parts), WIDTH) * WIDTH, 1, 1
    rows = max(min(height, div(limit, max(width, 1))), 1)
    rows = max(ceil_div(height, max(ceil_div(height, rows), 1)), 1)
    if rows < height:
        return width, rows, 1
    images = max(min(n, div(limit, max(height * width, 1))), 1)
    return width, rows, max(ceil_div(n, max(ceil_div(n, images), 1)), 1)


@inline
def tile_grid(n, height, width, limit):
    """(column parts, row parts, image parts, columns, rows, images) of the tiles."""
    tw, rows, images = tiling(n, height, width, limit)
    parts = ceil_div(width, max(tw, 1)), ceil_div(height, rows), ceil_div(n, images)
    return parts[0], parts[1], parts[2], tw, rows, images


@inline
def tile_at(t, grid, n, height, width):
    """(first image, images, first row, rows, first column, columns) of tile t."""
    col0 = mod(t, grid[0]) * grid[3]
    row0 = mod(div(t, grid[0]), grid[1]) * grid[4]
    image0 = div(t, grid[0] * grid[1]) * grid[5]
    images, rows = min(grid[5], n - image0), min(grid[4], height - row0)
    return image0, images, row0, rows, col0, min(grid[3], width - col0)


@inline
def banks_of(taps, distance, stride):
    """(banks, rows of a bank beyond the tile's) for tap rows `distance` apart."""
    if distance == 1:
        return min(stride, taps), div(taps - 1, stride)
    return taps, 0


@inline
def tap_class(shifted, taps, stride, dilation):
    """(first tap, step, taps, lowest offset, distance) of those that reach one class of pixels.

    Tap t reads dy at (shifted - t * dilation) / stride where that is whole; `shifted` is the
    class's remainder plus the padding. Offsets fall while taps rise.
    """
    first, step = 0, 1
    while first < taps and mod(abs(shifted - first * dilation), stride) != 0:
        first += 1
    while mod(step * dilation, stride) != 0:
        step += 1
    count = div(taps - 1 - first, step) + 1 if first < taps else 0
    low = div(shifted - (first + (count - 1) * step) * dilation, stride) if count > 0 else 0
    return first, step, count, low, div(step * dilation, stride)


@inline
def chunk_channels(channels, channel_floats, taps, limit):
    """Channels of a chunk: a panel of about PANEL bytes, at most `limit` products, equal parts."""
    most = min(div(PANEL, 4 * max(channel_floats, 1)), div(limit, max(taps, 1)))
    most = max(min(most, channels), 1)
    return ceil_div(channels, max(ceil_div(channels, most), 1))


@inline
def fill_table(table, channels, taps_h, taps_w, flip, distance, stride, bank_rows, banks, pitch):
    """Byte offsets of a chunk's products in the panel, in the order channel, tap row, column.

    flip: offsets fall while taps rise (input gradients).
    """
    plane, at = bank_rows * pitch * 4, 0
    for i in range(channels):
        for r in range(taps_h):
            q = taps_h - 1 - r if flip != 0 else r
            bank, row = (mod(q, stride), div(q, stride)) if distance == 1 else (q, 0)
            for s in range(taps_w):
                p = taps_w - 1 - s if flip != 0 else s
                offset = ((i * taps_w + p) * banks + bank) * plane + row * pitch * 4
                st_i32(table, at, offset)
                at += 1


@inline
def valid_columns(offset, stride, width, count):
    """[first, last) of the columns j < count with 0 <= offset + j * stride < width."""
    first = min(count, ceil_div(-offset, stride)) if offset < 0 else 0
    last = min(count, ceil_div(width - offset, stride)) if offset < width else 0
    return first, max(first, last)


def row_copy(S: Storage):
    """Inline function that fills one row of a panel."""
    vld, vld2, vst = loads(S), loads(S, 2), stores(FP32)
    ld, st = S.ld, FP32.st

    @inline
    def copy(
        target, zero, x, source, size, first, last, count, stride, scale, shift, norm, act, lo, hi
    ):
        """target[j] = prologue(x[source + j * stride]) for first <= j < last, else 0; j < count.

        Up to 15 floats after the row are overwritten, so rows are filled in rising order.
        Elements of x below `size` may be read.
        """
        j = 0
        while j < first:
            vst(target, j, zero, WIDTH)
            j += WIDTH
        j = first
        while j < last:
            at = source + j * stride
            if act <= CLIP and stride <= 2 and at + WIDTH * stride <= size:
                v = vld(x, at) if stride == 1 else vld2(x, at)
                if norm:
                    v = vfma(v, vsplat(scale), vsplat(shift))
                if act == RELU:
                    v = vrelu(v)
                elif act == CLIP:
                    v = vclip(v, vsplat(lo), vsplat(hi))
                vst(target, j, v, WIDTH)
            else:
                for i in range(j, min(j + WIDTH, last)):
                    z = ld(x, source + i * stride)
                    if norm:
                        z = fma(z, scale, shift)
                    st(target, i, act_value(act, z, lo, hi))
            j += WIDTH
        j = last
        while j < count:
            vst(target, j, zero, WIDTH)
            j += WIDTH

    return copy


def panel_fill(S: Storage):
    """Inline function that packs a chunk of channels into a panel."""
    copy = row_copy(S)

    @inline
    def fill(
        panel, zero, x, size, first_image, first_channel, channels, c, h, wd,
        images, row0, rows, col0, tw, sy, ylow, ydist, banks, sx, xlow, xdist, taps_w,
        stat, gamma, beta, act, lo, hi,
    ):  # fmt: skip
        """Panel of x [., c, h, wd] for output rows row0.. and columns col0.. of some images.

        Output (row, column) at tap (bank, p) reads input row (row0 + row) * sy + ylow +
        bank * ydist and column (col0 + column) * sx + xlow + p * xdist.
        """
        target, scale, shift = panel, ONE, ZERO
        for i in range(channels):
            if stat != 0:
                scale = norm_scale(stat, gamma, first_channel + i, c)
                shift = norm_shift(stat, gamma, beta, first_channel + i, c)
            for p in range(taps_w):
                offset = col0 * sx + xlow + p * xdist
                first, last = valid_columns(offset, sx, wd, tw)
                for bank in range(banks):
                    for row in range(rows):
                        iy = (row0 + row) * sy + ylow + bank * ydist
                        inside = iy >= 0 and iy < h
                        for image in range(first_image, first_image + images):
                            source = ((image * c + first_channel + i) * h + iy) * wd + offset
                            copy(
                                target, zero, x, source, size, first if inside else tw,
                                last if inside else tw, tw, sx, scale, shift, stat != 0,
                                act, lo, hi,
                            )  # fmt: skip
                            target += 4 * tw

    return fill


def row_store(S: Storage):
    """Inline function that stores a run of sums."""
    vld, vlds, vst, ld, st = loads(FP32), loads(S), stores(S), S.ld, S.st
    ldf = FP32.ld

    @inline
    def store(y, index, source, count, acc):
        """y[index + j] (+)= float32 source[j], j < count."""
        for j in range(0, count, WIDTH):
            v = vld(source, j)
            if acc == 0:
                vst(y, index + j, v, count - j)
            elif count - j >= WIDTH:
                vst(y, index + j, vadd(v, vlds(y, index + j)), WIDTH)
            else:
                for i in range(j, count):
                    st(y, index + i, ldf(source, i) + ld(y, index + i))

    return store


@inline
def store_tile(store, y, first, image_step, source, images, row0, rows, col0, tw, width, acc):
    """Sums of one channel, flat over the tile, to its map of `width` columns from `first` on."""
    if images == 1 and tw == width:
        store(y, first + row0 * width, source, rows * width, acc)
    else:
        for row in range(rows):
            for image in range(images):
                index = first + image * image_step + (row0 + row) * width + col0
                store(y, index, source + 4 * (row * images + image) * tw, tw, acc)


def class_store(S: Storage):
    """Inline function that stores the classes of one row of classes, columns alternating."""
    vld, vlds, vst, ld, st = loads(FP32), loads(S), stores(S), S.ld, S.st
    ldf = FP32.ld

    @inline
    def store(
        y, first, image_step, source, map_bytes, a, sh, sw,
        images, row0, rows, col0, tw, h, wd, acc,
    ):  # fmt: skip
        """y[.., (row0 + row) * sh + a, (col0 + column) * sw + b] (+)= map b at (row, column)."""
        count = min(tw * sw, wd - col0 * sw)
        for line in range(rows * images):
            row, image = div(line, images), mod(line, images)
            iy = (row0 + row) * sh + a
            index = first + image * image_step + iy * wd + col0 * sw
            at = source + 4 * line * tw
            for j in range(0, count if iy < h else 0, WIDTH):
                whole = sw == 2 and count - j >= WIDTH
                if sw == 2 and (whole or acc == 0):
                    half = div(j, 2 * WIDTH) * WIDTH
                    even, odd = vld(at, half), vld(at + map_bytes, half)
                    v = vinterleave(even, odd, mod(div(j, WIDTH), 2))
                    if acc != 0:
                        v = vadd(v, vlds(y, index + j))
                    vst(y, index + j, v, count - j)
                else:
                    for i in range(j, min(j + WIDTH, count)):
                        total = ldf(at + mod(i, sw) * map_bytes, div(i, sw))
                        st(y, index + i, total + ld(y, index + i) if acc != 0 else total)

    return store


def weight_rows(W: Storage):
    """Inline function that copies runs of weights to float32."""
    vld, vst, ld, st = loads(W), stores(FP32), W.ld, FP32.st

    @inline
    def copy(target, w, source, size, count):
        """target[j] = w[source + j], j < count; up to 15 floats more are overwritten."""
        j = 0
        while j < count:
            if source + j + WIDTH <= size:
                vst(target, j, vld(w, source + j), WIDTH)
            else:
                for i in range(j, count):
                    st(target, i, ld(w, source + i))
            j += WIDTH

    return copy


@inline
def set_row(target, value, count):
    """`count` vectors equal to `value`."""
    for v in range(count):
        _set(target, v * WIDTH, value, WIDTH)


_set = stores(FP32)


def block_products(rows: int, vectors: int):
    """Inline function that multiplies a block of weights with every vector of a panel."""
    wide, single = gemm_columns(rows, vectors), gemm_columns(rows, 1)

    @inline
    def products(sums, sums_stride, panel, w, w_stride, table, taps, count):
        """sums[m][v] += sum over taps; strides in bytes, `count` vectors."""
        v = 0
        while v + vectors <= count:
            wide(sums + v * 64, sums_stride, panel + v * 64, w, w_stride, table, taps)
            v += vectors
        while v < count:
            single(sums + v * 64, sums_stride, panel + v * 64, w, w_stride, table, taps)
            v += 1

    return products


def transposed_weights(W: Storage, rows: int):
    """Inline function that gathers the weights of a block of input channels."""
    vld, vst, ld, st = loads(W), stores(FP32), W.ld, FP32.st

    @inline
    def copy(target, w, size, o0, outputs, i0, cg, kh, kw, r0, rstep, taps_h, s0, sstep, taps_w):
        """target[m][(o, r, s)] = w[o0 + o, i0 + m, r0 + r * rstep, s0 + s * sstep].

        Channels beyond `cg` repeat the last. Up to 15 floats after `rows` rows are overwritten.
        """
        taps, at = kh * kw, 0
        for m in range(rows):
            for o in range(outputs):
                source = ((o0 + o) * cg + min(i0 + m, cg - 1)) * taps
                if taps_h * taps_w == taps and taps <= WIDTH and source + WIDTH <= size:
                    vst(target, at, vld(w, source), WIDTH)
                    at += taps
                else:
                    for r in range(taps_h):
                        row = source + (r0 + r * rstep) * kw + s0
                        for s in range(taps_w):
                            st(target, at, ld(w, row + s * sstep))
                            at += 1

    return copy


def outer_products():
    """Inline function that multiplies every row of a panel with transposed gradients."""
    four, two, one = gemm_outer(4, 4), gemm_outer(8, 2), gemm_outer(8, 1)

    @inline
    def products(sums, block, vectors, panel, table, taps, turned, pixels):
        """sums[tap][o] += sum over pixels of panel[table[tap] + p] * turned[p][o].

        Rows of sums and turned are `block` floats, of which `vectors` vectors are computed. The
        table and sums have rows up to a multiple of 8 taps.
        """
        v = 0
        while v < vectors:
            step = 4 if vectors - v >= 4 else (2 if vectors - v >= 2 else 1)
            for m in range(0, taps, 4 if step == 4 else 8):
                y, d = sums + 4 * m * block + 64 * v, turned + 64 * v
                if step == 4:
                    four(y, 4 * block, panel, table + 4 * m, d, 4 * block, pixels)
                elif step == 2:
                    two(y, 4 * block, panel, table + 4 * m, d, 4 * block, pixels)
                else:
                    one(y, 4 * block, panel, table + 4 * m, d, 4 * block, pixels)
            v += step

    return products


def accumulate_rows(G: Storage):
    """Inline function that adds a run of float32 to a gradient accumulator."""
    ld, sr, ldf = G.ld, G.sr, FP32.ld

    @inline
    def add(target, index, source, count, numbers):
        """target[index + j] += source[j], j < count, rounded stochastically."""
        for j in range(count):
            sr(target, index + j, ld(target, index + j) + ldf(source, j), numbers)

    return add
