"""A 3 x 3 convolution and its input gradient by F(4 x 4, 3 x 3).

A thread takes blocks of output channels and groups of panels of tiles. For each piece of the input
channels, a block's weights are transformed to points, and for each panel its inputs; 36 small
matrix products follow. In the end, sums are transformed back to pixels. If there is one piece, a
block's weights are transformed once. A sum goes up the channels by fma, so bits depend on the shape
alone: neither on lanes, threads and pieces nor on neighbouring channels. In the input gradient,
weights are flipped and their input and output channels are swapped.

Errors against float64 are at most eight times those of the direct kernels: 1e-6 of the largest
output instead of 2e-7. A pixel that is not finite reaches the outputs that see it, and may reach
others of their tiles: inf - inf is NaN. Padding is 0 to 2, stride and dilation are 1.
"""

from ..conv.plain import CHECK, DX_WORK, WORK, dx_operands, forward_operands
from ..registry import kernel
from .layout import product_layout

WINDOW = ";kh == 3 and kw == 3;sh * sw * dh * dw * g == 1;max(ph, pw) <= 2"
FORWARD = product_layout("c", "k", "oh", "ow")
BACKWARD = product_layout("k", "c", "h", "wd")


def _storing(S):
    """Inline function that transforms a panel's sums to pixels and stores them."""
    from ..language.inlining import inline
    from ..language.prim import div, mod
    from ..language.vector import WIDTH
    from .lines import unturns
    from .transforms import to_outputs

    unturn = unturns(S)

    @inline
    def store(target, sums, room, panel, first, made, bias, acc):
        """Store them in channels from `first` on."""
        end = panel.strip + panel.strips
        columns = min(4 * panel.columns, target.width - 4 * panel.column)
        for o in range(0, made, WIDTH):
            strip, place = panel.strip, sums.address + 4 * o
            while strip < end:
                image, above = div(strip, panel.high), mod(strip, panel.high)
                count = min(panel.high - above, end - strip)
                for r in range(count):
                    # a last tile may overlap the next row's first pixels, which are written later
                    for back in range(panel.columns):
                        t = panel.columns - 1 - back
                        pixel = room.turned + 64 * 4 * (r * columns + t)
                        address = place + 4 * (r * panel.columns + t) * sums.lanes
                        to_outputs(address, 6 * sums.plane, sums.plane, pixel, 64 * columns, 64)
                row, rows = 4 * above, min(4 * count, target.height - 4 * above)
                left = 4 * panel.column
                unturn(
                    target, image, first + o, row, rows, left, columns, room.turned, room.square,
                    bias, acc
                )  # fmt: skip
                place += 4 * count * panel.columns * sums.lanes
                strip += count

    return store


def _cutting():
    """Inline function that chooses how output channels and panels are divided among threads."""
    from ..language.inlining import inline
    from ..language.prim import mod
    from ..language.vector import WIDTH
    from .panels import ceil_div

    @inline
    def waits(units, nthreads):
        """Whether threads would wait for the last of so few units."""
        return units < 4 * nthreads and mod(units, nthreads) != 0

    @inline
    def cut(ws, channels, panels, nthreads):
        """(output channels, panels) of a unit of work."""
        block, group = ws.block, ws.held
        if waits(ceil_div(channels, block) * ceil_div(panels, group), nthreads):
            group = 1
        if waits(ceil_div(channels, block) * ceil_div(panels, group), nthreads):
            block = WIDTH
        return block, group

    return cut


