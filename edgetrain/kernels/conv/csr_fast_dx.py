"""Fast input gradient of a sparse convolution: the nonzeros listed by input channel.

The pool holds them by output channel. A thread takes as many input channels as have lists and sums
that fit in scratch, lists their nonzeros once, and uses them for all of its tiles with the inner
loop of the forward pass. Pixels whose row has the same remainder modulo sh (column: sw) are a class
with lists of its own: a convolution of dy with stride 1 and falling offsets. Classes of columns
share panel and table if taps are one apart. A sum takes output channels, then kernel elements, in
the plain kernel's order by fma, so results equal the plain kernel's bit for bit.
"""

from ..language.packed import Packed
from ..registry import kernel
from .csr import CSR_CHECK, HELD, aimed, dx_operands, pool_base
from .csr_fast import AIM, PANEL, PIXELS, SLACK, SMALLER, TABLE, TAPS, channel_pixels
from .fast import panel_extent
from .layout import Layout

# Target bytes of lists and sums; the first holds all of 64 x 64 channels, 3 x 3, density 0.3.
SPACE, LESS = 77824, 24576

_CHECK = f"{CSR_CHECK};max(sh, sw) <= 2;k // g * kh * kw <= 65535"
_SUITS = "I == 'u8' and max(sh, sw) <= 2 and k // g * kh * kw <= 65535 and n * h * wd >= 16"
_TILES = "n * ((h + sh - 1) // sh) * ((wd + sw - 1) // sw)"  # pixels of a class


_PANEL_CHANNEL = f"kw * ({4 * PIXELS} * kh + 128)"
_SPACE = aimed(SPACE, LESS)
_CURSORS = f"4 * min(c // g, {_SPACE} // map + 1) + 576"  # of a block's channels and classes
LAYOUT = Layout(
    sizes={
        "most": channel_pixels(_TILES),
        "map": "4 * most * sw",
        "lists": "sh * sw * (c // g)",  # of a group: classes, channels
        # bytes of one channel and of all, at most
        "channel": f"map + 6 * min((k // g) * kh * kw, {HELD})",
        "every": f"c // g * map + 6 * {HELD}",
    },
    parts={
        "table": TABLE,
        "pieces": f"{PIXELS // 2}",
        "slots": "1024",
        "counts": "4 * lists + 64",
        "bounds": "4 * lists + 64",
        "cursors": _CURSORS,
        "stops": _CURSORS,
        "panel": f"{panel_extent('(k // g)', _PANEL_CHANNEL, AIM)} + {SLACK}",
        # its sums, weights, ids
        "block": f"max(channel, min({_SPACE}, c // g * channel, every))",
    },
)


def _tables():
    """(fill_tap_table, find_slots)."""
    from ..language.calls import outline
    from ..language.prim import div, mod, st_i32
    from . import fast_tile as tiles
    from .records import Axis, Conv, Tile, Window

    def fill_tap_table(table, channels, window: Window, columns: Axis, tile: Tile, size, kw):
        """Byte offsets in the panel of each (channel, tap) of a class; columns are among the
        window's."""
        rows, all_columns = window.rows, window.columns
        apart = div(columns.distance, all_columns.distance)
        before = div(columns.low - all_columns.low, all_columns.distance)
        region, line = 4 * tiles.tile_region(window, tile), 4 * tiles.pitch_of(tile)
        step = line * (1 if rows.distance == 1 else tile.rows + window.extra)
        for i in range(channels):
            for r in range(rows.taps):
                first = i * size + (rows.first + r * rows.step) * kw + columns.first
                for s in range(columns.taps):
                    region_of = i * all_columns.taps + before + (columns.taps - 1 - s) * apart
                    offset = region_of * region + (rows.taps - 1 - r) * step
                    st_i32(table, first + s * columns.step, offset)

    def find_slots(slots, p: Conv):
        """slots[column] = (tap * 256 + class) * 256 + channel."""
        size = p.kh * p.kw
        for column in range(256):
            tap = mod(column, size)
            a = mod(div(tap, p.kw) * p.dh + (p.sh - 1) * p.ph, p.sh)
            b = mod(mod(tap, p.kw) * p.dw + (p.sw - 1) * p.pw, p.sw)
            number = (tap << 8) + a * p.sw + b
            st_i32(slots, column, (number << 8) + div(column, size))

    return outline("et_csr_tap_table", fill_tap_table), outline("et_csr_slots", find_slots)


