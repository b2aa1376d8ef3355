"""Fast convolution by a sparse weight: packed panels, nonzeros times vectors of pixels.

Tiles and panels are those of conv/fast_tile.py, at most 128 pixels; the inner loop is that of
conv/csr_fast_columns.py: an output channel's pixels stay in registers while its nonzeros pass. A
sum starts with the bias and takes the nonzeros in the plain kernel's order by fma, so results
equal the plain kernel's bit for bit, on every target and for every number of threads.
"""

from ..registry import kernel
from .csr import CSR_CHECK, forward_operands
from .fast import panel_extent

PIXELS = 128  # most of a tile
BLOCK, BLOCKS = 16, 8  # rows that threads share out; blocks whose sums a tile keeps
TAPS = 384  # most columns of a panel (or one channel's)
PANEL = 36864  # bytes of panel: fewer, longer rows of nonzeros pay for the larger cache
SLACK = 1024  # bytes that vector loads may reach past a part of the scratch
SUITS = "I == 'u8' and n * oh * ow >= 16"
BANKS = "(min(sh, kh) * (1 + (kh - 1) // sh) * (dh == 1) + kh * (dh > 1))"

CHANNEL = f"kw * ({4 * PIXELS} * {BANKS} + 128)"  # most bytes of a channel of the panel

_ROWS = f"{BLOCK} * min({BLOCKS}, (k // g + {BLOCK - 1}) // {BLOCK})"
_SCRATCH = (
    f"4 * max({TAPS}, kh * kw) + 192 + {8 * BLOCK * BLOCKS} + {2 * SLACK} + "
    f"{panel_extent('(c // g)', CHANNEL, PANEL)} + {4 * PIXELS} * {_ROWS}"
)


def _forward(vectors: int, S, W, INDEX):
    """`conv_csr`: y = conv(prologue(x), w) + bias; threads split (tile, 16 output channels).

    Scratch of a thread: tables of offsets in the panel and in y, cursors, panel, sums of the tile
    (64 KiB at most).
    """
    from ..words.prim import FP32, div, ld_i32, mod, st_i32
    from ..words.vector import vsplat
    from . import fast_pack as pack
    from . import fast_tile as tile
    from .csr_fast_columns import row_products

    fill, store, set_row = pack.panel_fill(S), pack.tile_store(S), pack.set_row
    products, ldf, nbytes = row_products(vectors, W, INDEX, S), FP32.ld, S.nbytes

    def run(
        thread, nthreads, x, w, bias, stat, gamma, beta, columns, pointers, y, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, chunk, slots, act, lo, hi,
    ):  # fmt: skip
        nothing, known, piece = div(thread, nthreads), -1, 0
        if kh * kw * sh * sw == 1 and ph + pw == 0 and oh == h and ow == wd:
            h, wd, oh, ow = 1, h * wd, 1, h * wd
        cg, kg, size = div(c, g), div(k, g), kh * kw
        chunks, blocks = tile.ceil_div(cg, chunk), tile.ceil_div(kg, BLOCK)
        grid = tile.tile_grid(n, oh, ow, PIXELS)
        banks, extra = tile.banks_of(kh, dh, sh)
        channel = kw * tile.region_floats(banks * (grid[4] + extra), grid[5] * grid[3])
        part = tile.chunk_channels(min(chunk, cg), channel, size, TAPS, PANEL)
        places = ws + tile.ceil_div(max(TAPS, size), 16) * 64
        cursors = places + 64
        stops = cursors + 4 * BLOCK * BLOCKS
        panel = stops + 4 * BLOCK * BLOCKS
        sums = panel + tile.panel_nbytes(cg, channel, PANEL) + SLACK
        units = g * grid[0] * grid[1] * grid[2] * blocks
        u, end = div(units * thread, nthreads), div(units * (thread + 1), nthreads)
        while u < end:
            spot, b0 = div(u, blocks), mod(u, blocks)
            b1 = min(blocks, b0 + end - u, b0 + BLOCKS)
            u += b1 - b0
            group, outputs = mod(spot, g), min(b1 * BLOCK, kg) - b0 * BLOCK
            first = group * kg + b0 * BLOCK
            image0, images, row0, rows, col0, tw = tile.tile_at(div(spot, g), grid, n, oh, ow)
            pitch, count = images * tw, 1
            while count * 16 < rows * pitch:
                count *= 2
            ahead, span = tile.next_tile(grid, rows, images, tw, sh, sw, h * wd, c * h * wd, wd)
            for o in range(outputs):
                if bias != 0:
                    set_row(sums + o * count * 64, vsplat(ldf(bias, first + o)), count)
                st_i32(cursors, o, ld_i32(pointers, (first + o) * chunks))
            if known != (rows << 40) + (images << 20) + tw:
                known = (rows << 40) + (images << 20) + tw
                tile.fill_table(ws, part, kh, kw, dh, sh, rows + extra, banks, pitch, 0)
                if vectors == 8:
                    piece = tile.whole_pieces(
                        places, 128, rows, images, tw, ow, k * oh * ow, nbytes
                    )
            for q in range(chunks):
                width = min(chunk, cg - q * chunk)
                for c0 in range(0, width, part):
                    cc = min(part, width - c0)
                    fill(
                        panel, nothing, x, n * c * h * wd, image0, group * cg + q * chunk + c0,
                        cc, c, h, wd, images, row0, rows + extra, col0, tw, sh, -ph, dh, banks,
                        sw, -pw, dw, kw, stat, gamma, beta, act, lo, hi, ahead, span,
                    )  # fmt: skip
                    last = q + 1 == chunks and c0 + cc == width
                    products(
                        sums, count, panel, w, columns, ws - 4 * c0 * size, cursors, stops,
                        pointers + 4 * (first * chunks + q + 1), 4 * chunks, outputs,
                        (c0 + cc) * size, slots, 1 if q + c0 + bias == 0 else 0,
                        piece if last else 0,
                        y + (((image0 * k + first) * oh + row0) * ow + col0) * nbytes,
                        oh * ow * nbytes, places,
                    )  # fmt: skip
                    cursors, stops = stops, cursors
            for o in range(outputs if piece == 0 else 0):
                store(
                    y, (image0 * k + first + o) * oh * ow, k * oh * ow,
                    sums + o * count * 64, images, row0, rows, col0, tw, ow, 0,
                )  # fmt: skip

    return run


def _register(name: str, vectors: int, lanes: int) -> None:
    how = {"variant": name, "when": f"lanes >= {lanes} and {SUITS}", "check": CSR_CHECK}
    kernel("conv_csr", forward_operands(_SCRATCH), **how)(
        lambda S, W, INDEX: _forward(vectors, S, W, INDEX)
    )


_register("wide", 8, 16)
_register("narrow", 4, 4)
