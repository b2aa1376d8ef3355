"""The weight gradient of a 3 x 3 convolution by F(4 x 4, 3 x 3).

A thread takes blocks of (output channels, input channels). For each panel of tiles, gradients and
inputs are transformed to points, and 36 outer products are added to the block's sums, which are
transformed to 3 x 3 taps at the end. A sum goes up the tiles, in the order of the panels, by fma,
so bits depend on the shape alone; then one addition to `dwt`, rounded stochastically.
"""

from ..conv.plain import CHECK, WORK, dw_operands
from ..registry import kernel
from .layout import gradient_layout
from .product import WINDOW

GRADIENT = gradient_layout()


def _gradient(S, G, rows: int, vectors: int):
    """`winograd_dw`: dwt += the weight gradient."""
    from ..conv.fast_sum import accumulate_row
    from ..conv.fast_tile import given_shapes, inputs, outputs, prologue_of
    from ..conv.records import AS_IT_IS
    from ..language.inlining import inline
    from ..language.prim import FP32, div, mod, u32
    from ..language.rng import stream
    from ..language.square import transpose16
    from ..language.tile import ADD, SET, Rows
    from ..language.vector import WIDTH, loads, stores
    from . import panels as tiles
    from .layout import POINTS
    from .transforms import of_inputs, of_slopes, to_weights

    read_x, read_dy = tiles.reader(S, of_inputs, 2), tiles.reader(S, of_slopes, 0)
    multiply, add = tiles.tall_products(rows, vectors), accumulate_row(G)
    vld, vst, places = loads(FP32), stores(FP32), GRADIENT.places

    @inline
    def cut(ws, k, c, nthreads):
        """(output channels, input channels) of a block; blocks are smaller if there would be fewer
        than threads."""
        block, lanes = ws.block, ws.lined
        if tiles.ceil_div(k, block) * tiles.ceil_div(c, lanes) < nthreads:
            block = 16
        while lanes > 16 and tiles.ceil_div(k, block) * tiles.ceil_div(c, lanes) < nthreads:
            lanes = tiles.ceil_div(div(lanes, 2), WIDTH) * WIDTH
        return block, lanes

    @inline
    def finish(dwt, sums, lines, turned, output, outputs, first, channels, c, numbers):
        """Add a block's sums, transformed to taps, to dwt."""
        for o in range(outputs):
            for i in range(0, channels, WIDTH):
                source = sums.address + 4 * (o * sums.lanes + i)
                to_weights(source, 6 * sums.plane, sums.plane, lines, 192, 64)
                transpose16(turned, 64, lines, 64)
                run = lines + 64 * WIDTH
                for j in range(WIDTH):
                    vst(run, 9 * j, vld(turned, WIDTH * j), WIDTH)
                index, count = ((output + o) * c + first + i) * 9, min(WIDTH, channels - i)
                add(dwt, index, run, 9 * count, numbers)

    def run(thread, nthreads, args):
        ws, p, numbers = places(args.ws, args), given_shapes(args), stream(args.ctl, u32(args.key))
        x, dy, prologue = inputs(args.x, p), outputs(args.dy, p), prologue_of(args)
        room = tiles.Room(ws.turned, ws.padded, ws.square, div(thread, nthreads))
        block, lanes = cut(ws, args.k, args.c, nthreads)
        sums = tiles.lanes_at(ws.sums, block, lanes)
        values = tiles.lanes_at(ws.values, ws.tiles, lanes)
        slopes = tiles.lanes_at(ws.slopes, ws.tiles, block)
        across = tiles.ceil_div(args.c, lanes)
        units = tiles.ceil_div(args.k, block) * across
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            output, first = div(u, across) * block, mod(u, across) * lanes
            outs, channels = min(block, args.k - output), min(lanes, args.c - first)
            for q in range(tiles.panels_of(ws, args.n)):
                panel = tiles.panel_at(q, ws, args.n)
                read_x(values, room, x, panel, first, channels, args.ph, args.pw, prologue)
                read_dy(slopes, room, dy, panel, output, outs, 0, 0, AS_IT_IS)
                how = SET if q == 0 else ADD
                for point in range(POINTS):
                    left = Rows(slopes.address + point * slopes.plane, 4, 4 * slopes.lanes)
                    right = Rows(values.address + point * values.plane, 64, 4 * values.lanes)
                    result = Rows(sums.address + point * sums.plane, 4 * sums.lanes, 0)
                    count = panel.strips * panel.columns
                    height = tiles.ceil_div(outs, tiles.LOW) * tiles.LOW
                    width = tiles.ceil_div(channels, WIDTH) * WIDTH
                    multiply(left, right, result, height, width, count, how)
            finish(
                args.dwt, sums, ws.lines, ws.turned, output, outs, first, channels, args.c, numbers
            )

    return run


def _register(variant: str, rows: int, vectors: int, when: str = "") -> None:
    how = {"variant": variant, "check": CHECK + WINDOW} | ({"when": when} if when else {})
    kernel("winograd_dw", dw_operands(GRADIENT.nbytes), work=WORK, **how)(
        lambda S, G: _gradient(S, G, rows, vectors)
    )


_register("wide", 8, 2, "lanes >= 16")
_register("plain", 4, 1)