def product(S, weigh, rows: int, vectors: int):
    """Inline function for a convolution and for its input gradient.

    Args:
      weigh: inline function that computes the points of a block's weights for a piece of the input
        channels, whatever their source (winograd/weights.py).
    """
    from ..language.inlining import inline
    from ..language.prim import div, mod
    from ..language.tile import GO_ON, SET, Rows
    from ..language.vector import WIDTH
    from . import panels as tiles
    from .layout import POINTS
    from .transforms import of_inputs

    read, store, cut = tiles.reader(S, of_inputs, 2), _storing(S), _cutting()
    multiply = tiles.tall_products(rows, vectors)

    @inline
    def run(thread, nthreads, ws, n, source, target, w, k, c, ph, pw, prologue, bias, acc):
        room = tiles.Room(ws.turned, ws.padded, ws.square, div(thread, nthreads))
        weights = tiles.lanes_at(ws.weights, ws.piece, ws.block)
        values = tiles.lanes_at(ws.values, ws.tiles, ws.piece)
        sums = tiles.lanes_at(ws.sums, ws.held * ws.tiles, ws.block)
        panels, known = tiles.panels_of(ws, n), -1
        block, group = cut(ws, target.channels, panels, nthreads)
        each = tiles.ceil_div(panels, group)
        units = tiles.ceil_div(target.channels, block) * each
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            first, start = div(u, each) * block, mod(u, each) * group
            made = min(block, tiles.ceil_div(target.channels - first, WIDTH) * WIDTH)
            end = min(start + group, panels)
            for begin in range(0, source.channels, ws.piece):
                channels = min(ws.piece, source.channels - begin)
                if first != known or ws.pieces > 1:
                    known = first
                    weigh(weights, room, w, first, made, begin, channels, k, c)
                for q in range(start, end):
                    panel = tiles.panel_at(q, ws, n)
                    read(values, room, source, panel, begin, channels, ph, pw, prologue)
                    count = panel.strips * panel.columns
                    height = tiles.ceil_div(count, tiles.LOW) * tiles.LOW
                    tiles.clear_rows(values, room.nothing, count, height)
                    held = tiles.lanes_after(sums, (q - start) * ws.tiles)
                    how = SET if begin == 0 else GO_ON
                    for p in range(POINTS):
                        left = Rows(values.address + p * values.plane, 4 * values.lanes, 4)
                        right = Rows(weights.address + p * weights.plane, 64, 4 * weights.lanes)
                        result = Rows(held.address + p * held.plane, 4 * held.lanes, 0)
                        multiply(left, right, result, height, made, channels, how)
            for q in range(start, end):
                held = tiles.lanes_after(sums, (q - start) * ws.tiles)
                store(target, held, room, tiles.panel_at(q, ws, n), first, made, bias, acc)

    return run


def forward(S, weigh, rows: int, vectors: int, layout, weights_of):
    """`winograd`: y = conv(prologue(x), w) + bias; threads split (block of outputs, panel).

    Args:
      layout: of the scratch.
      weights_of: inline function that extracts the `w` of `weigh` from the operands.
    """
    from ..conv.fast_tile import given_shapes, inputs, outputs, prologue_of

    multiply, places = product(S, weigh, rows, vectors), layout.places

    def run(thread, nthreads, args):
        ws, p, w = places(args.ws, args), given_shapes(args), weights_of(args)
        x, y, how = inputs(args.x, p), outputs(args.y, p), prologue_of(args)
        multiply(
            thread,
            nthreads,
            ws,
            args.n,
            x,
            y,
            w,
            args.k,
            args.c,
            args.ph,
            args.pw,
            how,
            args.bias,
            0,
        )

    return run


def backward(S, weigh, rows: int, vectors: int, layout, weights_of):
    """`winograd_dx`: dx (+)= the input gradient; threads split (block of inputs, panel)."""
    from ..conv.fast_tile import given_shapes, inputs, outputs
    from ..conv.records import AS_IT_IS

    multiply, places = product(S, weigh, rows, vectors), layout.places

    def run(thread, nthreads, args):
        ws, p, w = places(args.ws, args), given_shapes(args), weights_of(args)
        dx, dy = inputs(args.dx, p), outputs(args.dy, p)
        ph, pw = 2 - args.ph, 2 - args.pw
        multiply(
            thread, nthreads, ws, args.n, dy, dx, w, args.k, args.c, ph, pw, AS_IT_IS, 0, args.acc
        )

    return run


def _dense(S, W, rows: int, vectors: int):
    from ..language.inlining import inline
    from .weights import of_dense

    return forward(S, of_dense(W), rows, vectors, FORWARD, inline(lambda args: args.w))


def _dense_dx(S, W, rows: int, vectors: int):
    from ..language.inlining import inline
    from .weights import of_dense_flipped

    return backward(S, of_dense_flipped(W), rows, vectors, BACKWARD, inline(lambda args: args.w))


def _register(variant: str, rows: int, vectors: int, when: str = "") -> None:
    how = {"variant": variant, "check": CHECK + WINDOW} | ({"when": when} if when else {})
    kernel("winograd", forward_operands(FORWARD.nbytes), work=WORK, **how)(
        lambda S, W: _dense(S, W, rows, vectors)
    )
    kernel("winograd_dx", dx_operands(BACKWARD.nbytes), work=DX_WORK, **how)(
        lambda S, W: _dense_dx(S, W, rows, vectors)
    )


_register("wide", 8, 2, "lanes >= 16")
_register("plain", 4, 1)
