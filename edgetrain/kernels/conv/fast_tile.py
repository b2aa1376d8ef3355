"""Tiles of output pixels, and the input panels that fast convolutions read for them.

These convolutions compute

    out[m, jy, jx] = sum over channels and taps of weight * in[ch, jy * SY + ey, jx * SX + ex]

SY and SX are strides; ey and ex are the offsets of tap rows and tap columns, which are evenly
spaced.

A tile is rows x images x columns of output pixels, flattened in this order without gaps. With
several images in a tile, vectors are full even if maps are small. A row has images * columns
floats, its `pitch`.

A panel is a float32 copy of the input that a tile reads:

    [channel][tap column][bank][row][image][column]

Each tap column has a region of its own, shifted and strided so that output column j reads panel
column j. So a tap is one byte offset into the panel, the same for all pixels of the tile, and 16
pixels are one contiguous load. Tap rows 1 apart share the rows of a bank (SY banks: one for each
remainder of the row); others have a bank each.
"""

from ..language.calls import outline
from ..language.inlining import inline
from ..language.prim import div, ld_i64, mod, st_i32, st_i64
from ..language.vector import WIDTH
from .records import Ahead, Axis, Conv, Grid, Map, Prologue, Range, Tile, Window


@inline
def ceil_div(a, b):
    """a / b rounded up, for a >= 0."""
    return div(a + b - 1, b)


@inline
def _conv(args, h, wd, oh, ow):
    return Conv(
        args.n,
        args.c,
        h,
        wd,
        args.k,
        args.kh,
        args.kw,
        oh,
        ow,
        args.sh,
        args.sw,
        args.ph,
        args.pw,
        args.dh,
        args.dw,
        args.g,
    )


@inline
def given_shapes(args):
    """The shapes in a kernel's operands."""
    return _conv(args, args.h, args.wd, args.oh, args.ow)


@inline
def shapes(args):
    """Like `given_shapes`, but pointwise convolutions get maps of a single line of pixels."""
    h, wd, oh, ow = args.h, args.wd, args.oh, args.ow
    if (
        args.kh * args.kw * args.sh * args.sw == 1
        and args.ph + args.pw == 0
        and oh == h
        and ow == wd
    ):
        h, wd, oh, ow = 1, h * wd, 1, h * wd
    return _conv(args, h, wd, oh, ow)


@inline
def inputs(address, p):
    """The map x, or its gradient, at an address."""
    return Map(address, p.n * p.c * p.h * p.wd, p.c, p.h, p.wd)


@inline
def outputs(address, p):
    """The map y, or its gradient, at an address."""
    return Map(address, p.n * p.k * p.oh * p.ow, p.k, p.oh, p.ow)


@inline
def prologue_of(args):
    """The prologue in a kernel's operands."""
    return Prologue(args.stat, args.gamma, args.beta, args.act, args.lo, args.hi)


@inline
def forward_window(p):
    """The window of input that an output of a convolution reads."""
    banks, extra = banks_of(p.kh, p.dh, p.sh)
    rows, columns = Axis(p.kh, -p.ph, p.dh, 0, 1), Axis(p.kw, -p.pw, p.dw, 0, 1)
    return Window(p.sh, p.sw, rows, columns, banks, extra)


@inline
def tiling(n, height, width, limit):
    """(columns, rows, images) of a tile of at most `limit` pixels; tiles have about equal sizes."""
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
    """The tiles of maps of n x height x width, at most `limit` pixels each."""
    columns, rows, images = tiling(n, height, width, limit)
    across, down = ceil_div(width, max(columns, 1)), ceil_div(height, rows)
    return Grid(across, down, ceil_div(n, images), columns, rows, images, n, height, width)


@inline
def tiles_of(grid):
    """Number of tiles."""
    return grid.across * grid.down * grid.deep


@inline
def tile_at(t, grid):
    """Tile t."""
    column0 = mod(t, grid.across) * grid.columns
    row0 = mod(div(t, grid.across), grid.down) * grid.rows
    image0 = div(t, grid.across * grid.down) * grid.images
    images, rows = min(grid.images, grid.n - image0), min(grid.rows, grid.height - row0)
    return Tile(image0, images, row0, rows, column0, min(grid.columns, grid.width - column0))


@inline
def shape_of(tile):
    """A number that identifies a tile's shape."""
    return (tile.rows << 40) + (tile.images << 20) + tile.columns


