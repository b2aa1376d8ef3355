"""Fast dense convolution and input gradient: packed panels, sums in registers.

Tiles and panels are those of conv/fast_tile.py; weights of a few output channels at a time are
copied to float32 (float32 weights of the forward pass are read where they lie). A sum starts with
the bias and takes its products in the plain kernel's order by fma, so results equal the plain
kernel's bit for bit, on every target and for every number of threads.

Scratch of a thread: table of offsets, weights of one block, panel, sums of the tile (64 KiB where
there are that many).
"""

from ..registry import kernel
from .plain import CHECK, dx_operands, forward_operands

TAPS = 384  # most products of a chunk (or one channel's)
PANEL, SLACK = 20480, 128  # as in conv/fast_tile.py, which only kernels import
SUMS = 16384  # most float32 sums of a tile, where a block's are not more
LEAST, LEAST_SUMS = 8192, 4096  # the same of small maps, whose scratch is the larger part
SINGLE = "c == g and k == g"  # depthwise: nothing is summed over channels


def within_extent(most: int, least: int, elements: str, part: int) -> str:
    """Expression of `fast_tile.within`."""
    return f"min({most}, max({least}, {elements} // {part}))"


def panel_extent(channels: str, channel: str, nbytes: int | str) -> str:
    """Expression of `fast_tile.panel_nbytes`, for at most `channel` bytes of a channel."""
    return f"(min(max({nbytes}, {channel}), {channels} * {channel}) + 64)"


_X, _Y = "(n * c * h * wd)", "(n * k * oh * ow)"  # elements of the maps


def _scratch(
    rows: int, inputs: tuple[str, str], outputs: tuple[str, str], pixels: str, banks: str, maps: str
) -> str:
    """Expression of the scratch bytes: table and weights, panel, sums of `maps` tiles.

    `inputs`, `outputs`: (channels of a group, elements) of the map that is read, that is made.
    """
    (read, elements), (made, results) = inputs, outputs
    limit = f"(256 - 128 * ({maps} == 1) * ({made} > 64))"
    most = f"min({limit}, ({pixels} + 15) // 16 * 16)"
    products = f"{4 * (2 + rows)} * (min(max({TAPS}, kh * kw), {read} * kh * kw) + 16)"
    panel = panel_extent(
        f"({read})", f"kw * (4 * {most} * {banks} + 128)", within_extent(PANEL, LEAST, elements, 4)
    )
    sums = within_extent(SUMS, LEAST_SUMS, results, 4)
    blocks = f"min(({made} + {rows - 1}) // {rows}, max(1, {sums} // ({rows} * {limit} * {maps})))"
    return f"{products} + {panel} + {4 * SLACK} + {4 * rows} * {maps} * {most} * {blocks}"


def _forward_scratch(rows: int) -> str:
    banks = "(min(sh, kh) * (1 + (kh - 1) // sh) * (dh == 1) + kh * (dh > 1))"
    return _scratch(rows, ("c // g", _X), ("k // g", _Y), "n * oh * ow", banks, "1")


def _dx_scratch(rows: int) -> str:
    pixels = "n * ((h + sh - 1) // sh) * ((wd + sw - 1) // sw)"
    return _scratch(rows, ("k // g", _Y), ("c // g", _X), pixels, "kh", "sw")


