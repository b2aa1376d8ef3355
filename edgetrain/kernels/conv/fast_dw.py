"""Fast weight gradient: outer products of transposed output gradients with input panels.

A thread owns a block of at most 64 output channels x a chunk of input channels. Tile after tile
of 64 to 256 pixels, dy is transposed to [pixel][output channel], so that a vector holds 16 output
channels, and each (channel, tap) row of the input's panel (conv/fast_tile.py) multiplies it. The
sum of a tile starts from zero and is added to the block's, so the order of accumulation depends
on the shape alone: pixels of a tile, then tiles, in float32; then one addition to `dwt`, rounded
stochastically.

Scratch of a thread: table, float32 block [tap][output channel], panel, dy as rows and transposed.
"""

from ..registry import kernel
from .fast import LEAST, SINGLE, SLACK, panel_extent, within_extent
from .plain import CHECK, dw_operands

OUTPUTS = 64  # most output channels of a block
PIXELS = 4096  # most pixels of a tile times output channels of a block, 64 pixels at least
TAPS, LEAST_TAPS = 192, 64  # most rows of a block (or one channel's); of small maps
PANEL = 40960  # bytes of panel aimed at: the more channels, the less often dy is transposed

_BLOCK = f"min({OUTPUTS}, (k // g + 15) // 16 * 16)"
_PIXELS = "(64 + 64 * (k // g <= 32) + 128 * (k // g <= 16))"
_X = "(n * c * h * wd)"
_TAPS = within_extent(TAPS, LEAST_TAPS, _X, 512)
_ROWS = f"(min(max({_TAPS}, kh * kw), c // g * kh * kw) + 15) // 16 * 16"
_BANKS = "(min(sh, kh) * (1 + (kh - 1) // sh) * (dh == 1) + kh * (dh > 1))"
_CHANNEL = f"kw * (4 * {_PIXELS} * {_BANKS} + 128)"
_PANEL = panel_extent("(c // g)", _CHANNEL, within_extent(PANEL, LEAST, _X, 4))
_SCRATCH = (
    f"4 * {_ROWS} + 4 * {_ROWS} * {_BLOCK} + {_PANEL} + "
    f"max({4 * PIXELS}, 64 * {_ROWS}) + 64 * ({_PIXELS} + 16) + {6 * SLACK}"
)


def _dense(vectors: int, S, G):
    """`conv_dw`: dwt += sum over images and pixels of dy * prologue(x)."""
    from ..words.act import ZERO
    from ..words.prim import div, mod, u32
    from ..words.rng import stream
    from ..words.vector import vsplat
    from ..words.vector_gemm import transpose16
    from . import fast_pack as pack
    from . import fast_tile as tile
    from .fast_sum import block_add, outer_products

    fill, set_row = pack.panel_fill(S), pack.set_row
    outer, add = outer_products(vectors), block_add(G)

    def run(
        thread, nthreads, x, stat, gamma, beta, dy, dwt, ctl, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, act, lo, hi, key,
    ):  # fmt: skip
        nothing, numbers, known = div(thread, nthreads), stream(ctl, u32(key)), -1
        if kh * kw * sh * sw == 1 and ph + pw == 0 and oh == h and ow == wd:
            h, wd, oh, ow = 1, h * wd, 1, h * wd
        cg, kg, size = div(c, g), div(k, g), kh * kw
        block = min(OUTPUTS, tile.ceil_div(kg, 16) * 16)
        blocks, limit = tile.ceil_div(kg, block), div(PIXELS, block) if block <= 32 else 64
        grid = tile.tile_grid(n, oh, ow, limit)
        banks, extra = tile.banks_of(kh, dh, sh)
        channel = kw * tile.region_floats(banks * (grid[4] + extra), grid[5] * grid[3])
        aim = tile.within(PANEL, LEAST, n * c * h * wd, 4)
        most = tile.within(TAPS, LEAST_TAPS, n * c * h * wd, 512)
        chunks = tile.ceil_div(cg, tile.chunk_channels(cg, channel, size, most, aim))
        while mod(g * blocks * chunks, nthreads) != 0 and chunks < cg:
            chunks += 1
        chunk = tile.ceil_div(cg, chunks)
        chunks = tile.ceil_div(cg, chunk)
        rows_of_block = tile.ceil_div(chunk * size, 16) * 16
        sums = ws + rows_of_block * 4 + SLACK
        panel = sums + rows_of_block * block * 4
        lines = panel + tile.panel_nbytes(cg, channel, aim) + SLACK
        turned = lines + 64 * (limit + 16) + SLACK
        units = g * blocks * chunks
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            c0, part = mod(u, chunks) * chunk, div(u, chunks)
            group, o0 = div(part, blocks), mod(part, blocks) * block
            outputs, cc = min(block, kg - o0), min(chunk, cg - c0)
            first, taps = group * kg + o0, cc * size
            set_row(sums, vsplat(ZERO), div(rows_of_block * block, 16))
            for t in range(grid[0] * grid[1] * grid[2]):
                image0, images, row0, rows, col0, tw = tile.tile_at(t, grid, n, oh, ow)
                pitch = images * tw
                ahead, span = tile.next_tile(grid, rows, images, tw, sh, sw, h * wd, c * h * wd, wd)
                later, extent = tile.next_tile(
                    grid, rows, images, tw, 1, 1, oh * ow, k * oh * ow, ow
                )
                pixels, line_bytes = rows * pitch, 4 * tile.region_floats(rows, pitch)
                if known != (rows << 40) + (images << 20) + tw:
                    known = (rows << 40) + (images << 20) + tw
                    tile.fill_table(
                        ws, chunk, kh, kw, dh, sh, rows + extra, banks, pitch,
                        rows_of_block - chunk * size,
                    )  # fmt: skip
                fill(
                    panel, nothing, x, n * c * h * wd, image0, group * cg + c0, cc, c, h, wd,
                    images, row0, rows + extra, col0, tw, sh, -ph, dh, banks, sw, -pw, dw, kw,
                    stat, gamma, beta, act, lo, hi, ahead, span,
                )  # fmt: skip
                for o in range(0, outputs, 16):
                    fill(
                        lines, nothing, dy, n * k * oh * ow, image0, first + o,
                        min(16, outputs - o), k, oh, ow, images, row0, rows, col0, tw,
                        1, 0, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, ZERO, ZERO, later, extent,
                    )  # fmt: skip
                    for p in range(0, pixels, 16):
                        transpose16(
                            turned + 4 * (p * block + o), 4 * block, lines + 4 * p, line_bytes
                        )
                outer(sums, block, tile.ceil_div(outputs, 16), panel, ws, taps, turned, pixels)
            add(
                dwt, (first * cg + c0) * size, cg * size, outputs, sums, block,
                turned, rows_of_block, taps, numbers,
            )  # fmt: skip

    return run