@inline
def pitch_of(tile):
    """Floats from one row of a tile to the next."""
    return tile.images * tile.columns


@inline
def pixels_of(tile):
    """Number of pixels of a tile."""
    return tile.rows * pitch_of(tile)


@inline
def power_vectors(tile):
    """Number of vectors that hold a tile's pixels, rounded up to a power of two."""
    count = 1
    while count * WIDTH < pixels_of(tile):
        count *= 2
    return count


@inline
def valid_range(offset, stride, size, count):
    """Range of the j < count with 0 <= offset + j * stride < size."""
    if stride == 1:
        return Range(count, min(max(-offset, 0), count), max(min(size - offset, count), 0))
    first = min(count, ceil_div(-offset, stride)) if offset < 0 else 0
    last = min(count, ceil_div(size - offset, stride)) if offset < size else 0
    return Range(count, first, max(first, last))


@inline
def first_pixel(target, channel, tile):
    """Index of the first element of a tile in a channel of a map."""
    plane = (tile.image0 * target.channels + channel) * target.height
    return (plane + tile.row0) * target.width + tile.column0


@inline
def find_pieces(places, piece, tile, target, nbytes):
    """places[i] = bytes in a map from a tile's first pixel to its piece i, in panel order.

    Args:
      piece: elements, a divisor of the tile's columns.
    """
    index, area = 0, target.channels * target.height * target.width
    for row in range(tile.rows):
        for image in range(tile.images):
            for column in range(0, tile.columns, piece):
                st_i32(places, index, (row * target.width + image * area + column) * nbytes)
                index += 1


@inline
def whole_pieces(places, pixels, tile, target, nbytes):
    """If the tile has exactly `pixels` pixels and consists of pieces of 16 or 8 elements, list them
    with `find_pieces` and return that size; else return 0."""
    piece = 16 if mod(target.width, 16) == 0 else 8
    if pixels_of(tile) != pixels or mod(target.width, piece) != 0:
        return 0
    find_pieces(places, piece, tile, target, nbytes)
    return piece


@inline
def next_tile(grid, tile, source, window):
    """Offset from a tile's first input to the input that the next tile adds, and its length."""
    if grid.across > 1:
        step = tile.columns * window.column_stride
        return Ahead(step, step)
    plane = source.height * source.width
    if grid.down > 1:
        step = tile.rows * window.row_stride * source.width
        return Ahead(step, step)
    return Ahead(tile.images * source.channels * plane, plane)


@inline
def banks_of(taps, distance, stride):
    """(banks, rows of a bank beyond the tile's) for tap rows `distance` apart."""
    if distance == 1:
        return min(stride, taps), div(taps - 1, stride)
    return taps, 0


@inline
def tap_class(shifted, taps, stride, dilation):
    """The taps that reach one class of pixels; neighbours in the class read neighbours in dy.

    Tap t reads dy at (shifted - t * dilation) / stride if that is an integer; `shifted` is the
    class's remainder plus the padding. Offsets fall as taps rise: the kernel's last tap is the
    axis's first.
    """
    first, step = 0, 1
    while first < taps and mod(abs(shifted - first * dilation), stride) != 0:
        first += 1
    while mod(step * dilation, stride) != 0:
        step += 1
    count = div(taps - 1 - first, step) + 1 if first < taps else 0
    low = div(shifted - (first + (count - 1) * step) * dilation, stride) if count > 0 else 0
    return Axis(count, low, div(step * dilation, stride), first, step)


@inline
def class_taps(shifted, taps, stride):
    """Number of taps that `tap_class` finds if taps are one apart."""
    first = mod(shifted, stride)
    return div(taps - 1 - first, stride) + 1 if first < taps else 0


@inline
def columns_together(p):
    """Axis of the columns of dy that all column classes read together, one apart; its taps are not
    those of a kernel."""
    low, high = 0, -1
    for b in range(p.sw):
        columns = tap_class(b + p.pw, p.kw, p.sw, p.dw)
        if columns.taps > 0:
            last = columns.low + (columns.taps - 1) * columns.distance
            low = min(low, columns.low) if high >= low else columns.low
            high = max(high, last) if high >= low else last
    return Axis(high - low + 1, low, 1, 0, 1)


@inline
def region_floats(rows, pitch):
    """Floats of one tap column of a channel: its rows, then room for a vector to spill."""
    return ceil_div(rows * pitch, WIDTH) * WIDTH + WIDTH


