"""Convolution and its input gradient for processors with vectors.

The output is computed in tiles of pixels. For each tile, a chunk of input channels is packed into a
panel (conv/fast_tile.py), so that every tap reads contiguous vectors. Then the panel is multiplied
by one block of output channels at a time, with the sums in registers. A block's weights are copied
to float32; the forward pass reads float32 weights in place.

A sum starts with the bias and adds its products in the plain kernel's order, each by fma. So the
result is bit-identical to the plain kernel's, on every target and for every number of threads.

Scratch of a thread: a table of panel offsets, the weights of one block, the panel, and the sums of
the tile (at most 64 KiB, unless one block needs more).
"""

from ..registry import kernel
from .layout import Layout
from .plain import CHECK, dx_operands, forward_operands

TAPS = 384  # most products of a chunk (or one channel's)
PANEL, SLACK = 20480, 128  # target bytes, and bytes that vectors may reach past a part
SUMS = 16384  # most float32 sums of a tile, unless one block has more
LEAST, LEAST_SUMS = 8192, 4096  # the same for small maps, whose scratch outweighs them
SINGLE = "c == g and k == g"  # depthwise: nothing is summed over channels


def within(most: int, least: int, elements: str, part: int) -> str:
    """Expression for a size: `most`, or for small maps `elements` // `part` but at least `least`,
    so that their scratch is not larger than the maps."""
    return f"min({most}, max({least}, {elements} // {part}))"


def channel_extent(
    pixels: str, rows: str = "oh", columns: str = "ow", banks: str = "min(sh, kh)", step: str = "sh"
) -> str:
    """Expression for the most bytes of a panel's channel, for tiles of at most `pixels` pixels of
    maps of rows x columns.

    Taps one row apart share `banks`, each with (kh - 1) // step more rows than the tile; a row of a
    tile is one line of the map, or the whole map's share of the pixels.
    """
    row = f"max(min({columns}, {pixels}), {pixels} // ({rows}))"
    near = f"{banks} * ({pixels} + (kh - 1) // {step} * {row})"
    return f"(kw * (4 * ((dh == 1) * {near} + (dh > 1) * kh * {pixels}) + 128))"


def panel_extent(channels: str, channel: str, nbytes: int | str) -> str:
    """Expression for the bytes of a panel of `channels` channels, at most `channel` bytes each,
    with a target of `nbytes`."""
    return f"(min(max({nbytes}, {channel}), {channels} * {channel}) + 64)"


# Elements of the maps, or a quarter of the weights if that is more: scratch may grow with both.
_WEIGHTS = "k * (c // g) * kh * kw // 4"
MAP = f"max(n * c * h * wd, {_WEIGHTS})"
_X, _Y = MAP, f"max(n * k * oh * ow, {_WEIGHTS})"


def _layout(
    rows: int,
    inputs: tuple[str, str],
    outputs: tuple[str, str],
    pixels: str,
    channel: str,
    maps: str,
) -> Layout:
    """Sizes and scratch: table and weights, panel, sums of `maps` tiles.

    `inputs`, `outputs`: (channels of a group, elements) of the map that is read and of the one that
    is computed.
    """
    (read, elements), (made, results) = inputs, outputs
    fewer = "(128 + 64 * (kh * kw > 128))"  # fewer pixels if weights are many, or windows large
    sizes = {
        # most pixels of any tile; of this convolution's tiles
        "limit": f"256 - {fewer} * ({maps} == 1) * ({made} > 64)",
        "most": f"min(limit, ({pixels} + 15) // 16 * 16)",
        "aim": within(PANEL, LEAST, elements, 4),
        "products": f"min(max({TAPS}, kh * kw), {read} * kh * kw)",
        "together": f"max(1, {within(SUMS, LEAST_SUMS, results, 4)} // ({rows} * most * {maps}))",
    }
    blocks = f"min(({made} + {rows - 1}) // {rows}, together)"
    parts = {
        "table": "8 * (products + 16)",
        "weights": f"{4 * rows} * (products + 16) + {SLACK}",
        "panel": f"{panel_extent(f'({read})', channel, 'aim')} + {SLACK}",
        "sums": f"{4 * rows} * {maps} * most * {blocks} + {2 * SLACK}",
    }
    return Layout(sizes, parts)