def _register(name: str, vectors: int, lanes: int) -> None:
    when = f"lanes >= {lanes} and not ({SINGLE})"
    kernel("conv_dw", dw_operands(_SCRATCH), variant=name, when=when, check=CHECK)(
        lambda S, G: _dense(vectors, S, G)
    )


_register("wide", 4, 16)
_register("narrow", 1, 4)


_DEPTH_PIXELS = 512
_DEPTH_SCRATCH = (
    f"68 * ((kh * kw + 7) // 8 * 8) + kw * ({4 * _DEPTH_PIXELS} * {_BANKS} + 128) + "
    f"{4 * _DEPTH_PIXELS} + {8 * SLACK}"
)


@kernel(
    "conv_dw",
    dw_operands(_DEPTH_SCRATCH),
    variant="depthwise",
    when=f"lanes >= 4 and {SINGLE}",
    check=CHECK + f";{SINGLE}",
)
def conv_dw_depthwise(S, G):
    """dwt += sum over images and pixels of dy * prologue(x), channel by channel.

    Threads split channels. A tap has 16 partial sums in float32 (pixels of a tile modulo 16,
    tiles in order), added pairwise at the end.
    """
    from ..words.act import ZERO
    from ..words.prim import div, u32
    from ..words.rng import stream
    from ..words.vector import vsplat
    from ..words.vector_gemm import lane_sum
    from . import fast_pack as pack
    from . import fast_tile as tile
    from .fast_sum import accumulate_row, dot_products

    fill, set_row = pack.panel_fill(S), pack.set_row
    dots, add = dot_products(), accumulate_row(G)

    def run(
        thread, nthreads, x, stat, gamma, beta, dy, dwt, ctl, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, act, lo, hi, key,
    ):  # fmt: skip
        nothing, numbers, known = div(thread, nthreads), stream(ctl, u32(key)), -1
        size = kh * kw
        grid = tile.tile_grid(n, oh, ow, _DEPTH_PIXELS)
        banks, extra = tile.banks_of(kh, dh, sh)
        taps = tile.ceil_div(size, 8) * 8
        sums = ws + tile.ceil_div(taps, 16) * 64 + SLACK
        line = sums + 64 * taps
        panel = line + 4 * _DEPTH_PIXELS + SLACK
        for ch in range(div(c * thread, nthreads), div(c * (thread + 1), nthreads)):
            set_row(sums, vsplat(ZERO), taps)
            for t in range(grid[0] * grid[1] * grid[2]):
                image0, images, row0, rows, col0, tw = tile.tile_at(t, grid, n, oh, ow)
                pitch = images * tw
                ahead, span = tile.next_tile(grid, rows, images, tw, sh, sw, h * wd, c * h * wd, wd)
                later, extent = tile.next_tile(
                    grid, rows, images, tw, 1, 1, oh * ow, k * oh * ow, ow
                )
                if known != (rows << 40) + (images << 20) + tw:
                    known = (rows << 40) + (images << 20) + tw
                    tile.fill_table(ws, 1, kh, kw, dh, sh, rows + extra, banks, pitch, taps - size)
                fill(
                    panel, nothing, x, n * c * h * wd, image0, ch, 1, c, h, wd,
                    images, row0, rows + extra, col0, tw, sh, -ph, dh, banks, sw, -pw, dw, kw,
                    stat, gamma, beta, act, lo, hi, ahead, span,
                )  # fmt: skip
                fill(
                    line, nothing, dy, n * k * oh * ow, image0, ch, 1, k, oh, ow,
                    images, row0, rows, col0, tw, 1, 0, 1, 1, 1, 0, 1, 1,
                    0, 0, 0, 0, ZERO, ZERO, later, extent,
                )  # fmt: skip
                dots(sums, line, panel, ws, size, rows * pitch)
            for q in range(size):
                lane_sum(sums + 4 * q, sums + 64 * q)
            add(dwt, ch * size, sums, size, numbers)

    return run
