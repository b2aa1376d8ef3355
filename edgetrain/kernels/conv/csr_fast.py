"""Fast convolution with a sparse weight: packed panels, nonzeros times vectors of pixels.

Tiles and panels are those of conv/fast_tile.py; the inner loop is that of conv/csr_axpy.py: an
output channel's pixels, or a part of them, stay in registers while the loop goes through its
nonzeros. Tiles of 256 pixels made a step of WRN-28-2 1 to 2 % faster and its workspaces 30 to 45 %
larger. A sum starts with the bias and takes the nonzeros in the plain kernel's order by fma, so
results equal the plain kernel's bit for bit, on every target and for every number of threads.
"""

from ..registry import kernel
from .csr import CSR_CHECK, aimed, forward_operands, pool_base
from .fast import channel_extent, panel_extent
from .layout import Layout

PIXELS = 128  # most pixels of a tile: what eight registers hold
BLOCK, BLOCKS, FEWER = 16, 8, 4  # rows of a unit of work; blocks whose sums a tile keeps
TAPS = 384  # most columns of a panel (or one channel's)
# Bytes of panel: fewer, longer rows of nonzeros make up for the larger cache footprint.
PANEL, SMALLER = 36864, 12288
AIM = aimed(PANEL, SMALLER)
SLACK = 1024  # bytes that vector loads may reach past a part of the scratch
SUITS = "I == 'u8' and n * oh * ow >= 16"
TABLE = f"4 * max({TAPS}, kh * kw) + 64"

_KEPT = f"min({aimed(BLOCKS, FEWER)}, (k // g + {BLOCK - 1}) // {BLOCK})"  # blocks


def channel_pixels(maps: str) -> str:
    """Expression for the most pixels of a channel's sums: whole vectors, a power of two of them;
    `maps`: pixels of all maps."""
    return f"min({PIXELS}, ({maps} + 15) // 16 * 32)"


LAYOUT = Layout(
    sizes={"most": channel_pixels("n * oh * ow")},
    parts={
        "table": TABLE,
        "places": f"{PIXELS // 2}",
        "cursors": f"{4 * BLOCK * BLOCKS}",
        "stops": f"{4 * BLOCK * BLOCKS}",
        "panel": f"{panel_extent('(c // g)', channel_extent(f'{PIXELS}'), AIM)} + {SLACK}",
        "sums": f"{4 * BLOCK} * most * {_KEPT} + {SLACK}",
    },
)


def _forward(vectors: int, S, W, INDEX):
    """`conv_csr`: y = conv(prologue(x), w) + bias; threads split (tile, 16 output channels).

    Scratch of a thread: tables of offsets in the panel and in y, cursors, panel, sums of the tile.
    """
    from ..language.inlining import inline
    from ..language.prim import FP32, div, ld_i32, mod, st_i32
    from ..language.vector import vsplat
    from . import fast_tile as tiles
    from .csr_axpy import row_products
    from .fast_store import set_row, tile_store
    from .pack import panel_fill
    from .records import Pieces, Pool, Walk

    fill, store = panel_fill(S), tile_store(S)
    products, ldf, nbytes = row_products(vectors, W, INDEX, S), FP32.ld, S.nbytes
    places, ceil_div, nbytes_w = LAYOUT.places, tiles.ceil_div, W.nbytes

    @inline
    def begin(args, ws, first, outputs, chunks, count):
        """Set sums to the bias, if any, and each row's cursor to its first nonzero."""
        for o in range(outputs):
            if args.bias != 0:
                set_row(ws.sums + o * count * 64, vsplat(ldf(args.bias, first + o)), count)
            st_i32(ws.cursors, o, ld_i32(args.pointers, (first + o) * chunks))

    def run(thread, nthreads, args):
        nothing, known, piece = div(thread, nthreads), -1, 0
        ws, p, prologue = places(args.ws, args), tiles.shapes(args), tiles.prologue_of(args)
        x, y, end_slot = tiles.inputs(args.x, p), tiles.outputs(args.y, p), args.slots
        panel, most = PANEL if args.held == 0 else SMALLER, BLOCKS if args.held == 0 else FEWER
        if args.room > 0:
            end_slot = ld_i32(args.pointers, 0) + args.room
        pool = Pool(pool_base(args.w, nbytes_w, args), args.columns, end_slot)
        cg, kg, size, chunk = div(p.c, p.g), div(p.k, p.g), p.kh * p.kw, args.chunk
        chunks, blocks, area = ceil_div(cg, chunk), ceil_div(kg, BLOCK), p.oh * p.ow
        grid, window = tiles.tile_grid(p.n, p.oh, p.ow, PIXELS), tiles.forward_window(p)
        channel = tiles.largest_channel(window, grid)
        part = tiles.chunk_channels(min(chunk, cg), channel, size, TAPS, panel)
        u, end = tiles.units_of(ws.table, grid, p.g * blocks, 1, thread, nthreads)
        while u < end:
            spot, b0 = div(u, blocks), mod(u, blocks)
            b1 = min(blocks, b0 + end - u, b0 + most)
            u += b1 - b0
            group, outputs = mod(spot, p.g), min(b1 * BLOCK, kg) - b0 * BLOCK
            first, tile = group * kg + b0 * BLOCK, tiles.tile_at(div(spot, p.g), grid)
            count = tiles.power_vectors(tile)
            ahead = tiles.next_tile(grid, tile, x, window)
            begin(args, ws, first, outputs, chunks, count)
            if known != tiles.shape_of(tile):
                known = tiles.shape_of(tile)
                tiles.fill_table(ws.table, part, window, tile, 0)
                if 16 * vectors == PIXELS:
                    piece = tiles.whole_pieces(ws.places, PIXELS, tile, y, nbytes)
            pixel0 = tiles.first_pixel(y, first, tile)
            cursors, stops = ws.cursors, ws.stops
            for q in range(chunks):
                width = min(chunk, cg - q * chunk)
                ends = args.pointers + 4 * (first * chunks + q + 1)
                for c0 in range(0, width, part):
                    cc, ch = min(part, width - c0), group * cg + q * chunk + c0
                    fill(ws.panel, nothing, x, ch, cc, tile, window, prologue, ahead)
                    last = q + 1 == chunks and c0 + cc == width
                    walk = Walk(cursors, stops, ends, 4 * chunks, outputs, (c0 + cc) * size)
                    target = Pieces(
                        piece if last else 0, args.y + pixel0 * nbytes, area * nbytes, ws.places
                    )
                    fresh, table = 1 if q + c0 + args.bias == 0 else 0, ws.table - 4 * c0 * size
                    products(ws.sums, fresh, count, ws.panel, table, pool, walk, target)
                    cursors, stops = stops, cursors
            for o in range(outputs if piece == 0 else 0):
                store(y, first + o, ws.sums + o * count * 64, tile, 0)

    return run


def _register(name: str, vectors: int, lanes: int) -> None:
    how = {"variant": name, "when": f"lanes >= {lanes} and {SUITS}", "check": CSR_CHECK}
    kernel("conv_csr", forward_operands(LAYOUT.nbytes), **how)(
        lambda S, W, INDEX: _forward(vectors, S, W, INDEX)
    )


_register("wide", 8, 16)
_register("narrow", 4, 4)