def _forward(block: int, vectors: int, S, W):
    """`conv`: y = conv(prologue(x), w) + bias; threads split (tile, `block` output channels)."""
    from ..words.act import ZERO
    from ..words.prim import FP32, div, mod
    from ..words.vector import vsplat
    from . import fast_pack as pack
    from . import fast_tile as tile

    fill, store, copy = pack.panel_fill(S), pack.tile_store(S), pack.weight_runs(W)
    products, set_row = pack.block_products(block, vectors), pack.set_row
    in_place, ldf = W.name == "f32", FP32.ld

    def run(
        thread, nthreads, x, w, bias, stat, gamma, beta, y, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, act, lo, hi,
    ):  # fmt: skip
        nothing = div(thread, nthreads)
        if kh * kw * sh * sw == 1 and ph + pw == 0 and oh == h and ow == wd:
            h, wd, oh, ow = 1, h * wd, 1, h * wd
        cg, kg, size = div(c, g), div(k, g), kh * kw
        limit, known = 256 if kg <= 64 else 128, -1
        blocks = tile.ceil_div(kg, block)
        most = max(div(tile.within(SUMS, LEAST_SUMS, n * k * oh * ow, 4), limit * block), 1)
        aim = tile.within(PANEL, LEAST, n * c * h * wd, 4)
        grid = tile.tile_grid(n, oh, ow, limit)
        banks, extra = tile.banks_of(kh, dh, sh)
        channel = kw * tile.region_floats(banks * (grid[4] + extra), grid[5] * grid[3])
        chunk = tile.chunk_channels(cg, channel, size, TAPS, aim)
        copied, panel, sums = tile.scratch_parts(
            ws, min(max(TAPS, size), cg * size), block, cg, channel, aim
        )
        units = g * grid[0] * grid[1] * grid[2] * blocks
        u, end = div(units * thread, nthreads), div(units * (thread + 1), nthreads)
        while u < end:
            spot, b0 = div(u, blocks), mod(u, blocks)
            b1 = min(blocks, b0 + end - u, b0 + most)
            u += b1 - b0
            group = mod(spot, g)
            image0, images, row0, rows, col0, tw = tile.tile_at(div(spot, g), grid, n, oh, ow)
            pitch, count = images * tw, tile.ceil_div(rows * images * tw, 16)
            ahead, span = tile.next_tile(grid, rows, images, tw, sh, sw, h * wd, c * h * wd, wd)
            for o in range(b0 * block, b1 * block):
                level = group * kg + min(o, kg - 1)
                set_row(
                    sums + (o - b0 * block) * count * 64,
                    vsplat(ldf(bias, level)) if bias != 0 else vsplat(ZERO),
                    count,
                )
            if known != (rows << 40) + (images << 20) + tw:
                known = (rows << 40) + (images << 20) + tw
                tile.fill_pairs(
                    ws, chunk, kh, kw, 0, dh, sh, rows + extra, banks, pitch,
                    size, 0, 1, 0, 1, kw,
                )  # fmt: skip
            for c0 in range(0, cg, chunk):
                cc = min(chunk, cg - c0)
                fill(
                    panel, nothing, x, n * c * h * wd, image0, group * cg + c0, cc, c, h, wd,
                    images, row0, rows + extra, col0, tw, sh, -ph, dh, banks, sw, -pw, dw, kw,
                    stat, gamma, beta, act, lo, hi, ahead, span,
                )  # fmt: skip
                for b in range(b0, b1):
                    source, stride = w + 4 * ((group * kg + b * block) * cg + c0) * size, cg
                    if not in_place or (b + 1) * block > kg:
                        copy(
                            copied, w, k * cg * size, (group * kg + b * block) * cg * size
                            + c0 * size, cg * size, min(block, kg - b * block), cc * size,
                            cc * size,
                        )  # fmt: skip
                        source, stride = copied, cc
                    products(
                        sums + (b - b0) * block * count * 64, count * 64, panel, source,
                        4 * stride * size, ws, cc * size, count,
                    )  # fmt: skip
            for o in range(b0 * block, min(b1 * block, kg)):
                store(
                    y, (image0 * k + group * kg + o) * oh * ow, k * oh * ow,
                    sums + (o - b0 * block) * count * 64, images, row0, rows, col0, tw, ow, 0,
                )  # fmt: skip

    return run


