"""Tiles of output pixels and the layout of the panels that fast convolutions read.

All of them compute out[m, jy, jx] = sum over channels and taps of in[ch, jy*SY + ey, jx*SX + ex]
times a weight, where ey and ex run over arithmetic progressions of tap offsets.

- A tile is `rows` x `images` x `tw` output pixels of one range of columns, flattened in this
  order: pitch = images * tw floats from a row to the next, no gaps. So small maps fill vectors
  with several images.
- The panel holds float32 [channel][tap column][bank][row][image][column]: for each tap column a
  region with a copy of the input shifted (and strided) so that output column j reads panel column
  j. Tap rows share the rows of a bank where their distance is 1 (bank = distance mod SY), else
  each has a bank. A tap is then one byte offset into the panel, the same for all pixels of the
  tile, and a vector of pixels one contiguous load.
"""

from ..jit import inline
from ..words.prim import div, mod, st_i32
from ..words.vector import WIDTH, outline

SLACK = 128  # bytes that vector loads and stores may reach past a part of the scratch


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
def find_pieces(places, piece, rows, images, tw, width, area, nbytes):
    """places[i]: bytes in a map from a tile's first pixel to its piece i, in panel order.

    Args:
      piece: elements, a divisor of `tw`.  width: of a line of the map.  area: between images.
    """
    at = 0
    for row in range(rows):
        for image in range(images):
            for column in range(0, tw, piece):
                st_i32(places, at, (row * width + image * area + column) * nbytes)
                at += 1


@inline
def whole_pieces(places, pixels, rows, images, tw, width, area, nbytes):
    """16 or 8, and the places of such pieces, where a tile of `pixels` consists of them; else 0."""
    piece = 16 if mod(width, 16) == 0 else 8
    if rows * images * tw != pixels or mod(width, piece) != 0:
        return 0
    find_pieces(places, piece, rows, images, tw, width, area, nbytes)
    return piece


@inline
def next_tile(grid, rows, images, tw, row_step, column_step, map_size, image_step, width):
    """(elements from a tile's first input to the next tile's, elements of a plane it adds)."""
    if grid[0] > 1:
        return tw * column_step, tw * column_step
    if grid[1] > 1:
        return rows * row_step * width, rows * row_step * width
    return images * image_step, map_size


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
def region_floats(rows, pitch):
    """Floats of one tap column of a channel: its rows, then room for a vector to spill."""
    return ceil_div(rows * pitch, WIDTH) * WIDTH + WIDTH


@inline
def within(most, least, elements, part):
    """`most`; for small maps, whose scratch should be small too, elements / part or `least`."""
    return min(most, max(least, div(elements, part)))


@inline
def panel_nbytes(channels, channel_floats, nbytes):
    """Bytes of a panel for chunks of `channels` channels aimed at `nbytes`; see panel_extent."""
    return ceil_div(min(max(nbytes, 4 * channel_floats), 4 * channels * channel_floats), 64) * 64


@inline
def scratch_parts(ws, products, rows, channels, channel_floats, nbytes):
    """Addresses of the weights, panel and sums after the table of `products` pairs."""
    weights = ws + ceil_div(products, 8) * 64
    panel = weights + ceil_div(products, 16) * 64 * rows + SLACK
    return weights, panel, panel + panel_nbytes(channels, channel_floats, nbytes) + SLACK


@inline
def chunk_channels(channels, channel_floats, taps, limit, nbytes):
    """Channels of a chunk: a panel of about `nbytes`, at most `limit` products, equal parts."""
    most = min(div(nbytes, 4 * max(channel_floats, 1)), div(limit, max(taps, 1)))
    most = max(min(most, channels), 1)
    return ceil_div(channels, max(ceil_div(channels, most), 1))


@inline
def _line_of(q, distance, stride, bank_rows):
    """Line of a region where tap row q (rising offsets) begins."""
    return mod(q, stride) * bank_rows + div(q, stride) if distance == 1 else q * bank_rows


def _fill_table(
    table, channels, taps_h, taps_w, distance, stride, bank_rows, banks, pitch, padding
):
    """Byte offset of each row (channel, tap row, tap column) in the panel; `padding` zeros."""
    region, at = 4 * region_floats(banks * bank_rows, pitch), 0
    for i in range(channels):
        for r in range(taps_h):
            line = 4 * _line_of(r, distance, stride, bank_rows) * pitch
            for s in range(taps_w):
                st_i32(table, at, (i * taps_w + s) * region + line)
                at += 1
    for i in range(at, at + padding):
        st_i32(table, i, 0)


def _fill_pairs(
    table, channels, taps_h, taps_w, flip, distance, stride, bank_rows, banks, pitch,
    channel_step, r0, rstep, s0, sstep, kw,
):  # fmt: skip
    """Byte offsets in the panel and in a row of weights, in the order channel, tap row, column.

    flip: panel offsets fall while taps rise (input gradients). A weight lies at channel *
    channel_step + (r0 + r * rstep) * kw + s0 + s * sstep.
    """
    region, at = 4 * region_floats(banks * bank_rows, pitch), 0
    for i in range(channels):
        for r in range(taps_h):
            q = taps_h - 1 - r if flip != 0 else r
            line = 4 * _line_of(q, distance, stride, bank_rows) * pitch
            weight = i * channel_step + (r0 + r * rstep) * kw + s0
            for s in range(taps_w):
                p = taps_w - 1 - s if flip != 0 else s
                st_i32(table, at, (i * taps_w + p) * region + line)
                st_i32(table, at + 1, 4 * (weight + s * sstep))
                at += 2


fill_table = outline("et_fill_table", _fill_table)
fill_pairs = outline("et_fill_pairs", _fill_pairs)