def _listed(S, W):
    """Storage of the weights in lists; for weights in blocks, that of the values they multiply."""
    return S if isinstance(W, Packed) else W


def _lists(S, W, INDEX):
    """(count_channels, list_channels)."""
    from ..language.calls import outline
    from ..language.prim import STORAGES, div, ld_i32, mod, st_i32
    from .records import Block, PoolRows

    ldc, st_id = INDEX.ld, STORAGES["u16"].st
    ldw, stw = W.ld, _listed(S, W).st
    name = f"{W.name}_{INDEX.name}_{_listed(S, W).name}"

    def count_channels(counts, slots, pool: PoolRows, cg, lists):
        """counts[class * cg + channel] = number of a group's nonzeros."""
        for i in range(lists):
            st_i32(counts, i, 0)
        for group in range(pool.first * pool.chunks, (pool.first + pool.rows) * pool.chunks):
            shift = counts + 4 * pool.chunk * mod(group, pool.chunks)
            for e in range(ld_i32(pool.pointers, group), ld_i32(pool.pointers, group + 1)):
                slot = ld_i32(slots, ldc(pool.columns, e))
                i = (slot >> 8 & 255) * cg + (slot & 255)
                st_i32(shift, i, ld_i32(shift, i) + 1)

    def list_channels(bounds, counts, slots, pool: PoolRows, block: Block, cg, classes, size):
        """List the nonzeros of a block's channels: list j has bounds[j] <= e < bounds[j + 1].

        j = class * channels + channel of the block; an id is output channel * taps + tap.
        """
        index, i0, ib, chunk = 0, block.first, block.channels, pool.chunk
        st_i32(bounds, 0, 0)
        for q in range(classes):
            for i in range(ib):
                st_i32(bounds, q * ib + i + 1, index)
                index += ld_i32(counts, q * cg + i0 + i)
        for row in range(pool.rows):
            for q in range(div(i0, chunk), div(i0 + ib - 1, chunk) + 1):
                p = (pool.first + row) * pool.chunks + q
                low, high = (i0 - q * chunk) * size, (i0 + ib - q * chunk) * size
                e, end = ld_i32(pool.pointers, p), ld_i32(pool.pointers, p + 1)
                while e < end and ldc(pool.columns, e) < low:
                    e += 1
                while e < end and ldc(pool.columns, e) < high:
                    slot = ld_i32(slots, ldc(pool.columns, e))
                    j = (slot >> 8 & 255) * ib + (slot & 255) + q * chunk - i0 + 1
                    index = ld_i32(bounds, j)
                    st_i32(bounds, j, index + 1)
                    st_id(block.ids, index, row * size + (slot >> 16))
                    stw(block.weights, index, ldw(pool.w, e))
                    e += 1

    return (
        outline(f"et_csr_count_{name}", count_channels),
        outline(f"et_csr_list_{name}", list_channels),
    )


