"""Fast weight gradient: outer products of transposed output gradients with input panels.

A thread owns a block of at most 64 output channels x a chunk of input channels. For each tile of 64
to 256 pixels, dy is transposed to [pixel][output channel], so that a vector holds 16 output
channels; each (channel, tap) row of the input's panel (conv/fast_tile.py) is multiplied by it. A
tile's sum starts from zero and is added to the block's, so the order of accumulation depends on the
shape alone: pixels of a tile, then tiles, in float32; then one addition to `dwt`, rounded
stochastically.

Scratch of a thread: table, float32 block [tap][output channel], panel, dy as rows and transposed.
"""

from ..registry import kernel
from .fast import LEAST, MAP, SINGLE, SLACK, channel_extent, panel_extent, within
from .layout import Layout
from .plain import CHECK, dw_operands

OUTPUTS = 64  # most output channels of a block
TAPS, LEAST_TAPS = 192, 64  # most rows of a block (or one channel's); the same for small maps
PANEL = 40960  # target bytes of panel: the more channels, the less often dy is transposed

_PIXELS = "min({}, (n * oh * ow + 15) // 16 * 16)"
_CHANNEL = channel_extent("pixels")
_ROWS = "4 * (min(max(most, kh * kw), c // g * kh * kw) + 15) // 16 * 16"  # bytes of the table
DENSE = Layout(
    sizes={
        "block": f"min({OUTPUTS}, (k // g + 15) // 16 * 16)",
        # most pixels of any tile; of this convolution's tiles
        "limit": "64 + 64 * (k // g <= 32) + 128 * (k // g <= 16)",
        "pixels": _PIXELS.format("limit"),
        "lined": "min(16, k // g)",
        "most": within(TAPS, LEAST_TAPS, MAP, 512),
        "aim": within(PANEL, LEAST, MAP, 4),
    },
    parts={
        "table": f"{_ROWS} + {SLACK}",
        "sums": f"{_ROWS} * block",
        "panel": f"{panel_extent('(c // g)', _CHANNEL, 'aim')} + {SLACK}",
        "lines": f"4 * (pixels + 16) * lined + {SLACK}",
        # 16 lines are transposed at once; if there are fewer, memory after them is read
        "turned": f"max(4 * pixels * block, 16 * {_ROWS}, 4 * (pixels + 16) * (16 - lined)) + "
        f"{3 * SLACK}",
    },
)


def _block_lines(S):
    """Inline function that transposes the gradients of a block of output channels."""
    from ..language.inlining import inline
    from ..language.square import transpose16
    from . import fast_tile as tiles
    from .pack import panel_fill
    from .records import AS_IT_IS, POINT

    fill = panel_fill(S)

    @inline
    def turn(ws, nothing, dy, first, outputs, tile, pixels, ahead):
        """turned[pixel][o] = dy in channel first + o, o < outputs; rows are as long as a block."""
        row = 4 * tiles.tile_region(POINT, tile)
        for o in range(0, outputs, 16):
            count = min(16, outputs - o)
            fill(ws.lines, nothing, dy, first + o, count, tile, POINT, AS_IT_IS, ahead)
            for p in range(0, pixels, 16):
                target = ws.turned + 4 * (p * ws.block + o)
                transpose16(target, 4 * ws.block, ws.lines + 4 * p, row)

    return turn


def _dense(vectors: int, S, G):
    """`conv_dw`: dwt += sum over images and pixels of dy * prologue(x)."""
    from ..language.fused_activation import ZERO
    from ..language.prim import div, mod, u32
    from ..language.rng import stream
    from ..language.vector import vsplat
    from . import fast_tile as tiles
    from .fast_store import set_row
    from .fast_sum import block_add, outer_products
    from .pack import panel_fill
    from .records import POINT

    fill, turn = panel_fill(S), _block_lines(S)
    outer, add, places = outer_products(vectors), block_add(G), DENSE.places
    ceil_div = tiles.ceil_div

    def run(thread, nthreads, args):
        nothing, numbers, known = div(thread, nthreads), stream(args.ctl, u32(args.key)), -1
        ws, p, prologue = places(args.ws, args), tiles.shapes(args), tiles.prologue_of(args)
        x, dy = tiles.inputs(args.x, p), tiles.outputs(args.dy, p)
        cg, kg, size, block = div(p.c, p.g), div(p.k, p.g), p.kh * p.kw, ws.block
        grid, window = tiles.tile_grid(p.n, p.oh, p.ow, ws.limit), tiles.forward_window(p)
        channel, blocks = tiles.largest_channel(window, grid), ceil_div(kg, block)
        chunks = ceil_div(cg, tiles.chunk_channels(cg, channel, size, ws.most, ws.aim))
        while mod(p.g * blocks * chunks, nthreads) != 0 and chunks < cg:
            chunks += 1
        chunk = ceil_div(cg, chunks)
        chunks, pitch = ceil_div(cg, chunk), ceil_div(chunk * size, 16) * 16
        units, once, packed = p.g * blocks * chunks, tiles.tiles_of(grid) == 1, -1
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            # if there is one tile, its panel is kept for all blocks of outputs
            inner = blocks if once else chunks
            major, minor = div(u, inner), mod(u, inner)
            group = div(u, blocks * chunks)
            place, part = (major, minor) if once else (minor, major)
            c0, o0 = mod(place, chunks) * chunk, mod(part, blocks) * block
            outputs, cc, first = min(block, kg - o0), min(chunk, cg - c0), group * kg + o0
            set_row(ws.sums, vsplat(ZERO), div(pitch * block, 16))
            for t in range(tiles.tiles_of(grid)):
                tile = tiles.tile_at(t, grid)
                pixels = tiles.pixels_of(tile)
                ahead = tiles.next_tile(grid, tile, x, window)
                later = tiles.next_tile(grid, tile, dy, POINT)
                if known != tiles.shape_of(tile):
                    known = tiles.shape_of(tile)
                    tiles.fill_table(ws.table, chunk, window, tile, pitch - chunk * size)
                if not once or packed != place:
                    fill(ws.panel, nothing, x, group * cg + c0, cc, tile, window, prologue, ahead)
                    packed = place
                turn(ws, nothing, dy, first, outputs, tile, pixels, later)
                count = ceil_div(outputs, 16)
                outer(ws.sums, block, count, ws.panel, ws.table, cc * size, ws.turned, pixels)
            index, taps = (first * cg + c0) * size, cc * size
            add(
                args.dwt, index, cg * size, outputs, ws.sums, block, ws.turned, pitch, taps, numbers
            )

    return run