def _forward_layout(rows: int) -> Layout:
    channel = channel_extent("most")
    return _layout(rows, ("c // g", _X), ("k // g", _Y), "n * oh * ow", channel, "1")


def _dx_layout(rows: int) -> Layout:
    height, width = "((h + sh - 1) // sh)", "((wd + sw - 1) // sw)"
    pixels, channel = f"n * {height} * {width}", channel_extent("most", height, width, "1", "1")
    return _layout(rows, ("k // g", _Y), ("c // g", _X), pixels, channel, "sw")


def _forward(block: int, vectors: int, S, W):
    """`conv`: y = conv(prologue(x), w) + bias; threads split (tile, `block` output channels)."""
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.prim import F32, FP32, div, mod
    from ..language.vector import vsplat
    from . import fast_tile as tiles
    from .fast_store import block_products, set_row, tile_store, weight_runs
    from .pack import panel_fill

    fill, store, copy = panel_fill(S), tile_store(S), weight_runs(W)
    products = block_products(block, vectors)
    in_place, ldf, places = W.element == F32, FP32.ld, _forward_layout(block).places

    @inline
    def begin(bias, sums, first, last, most, count):
        """Set the sums of channels first <= o < last to the bias; channels end before `most`."""
        for o in range(first, last):
            value = vsplat(ldf(bias, min(o, most - 1))) if bias != 0 else vsplat(ZERO)
            set_row(sums + (o - first) * count * 64, value, count)

    def run(thread, nthreads, args):
        nothing, known, ws, p = div(thread, nthreads), -1, places(args.ws, args), tiles.shapes(args)
        x, y, prologue = tiles.inputs(args.x, p), tiles.outputs(args.y, p), tiles.prologue_of(args)
        cg, kg, size = div(p.c, p.g), div(p.k, p.g), p.kh * p.kw
        grid, window = tiles.tile_grid(p.n, p.oh, p.ow, ws.limit), tiles.forward_window(p)
        channel = tiles.largest_channel(window, grid)
        chunk = tiles.chunk_channels(cg, channel, size, TAPS, ws.aim)
        blocks = tiles.ceil_div(kg, block)
        u, end = tiles.units_of(ws.table, grid, p.g * blocks, 1, thread, nthreads)
        while u < end:
            spot, b0 = div(u, blocks), mod(u, blocks)
            b1 = min(blocks, b0 + end - u, b0 + ws.together)
            u += b1 - b0
            group, tile = mod(spot, p.g), tiles.tile_at(div(spot, p.g), grid)
            first, last = group * kg + b0 * block, group * kg + b1 * block
            count = tiles.ceil_div(tiles.pixels_of(tile), 16)
            ahead = tiles.next_tile(grid, tile, x, window)
            begin(args.bias, ws.sums, first, last, (group + 1) * kg, count)
            if known != tiles.shape_of(tile):
                known = tiles.shape_of(tile)
                tiles.fill_pairs(ws.table, chunk, window, window.columns, tile, 0, size, p.kw)
            for c0 in range(0, cg, chunk):
                cc = min(chunk, cg - c0)
                fill(ws.panel, nothing, x, group * cg + c0, cc, tile, window, prologue, ahead)
                for o in range(first, last, block):
                    source, stride, weights = args.w + 4 * (o * cg + c0) * size, cg, o * cg + c0
                    rows = min(block, (group + 1) * kg - o)
                    if not in_place or rows < block:
                        source, stride, taps = ws.weights, cc, cc * size
                        copy(
                            source,
                            args.w,
                            p.k * cg * size,
                            weights * size,
                            cg * size,
                            rows,
                            taps,
                            taps,
                        )
                    sums = ws.sums + (o - first) * count * 64
                    step = 4 * stride * size
                    products(sums, count * 64, ws.panel, source, step, ws.table, cc * size, count)
            for o in range(first, min(last, (group + 1) * kg)):
                store(y, o, ws.sums + (o - first) * count * 64, tile, 0)

    return run