def _input_gradient(block: int, vectors: int, S, W):
    """`conv_dx`: dx (+)= transposed convolution of dy.

    Pixels whose row has the same remainder modulo sh (column: sw) are a class: a convolution of
    dy with stride 1 and falling offsets. Threads split (tile, row class, `block` channels).
    """
    from ..words.act import ZERO
    from ..words.prim import div, mod
    from ..words.vector import vsplat
    from . import fast_pack as pack
    from . import fast_tile as tile

    fill, store, copy = pack.panel_fill(S), pack.classes_store(S), pack.weight_runs(W)
    products, set_row = pack.block_products(block, vectors), pack.set_row

    def run(
        thread, nthreads, dy, w, dx, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, acc,
    ):  # fmt: skip
        nothing = div(thread, nthreads)
        if kh * kw * sh * sw == 1 and ph + pw == 0 and oh == h and ow == wd:
            h, wd, oh, ow = 1, h * wd, 1, h * wd
        cg, kg, size = div(c, g), div(k, g), kh * kw
        limit, known = 256 if cg <= 64 or sw > 1 else 128, -1
        blocks = tile.ceil_div(cg, block)
        most = max(div(tile.within(SUMS, LEAST_SUMS, n * c * h * wd, 4), limit * block * sw), 1)
        aim = tile.within(PANEL, LEAST, n * k * oh * ow, 4)
        grid = tile.tile_grid(n, tile.ceil_div(h, sh), tile.ceil_div(wd, sw), limit)
        largest = kw * tile.region_floats(kh * grid[4], grid[5] * grid[3])
        copied, panel, sums = tile.scratch_parts(
            ws, min(max(TAPS, size), kg * size), block, kg, largest, aim
        )
        units = g * grid[0] * grid[1] * grid[2] * sh * blocks
        u, end = div(units * thread, nthreads), div(units * (thread + 1), nthreads)
        while u < end:
            spot, b0 = div(u, blocks), mod(u, blocks)
            b1 = min(blocks, b0 + end - u, b0 + most)
            u += b1 - b0
            group, a = mod(spot, g), mod(div(spot, g), sh)
            image0, images, row0, rows, col0, tw = tile.tile_at(
                div(spot, g * sh), grid, n, tile.ceil_div(h, sh), tile.ceil_div(wd, sw)
            )
            pitch, count = images * tw, tile.ceil_div(rows * images * tw, 16)
            ahead, span = tile.next_tile(grid, rows, images, tw, 1, 1, oh * ow, k * oh * ow, ow)
            map_bytes = (b1 - b0) * block * count * 64
            r0, rstep, taps_h, ylow, ydist = tile.tap_class(a + ph, kh, sh, dh)
            extra, banks = (taps_h - 1, 1) if ydist == 1 else (0, taps_h)
            for b in range(sw):
                part = sums + b * map_bytes
                set_row(part, vsplat(ZERO), (b1 - b0) * block * count)
                s0, sstep, taps_w, xlow, xdist = tile.tap_class(b + pw, kw, sw, dw)
                taps = taps_h * taps_w
                channel = taps_w * tile.region_floats(banks * (rows + extra), pitch)
                chunk = tile.chunk_channels(kg, channel, size, TAPS, aim)
                if sh * sw > 1 or known != (rows << 40) + (images << 20) + tw:
                    known = (rows << 40) + (images << 20) + tw
                    tile.fill_pairs(
                        ws, chunk, taps_h, taps_w, 1, ydist, 1, rows + extra, banks, pitch,
                        block * size, r0, rstep, s0, sstep, kw,
                    )  # fmt: skip
                for o0 in range(0, kg if taps > 0 else 0, chunk):
                    oc = min(chunk, kg - o0)
                    fill(
                        panel, nothing, dy, n * k * oh * ow, image0, group * kg + o0, oc, k,
                        oh, ow, images, row0, rows + extra, col0, tw, 1, ylow, ydist, banks,
                        1, xlow, xdist, taps_w, 0, 0, 0, 0, ZERO, ZERO, ahead, span,
                    )  # fmt: skip
                    for q in range(b0, b1):
                        copy(
                            copied, w, k * cg * size,
                            ((group * kg + o0) * cg + q * block) * size, cg * size, oc,
                            block * size, min(block, cg - q * block) * size,
                        )  # fmt: skip
                        products(
                            part + (q - b0) * block * count * 64, count * 64, panel, copied,
                            4 * size, ws, oc * taps, count,
                        )  # fmt: skip
            store(
                dx, (image0 * c + group * cg + b0 * block) * h * wd,
                min(b1 * block, cg) - b0 * block, c * h * wd, sums, count, map_bytes, a, sh, sw,
                images, row0, rows, col0, tw, h, wd, acc,
            )  # fmt: skip

    return run


def _register(name: str, rows: int, vectors: int, when: str) -> None:
    how = {"variant": name, "when": when, "check": CHECK}
    kernel("conv", forward_operands(_forward_scratch(rows)), **how)(
        lambda S, W: _forward(rows, vectors, S, W)
    )
    kernel("conv_dx", dx_operands(_dx_scratch(rows)), **how)(
        lambda S, W: _input_gradient(rows, vectors, S, W)
    )


_register("depthwise", 1, 4, f"lanes >= 4 and {SINGLE}")
_register("wide", 4, 4, "lanes >= 16")
_register("narrow", 4, 1, "lanes >= 4")