def _register(name: str, vectors: int, lanes: int) -> None:
    when = f"lanes >= {lanes} and not ({SINGLE})"
    kernel("conv_dw", dw_operands(DENSE.nbytes), variant=name, when=when, check=CHECK)(
        lambda S, G: _dense(vectors, S, G)
    )


_register("wide", 4, 16)
_register("narrow", 1, 4)


_DEPTH_PIXELS = 512
DEPTHWISE = Layout(
    sizes={
        "taps": "(kh * kw + 7) // 8 * 8",
        "pixels": _PIXELS.format(_DEPTH_PIXELS),
    },
    parts={
        "table": f"4 * taps + {SLACK}",
        "sums": "64 * taps",
        "line": f"4 * pixels + {SLACK}",
        "panel": f"{_CHANNEL} + {6 * SLACK}",
    },
)


@kernel(
    "conv_dw",
    dw_operands(DEPTHWISE.nbytes),
    variant="depthwise",
    when=f"lanes >= 4 and {SINGLE}",
    check=CHECK + f";{SINGLE}",
)
def conv_dw_depthwise(S, G):
    """dwt += sum over images and pixels of dy * prologue(x), channel by channel.

    Threads split channels. Each tap has 16 float32 partial sums: pixels of a tile modulo 16, and
    tiles in order. They are added pairwise at the end.
    """
    from ..language.fused_activation import ZERO
    from ..language.prim import div, u32
    from ..language.rng import stream
    from ..language.tile import lane_sum
    from ..language.vector import vsplat
    from . import fast_tile as tiles
    from .depthwise3x3 import is_depthwise3x3
    from .depthwise3x3_dw import Desk, depthwise3x3_dw
    from .fast_store import set_row
    from .fast_sum import accumulate_row, dot_products
    from .pack import panel_fill
    from .records import AS_IT_IS, POINT

    fill, places = panel_fill(S), DEPTHWISE.places
    dots, add, run_3x3 = dot_products(), accumulate_row(G), depthwise3x3_dw(S, G)

    def run(thread, nthreads, args):
        nothing, numbers, known = div(thread, nthreads), stream(args.ctl, u32(args.key)), -1
        ws, p, prologue = places(args.ws, args), tiles.given_shapes(args), tiles.prologue_of(args)
        if is_depthwise3x3(p):
            desk, limit = Desk(ws.sums, ws.line, ws.panel), _DEPTH_PIXELS
            run_3x3(thread, nthreads, args.x, args.dy, args.dwt, p, prologue, desk, numbers, limit)
            return
        x, dy = tiles.inputs(args.x, p), tiles.outputs(args.dy, p)
        size, window = p.kh * p.kw, tiles.forward_window(p)
        grid = tiles.tile_grid(p.n, p.oh, p.ow, _DEPTH_PIXELS)
        for ch in range(div(p.c * thread, nthreads), div(p.c * (thread + 1), nthreads)):
            set_row(ws.sums, vsplat(ZERO), ws.taps)
            for t in range(tiles.tiles_of(grid)):
                tile = tiles.tile_at(t, grid)
                ahead = tiles.next_tile(grid, tile, x, window)
                later = tiles.next_tile(grid, tile, dy, POINT)
                if known != tiles.shape_of(tile):
                    known = tiles.shape_of(tile)
                    tiles.fill_table(ws.table, 1, window, tile, ws.taps - size)
                fill(ws.panel, nothing, x, ch, 1, tile, window, prologue, ahead)
                fill(ws.line, nothing, dy, ch, 1, tile, POINT, AS_IT_IS, later)
                pixels = tiles.pixels_of(tile)
                dots(ws.sums, ws.line, ws.panel, ws.table, size, pixels)
            for q in range(size):
                lane_sum(ws.sums + 4 * q, ws.sums + 64 * q)
            add(args.dwt, ch * size, ws.sums, size, numbers)

    return run