def _blocks(W):
    """(block_from, count_blocks): how a group's input channels are split into blocks."""
    from ..language.inlining import inline
    from ..language.prim import div, ld_i32
    from .records import Block

    entry, weight = W.nbytes + 2, W.nbytes

    @inline
    def channel_nbytes(counts, i, cg, classes, map_bytes):
        """Bytes of a channel's sums and lists."""
        total = 0
        for q in range(classes):
            total += ld_i32(counts, q * cg + i)
        return map_bytes + total * entry

    @inline
    def block_from(ws, i0, cg, classes, map_bytes, space, limit):
        """The channels from i0 on whose lists and sums fit, at least one and at most `limit`."""
        i, used = i0 + 1, channel_nbytes(ws.counts, i0, cg, classes, map_bytes)
        while i < cg and i - i0 < limit:
            more = channel_nbytes(ws.counts, i, cg, classes, map_bytes)
            if used + more > space:
                break
            used += more
            i += 1
        channels, maps = i - i0, (i - i0) * map_bytes
        nonzeros, weights = div(used - maps, entry), ws.block + maps
        return Block(i0, channels, nonzeros, weights, weights + nonzeros * weight)

    @inline
    def count_blocks(counts, cg, classes, map_bytes, aim, limit):
        """(least number of blocks that fit, of at most `limit` channels; space of a block that
        makes them about equal)."""
        blocks, used, total, most, first, limited = 1, 0, 0, 0, 0, 0
        for i in range(cg):
            more = channel_nbytes(counts, i, cg, classes, map_bytes)
            if i - first == limit:
                limited = 1
            if used > 0 and (used + more > aim or i - first == limit):
                blocks, used, first = blocks + 1, 0, i
            used += more
            total += more
            most = max(most, more)
        equal = div(total + blocks - 1, blocks) + most
        return blocks, aim if limited != 0 else min(aim, equal)

    return block_from, count_blocks


def _tile_gradient(vectors: int, S, W):
    """Inline function that computes a block's channels for one tile and row class."""
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.prim import STORAGES, ld_i32, st_i32
    from ..language.vector import vsplat
    from . import fast_tile as tiles
    from .csr_axpy import row_products
    from .fast_store import classes_store, set_row
    from .pack import panel_fill
    from .records import AS_IT_IS, Pieces, PixelClass, Pool, Walk, Window

    fill, store = panel_fill(S), classes_store(S)
    products, nbytes = row_products(vectors, _listed(S, W), STORAGES["u16"], S), S.nbytes
    fill_tap_table, _ = _tables()

    @inline
    def gradient(ws, nothing, p, dy, dx, group, block, tile, row, ahead, acc, panel):
        kg, size = group.outputs, p.kh * p.kw
        count, ib, plain, piece = tiles.power_vectors(tile), block.channels, p.sh * p.sw == 1, 0
        first, pool = group.input0 + block.first, Pool(block.weights, block.ids, block.nonzeros)
        if plain and acc == 0 and 16 * vectors == PIXELS:
            piece = tiles.whole_pieces(ws.pieces, PIXELS, tile, dx, nbytes)
        if not plain:
            set_row(ws.block, vsplat(ZERO), ib * p.sw * count)
        out = dx.address + tiles.first_pixel(dx, first, tile) * nbytes
        rows = tiles.tap_class(row + p.ph, p.kh, p.sh, p.dh)
        banks, extra = tiles.banks_of(rows.taps, rows.distance, 1)
        for b in range(0, p.sw, p.sw if p.dw == 1 else 1):
            columns, start, stop = tiles.tap_class(b + p.pw, p.kw, p.sw, p.dw), b, b + 1
            if p.dw == 1:
                columns, start, stop = tiles.columns_together(p), 0, p.sw
                while start < stop and tiles.class_taps(start + p.pw, p.kw, p.sw) == 0:
                    start += 1
                while start < stop and tiles.class_taps(stop - 1 + p.pw, p.kw, p.sw) == 0:
                    stop -= 1
            sums, lists = ws.block + start * ib * count * 64, (stop - start) * ib
            window = Window(1, 1, rows, columns, banks, extra)
            if rows.taps * columns.taps == 0:
                continue
            channel = tiles.channel_floats(window, tile)
            part = tiles.chunk_channels(kg, channel, size, TAPS, panel)
            for q in range(start, stop):
                columns_of = tiles.tap_class(q + p.pw, p.kw, p.sw, p.dw)
                fill_tap_table(ws.table, part, window, columns_of, tile, size, p.kw)
            bounds, cursors, stops = ws.bounds + 4 * (row * p.sw + start) * ib, ws.cursors, ws.stops
            for j in range(lists):
                st_i32(cursors, j, ld_i32(bounds, j))
            for o0 in range(0, kg, part):
                oc, last = min(part, kg - o0), o0 + part >= kg
                fill(ws.panel, nothing, dy, group.output0 + o0, oc, tile, window, AS_IT_IS, ahead)
                walk = Walk(cursors, stops, bounds + 4, 4, lists, (o0 + oc) * size)
                plane = dx.height * dx.width * nbytes
                target = Pieces(piece if last else 0, out, plane, ws.pieces)
                fresh, table = 1 if o0 == 0 and plain else 0, ws.table - 4 * o0 * size
                products(sums, fresh, count, ws.panel, table, pool, walk, target)
                cursors, stops = stops, cursors
        if piece == 0:
            of = PixelClass(row, p.sh, p.sw, ib * count * 64)
            store(dx, first, ib, ws.block, count, tile, of, acc)

    return gradient