def _input_gradient(block: int, vectors: int, S, W):
    """`conv_dx`: dx (+)= transposed convolution of dy.

    Pixels whose row has the same remainder modulo sh (column: sw) are a class: a convolution of dy
    with stride 1 and falling offsets. Classes of columns share panel and weights if taps are one
    apart. Threads split (tile, row class, `block` channels).
    """
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.prim import div, mod
    from ..language.vector import vsplat
    from . import fast_tile as tiles
    from .fast_store import block_products, classes_store, set_row, weight_runs
    from .pack import panel_fill
    from .records import AS_IT_IS, POINT, PixelClass, Window

    fill, store, copy = panel_fill(S), classes_store(S), weight_runs(W)
    products = block_products(block, vectors)
    places, ceil_div = _dx_layout(block).places, tiles.ceil_div

    @inline
    def list_classes(table, p, chunk, window, s0, s1, tile, step):
        """Fill the tables of classes s0 <= b < s1, one after the other."""
        for b in range(s0, s1):
            columns = tiles.tap_class(b + p.pw, p.kw, p.sw, p.dw)
            tiles.fill_pairs(table, chunk, window, columns, tile, 1, step, p.kw)
            table += 8 * chunk * window.rows.taps * columns.taps

    def run(thread, nthreads, args):
        nothing, known, ws, p = div(thread, nthreads), -1, places(args.ws, args), tiles.shapes(args)
        dx, dy = tiles.inputs(args.dx, p), tiles.outputs(args.dy, p)
        cg, kg, size = div(p.c, p.g), div(p.k, p.g), p.kh * p.kw
        grid = tiles.tile_grid(p.n, ceil_div(p.h, p.sh), ceil_div(p.wd, p.sw), ws.limit)
        blocks = ceil_div(cg, block)
        u, end = tiles.units_of(ws.table, grid, p.g * p.sh * blocks, 1, thread, nthreads)
        while u < end:
            spot, b0 = div(u, blocks), mod(u, blocks)
            b1 = min(blocks, b0 + end - u, b0 + ws.together)
            u += b1 - b0
            group, a = mod(spot, p.g), mod(div(spot, p.g), p.sh)
            first, outputs = group * cg + b0 * block, min(b1 * block, cg) - b0 * block
            tile = tiles.tile_at(div(spot, p.g * p.sh), grid)
            count = ceil_div(tiles.pixels_of(tile), 16)
            pixels = PixelClass(a, p.sh, p.sw, (b1 - b0) * block * count * 64)
            ahead = tiles.next_tile(grid, tile, dy, POINT)
            rows = tiles.tap_class(a + p.ph, p.kh, p.sh, p.dh)
            banks, extra = tiles.banks_of(rows.taps, rows.distance, 1)
            set_row(ws.sums, vsplat(ZERO), p.sw * (b1 - b0) * block * count)
            for s0 in range(0, p.sw, p.sw if p.dw == 1 else 1):
                columns, s1 = tiles.columns_together(p), p.sw
                if p.dw > 1:
                    columns, s1 = tiles.tap_class(s0 + p.pw, p.kw, p.sw, p.dw), s0 + 1
                window = Window(1, 1, rows, columns, banks, extra)
                channel = tiles.channel_floats(window, tile)
                chunk = tiles.chunk_channels(kg, channel, size, TAPS, ws.aim)
                if p.sh * p.sw > 1 or known != tiles.shape_of(tile):
                    known = tiles.shape_of(tile)
                    list_classes(ws.table, p, chunk, window, s0, s1, tile, block * size)
                for o0 in range(0, kg if rows.taps * columns.taps > 0 else 0, chunk):
                    oc, o = min(chunk, kg - o0), group * kg + o0
                    fill(ws.panel, nothing, dy, o, oc, tile, window, AS_IT_IS, ahead)
                    for q in range(b0, b1):
                        copied, weights = ws.weights, (o * cg + q * block) * size
                        line, rest = block * size, min(block, cg - q * block) * size
                        copy(copied, args.w, p.k * cg * size, weights, cg * size, oc, line, rest)
                        table, sums = ws.table, ws.sums + (q - b0) * block * count * 64
                        for b in range(s0, s1):
                            part, taps = sums + b * pixels.map_bytes, rows.taps * columns.taps
                            if p.dw == 1:
                                taps = rows.taps * tiles.class_taps(b + p.pw, p.kw, p.sw)
                            step, n = 4 * size, oc * taps
                            products(part, count * 64, ws.panel, copied, step, table, n, count)
                            table += 8 * chunk * taps
            store(dx, first, outputs, ws.sums, count, tile, pixels, args.acc)

    return run