@inline
def tile_region(window, tile):
    """`region_floats` for a tile's panel."""
    return region_floats(window.banks * (tile.rows + window.extra), pitch_of(tile))


@inline
def channel_floats(window, tile):
    """Floats of one channel of a tile's panel."""
    return window.columns.taps * tile_region(window, tile)


@inline
def largest_channel(window, grid):
    """`channel_floats` of the largest tile."""
    return channel_floats(window, Tile(0, grid.images, 0, grid.rows, 0, grid.columns))


@inline
def chunk_channels(channels, channel_floats, taps, limit, nbytes):
    """Channels of a chunk: a panel takes about `nbytes`, a chunk has at most `limit` products, and
    chunks are of about equal size."""
    most = min(div(nbytes, 4 * max(channel_floats, 1)), div(limit, max(taps, 1)))
    most = max(min(most, channels), 1)
    return ceil_div(channels, max(ceil_div(channels, most), 1))


@inline
def _line_of(q, window, bank_rows):
    """Line of a region at which tap row q begins; q counts with rising offsets."""
    if window.rows.distance == 1:
        return mod(q, window.row_stride) * bank_rows + div(q, window.row_stride)
    return q * bank_rows


def _fill_table(table, channels, window: Window, tile: Tile, padding):
    """Byte offsets in the panel for each (channel, tap row, tap column), then `padding` zeros."""
    region, index, pitch = 4 * tile_region(window, tile), 0, pitch_of(tile)
    for i in range(channels):
        for r in range(window.rows.taps):
            line = 4 * _line_of(r, window, tile.rows + window.extra) * pitch
            for s in range(window.columns.taps):
                st_i32(table, index, (i * window.columns.taps + s) * region + line)
                index += 1
    for i in range(index, index + padding):
        st_i32(table, i, 0)


def _fill_pairs(
    table, channels, window: Window, columns: Axis, tile: Tile, falls, channel_step, kw
):
    """Pairs of byte offsets, into the panel and into a row of weights, in the order channel, tap
    row, tap column.

    columns: the tap columns to read, among those of the window. falls: panel offsets fall as taps
    rise (input gradients). Index of a weight: channel * channel_step + kernel row * kw + kernel
    column.
    """
    region, index, pitch = 4 * tile_region(window, tile), 0, pitch_of(tile)
    rows, all_columns = window.rows, window.columns
    apart = div(columns.distance, all_columns.distance)
    first = div(columns.low - all_columns.low, all_columns.distance)
    for i in range(channels):
        for r in range(rows.taps):
            q = rows.taps - 1 - r if falls != 0 else r
            line = 4 * _line_of(q, window, tile.rows + window.extra) * pitch
            weight = i * channel_step + (rows.first + r * rows.step) * kw + columns.first
            for s in range(columns.taps):
                p = columns.taps - 1 - s if falls != 0 else s
                st_i32(table, index, (i * all_columns.taps + first + p * apart) * region + line)
                st_i32(table, index + 1, 4 * (weight + s * columns.step))
                index += 2


fill_table = outline("et_fill_table", _fill_table)
fill_pairs = outline("et_fill_pairs", _fill_pairs)


@inline
def _unit_after(grid, each, pixels):
    """Number of units, `each` per tile, that compute `pixels` pixels together."""
    done = 0
    for t in range(tiles_of(grid)):
        count = pixels_of(tile_at(t, grid))
        if done + count * each > pixels:
            return t * each + div(pixels - done, count)
        done += count * each
    return tiles_of(grid) * each


def _share_out(place, grid: Grid, each, rounds, thread, nthreads):
    """Store the result of `units_of` in place[0] and place[1], int64."""
    every = grid.n * grid.height * grid.width * each
    for i in range(2):
        pixels = div(every * rounds * (thread + i), nthreads)
        done = div(pixels, every)
        unit = done * tiles_of(grid) * each
        if done < rounds:
            unit += _unit_after(grid, each, pixels - done * every)
        st_i64(place, i, unit)


_shared_out = outline("et_units", _share_out)


@inline
def units_of(place, grid, each, rounds, thread, nthreads):
    """(first unit, unit after the last) of a thread, so that all threads get about as many pixels.

    A round over all tiles has `each` units per tile. `place`: 16 bytes of scratch.
    """
    _shared_out(place, grid, each, rounds, thread, nthreads)
    return ld_i64(place, 0), ld_i64(place, 1)