def _input_gradient(vectors: int, S, W, INDEX):
    """`conv_csr_dx`: dx (+)= transposed convolution of dy.

    Threads split (block of input channels, tile, row class). Scratch of a thread: tables,
    cursors, counts, bounds, panel, then sums and lists of a block.
    """
    from ..language.prim import div, mod
    from . import fast_tile as tiles
    from .records import POINT, Group, PoolRows

    _, find_slots = _tables()
    count_channels, list_channels = _lists(S, W, INDEX)
    block_from, count_blocks = _blocks(_listed(S, W))
    gradient, places = _tile_gradient(vectors, S, W), LAYOUT.places
    ceil_div, nbytes = tiles.ceil_div, W.nbytes

    def run(thread, nthreads, args):
        nothing, ws, p = div(thread, nthreads), places(args.ws, args), tiles.shapes(args)
        dx, dy = tiles.inputs(args.dx, p), tiles.outputs(args.dy, p)
        cg, kg, size, classes = div(p.c, p.g), div(p.k, p.g), p.kh * p.kw, p.sh * p.sw
        chunks = ceil_div(cg, args.chunk)
        map_bytes = ws.map
        limit = div(ws.stops - ws.cursors, 4 * p.sw)
        grid = tiles.tile_grid(p.n, ceil_div(p.h, p.sh), ceil_div(p.wd, p.sw), PIXELS)
        turns = tiles.tiles_of(grid) * p.sh
        find_slots(ws.slots, p)
        base, aim = pool_base(args.w, nbytes, args), SPACE if args.held == 0 else LESS
        panel = PANEL if args.held == 0 else SMALLER
        for i in range(p.g):
            group = Group(i * kg, kg, i * cg)
            pool = PoolRows(
                base, args.columns, args.pointers, group.output0, kg, chunks, args.chunk
            )
            count_channels(ws.counts, ws.slots, pool, cg, classes * cg)
            blocks, space = count_blocks(ws.counts, cg, classes, map_bytes, aim, limit)
            i0, number = 0, 0
            u, end = tiles.units_of(ws.table, grid, p.sh, blocks, thread, nthreads)
            while u < end:
                block = block_from(ws, i0, cg, classes, map_bytes, space, limit)
                if number == div(u, turns):
                    list_channels(ws.bounds, ws.counts, ws.slots, pool, block, cg, classes, size)
                while u < end and number == div(u, turns):
                    row = mod(u, p.sh)
                    tile = tiles.tile_at(div(mod(u, turns), p.sh), grid)
                    ahead = tiles.next_tile(grid, tile, dy, POINT)
                    gradient(
                        ws, nothing, p, dy, dx, group, block, tile, row, ahead, args.acc, panel
                    )
                    u += 1
                i0, number = i0 + block.channels, number + 1

    return run


def _register(name: str, vectors: int, lanes: int) -> None:
    how = {"variant": name, "when": f"lanes >= {lanes} and {_SUITS}", "check": _CHECK}
    how["blocks"] = "W"
    kernel("conv_csr_dx", dx_operands(LAYOUT.nbytes), **how)(
        lambda S, W, INDEX: _input_gradient(vectors, S, W, INDEX)
    )


_register("wide", 8, 16)
_register("narrow", 4, 4)