def _depthwise_forward(S, W):
    """Convolve each channel by itself; 3 x 3 taps use depthwise3x3.py."""
    from ..language.inlining import inline
    from . import fast_tile as tiles
    from .depthwise3x3 import depthwise3x3, is_depthwise3x3
    from .depthwise3x3_parts import Place, Room

    others, run_3x3 = inline(_forward(1, 4, S, W)), depthwise3x3(S, W, 1)
    places = _forward_layout(1).places

    def run(thread, nthreads, args):
        p, ws = tiles.given_shapes(args), places(args.ws, args)
        if is_depthwise3x3(p):
            place = Place(args.x, args.w, args.bias, args.y, 0)
            room = Room(ws.table, ws.panel, (ws.sums - ws.panel) >> 2)
            run_3x3(thread, nthreads, place, p, tiles.prologue_of(args), room)
        else:
            others(thread, nthreads, args)

    return run


def _depthwise_back(S, W):
    """Input gradient of each channel by itself; 3 x 3 taps use depthwise3x3.py and
    depthwise3x3_dx.py."""
    from ..language.inlining import inline
    from . import fast_tile as tiles
    from .depthwise3x3 import depthwise3x3, is_depthwise3x3
    from .depthwise3x3_dx import halved, is_halved, needs
    from .depthwise3x3_parts import Place, Room
    from .records import AS_IT_IS

    others = inline(_input_gradient(1, 4, S, W))
    run_3x3, run_halved = depthwise3x3(S, W, -1), halved(S, W)
    places = _dx_layout(1).places

    def run(thread, nthreads, args):
        p, ws = tiles.given_shapes(args), places(args.ws, args)
        place = Place(args.dy, args.w, 0, args.dx, args.acc)
        if is_halved(p) and ws.sums - ws.table >= 4 * needs(p):
            run_halved(thread, nthreads, place, p, Room(ws.table, 0, 0))
        elif is_depthwise3x3(p):
            room = Room(ws.table, ws.panel, (ws.sums - ws.panel) >> 2)
            run_3x3(thread, nthreads, place, p, AS_IT_IS, room)
        else:
            others(thread, nthreads, args)

    return run


def _register(name: str, rows: int, vectors: int, when: str) -> None:
    how = {"variant": name, "when": when, "check": CHECK}

    def forward(S, W):
        return _depthwise_forward(S, W) if rows == 1 else _forward(rows, vectors, S, W)

    def back(S, W):
        return _depthwise_back(S, W) if rows == 1 else _input_gradient(rows, vectors, S, W)

    kernel("conv", forward_operands(_forward_layout(rows).nbytes), **how)(forward)
    kernel("conv_dx", dx_operands(_dx_layout(rows).nbytes), **how)(back)


_register("depthwise", 1, 4, f"lanes >= 4 and {SINGLE}")
_register("wide", 4, 4, "lanes >= 16")
_register("narrow", 4, 1, "lanes >= 4")
