"""Fast gradient of a sparse weight at its nonzeros: dot products of panel rows with dy.

A thread owns a range of input channels, so that each is packed once. It takes the output channels
in blocks whose float32 sums, one per nonzero, stay in scratch over all tiles of pixels. If the
pixels of a tile are whole vectors of dy, they are read in place; otherwise rows of dy are packed
beside the sums. The sum of a tile (16 lanes by fma, then the lanes) is added to the nonzero's, so
the order depends on the shape and on the number of vectors held in registers; then one addition to
`dwt`, rounded stochastically.
"""

from ..registry import kernel
from .csr import CSR_CHECK, HELD, aimed, dw_operands, lower_bounds, pool_base
from .csr_fast import AIM, PANEL, SLACK, SMALLER, SUITS, TABLE, TAPS
from .fast import channel_extent, panel_extent
from .layout import Layout

ROWS = 128  # most output channels of a block
SPACE, LESS = 65536, 32768  # target bytes of a block's rows and sums
_WIDTH = "(oh * ow if kh * kw * sh * sw == 1 and ph + pw == 0 and oh == h and ow == wd else ow)"

# Maps that fit in a tile, with a line length that is a multiple of 8.
_EIGHTS = f"{_WIDTH} % 8 == 0 and oh * ow % 16 == 0 and oh * ow <= 256"


def _line(pixels: int, piece: int) -> int:
    """Bytes of a packed row of dy."""
    return 0 if piece else 4 * pixels + 64


def _layout(pixels: int, piece: int) -> Layout:
    channel = channel_extent(f"{pixels}")
    parts = {
        "table": TABLE,
        "places": "128",
        "firsts": f"{8 * ROWS + 128}",
        "cursors": f"{4 * ROWS}",
        "stops": f"{4 * ROWS}",
        "panel": f"{panel_extent('(c // g)', channel, AIM)} + {SLACK}",
        # and the sums
        "lines": f"max(row, min({aimed(SPACE, LESS)}, k // g * row, every)) + {2 * SLACK}",
    }
    line = _line(pixels, piece)
    sizes = {
        "row": f"{line} + 4 * min((c // g) * kh * kw, {HELD})",
        "every": f"k // g * {line} + 4 * {HELD}",
    }
    return Layout(sizes, parts)


def _row_finder(INDEX):
    """Function that finds the nonzeros of rows in a range of columns."""
    from ..language.calls import outline
    from ..language.inlining import inline
    from ..language.prim import ld_i32, st_i32
    from .records import Columns

    lower_bound = lower_bounds(INDEX)

    @inline
    def nonzero_at(columns, pointers, group, column):
        """First nonzero of (row, chunk) `group` whose column is `column` or more."""
        return lower_bound(columns, ld_i32(pointers, group), ld_i32(pointers, group + 1), column)

    def find_rows(firsts, columns, pointers, o, outputs, chunks, taken: Columns, line, space):
        """Find the nonzeros of rows from o on in a range of columns.

        firsts[i]: first nonzero of row i; firsts[ROWS + i]: add to a nonzero for its index in the
        sums, which are contiguous; firsts[2 * ROWS]: number of rows whose sums fit in `space`, with
        `line` more bytes for each row; firsts[2 * ROWS + 1]: number of their sums.
        """
        count, q0, q1 = 0, taken.chunk0, taken.chunk1
        for i in range(outputs):
            group = (o + i) * chunks
            first = nonzero_at(columns, pointers, group + q0, taken.column0)
            end = nonzero_at(columns, pointers, group + q1, taken.column1)
            if i > 0 and (i + 1) * line + 4 * (count + end - first) > space:
                outputs = i
                break
            st_i32(firsts, i, first)
            st_i32(firsts, ROWS + i, count - first)
            count += end - first
        st_i32(firsts, 2 * ROWS, outputs)
        st_i32(firsts, 2 * ROWS + 1, count)

    return outline(f"et_csr_find_rows_{INDEX.name}", find_rows)


def _sum_adder(G):
    """Inline function that adds the sums of a block of rows to `dwt`."""
    from ..language.inlining import inline
    from ..language.prim import ld_i32
    from .fast_sum import accumulate_row

    add = accumulate_row(G)

    @inline
    def add_sums(dwt, firsts, sums, outputs, count, numbers):
        for i in range(outputs):
            first, start, after = ld_i32(firsts, i), ld_i32(firsts, ROWS + i), count
            if i + 1 < outputs:
                after = ld_i32(firsts, i + 1) + ld_i32(firsts, ROWS + i + 1)
            add(dwt, first, sums + 4 * (first + start), after - first - start, numbers)

    return add_sums


def _dy_lines(S, pixels: int, piece: int):
    """Inline function that returns a tile's lines of dy, packing them if necessary."""
    from ..language.inlining import inline
    from . import fast_tile as tiles
    from .pack import panel_fill
    from .records import AS_IT_IS, POINT, Pieces

    fill, nbytes = panel_fill(S), S.nbytes

    @inline
    def lines(ws, nothing, dy, o, outputs, grid, tile):
        if piece > 0:
            first, area = tiles.first_pixel(dy, o, tile), dy.height * dy.width
            return Pieces(piece, dy.address + first * nbytes, area * nbytes, ws.places)
        later = tiles.next_tile(grid, tile, dy, POINT)
        fill(ws.lines, nothing, dy, o, outputs, tile, POINT, AS_IT_IS, later)
        return Pieces(0, ws.lines, 4 * tiles.tile_region(POINT, tile), ws.places)

    return lines


def _weight_gradient(vectors: int, pixels: int, piece: int, S, INDEX, G):
    """`conv_csr_dw`: dwt[e] += sum over images and pixels of dy * prologue(x), rounded
    stochastically.

    Scratch of a thread: tables of offsets in the panel and in dy; first nonzeros, shifts, cursors
    of rows; panel, rows of dy, sums.

    Args:
      piece: elements of dy read at once; 0 if its rows are packed.
    """
    from ..language.fused_activation import ZERO
    from ..language.prim import div, ld_i32, mod, st_i32, u32
    from ..language.rng import stream
    from ..language.vector import vsplat
    from . import fast_tile as tiles
    from .csr_dot import row_dots
    from .fast_store import set_row
    from .pack import panel_fill
    from .records import Columns, Walk

    fill, find = panel_fill(S), _row_finder(INDEX)
    dots, add_sums = row_dots(vectors, S, INDEX, piece), _sum_adder(G)
    lines, places = _dy_lines(S, pixels, piece), _layout(pixels, piece).places
    row_bytes, nbytes, wide = _line(pixels, piece), S.nbytes, G.nbytes

    def run(thread, nthreads, args):
        nothing, numbers, known = div(thread, nthreads), stream(args.ctl, u32(args.key)), -1
        ws, p, prologue = places(args.ws, args), tiles.shapes(args), tiles.prologue_of(args)
        x, dy, chunk = tiles.inputs(args.x, p), tiles.outputs(args.dy, p), args.chunk
        cg, kg, size = div(p.c, p.g), div(p.k, p.g), p.kh * p.kw
        chunks, grid = tiles.ceil_div(cg, chunk), tiles.tile_grid(p.n, p.oh, p.ow, pixels)
        window = tiles.forward_window(p)
        channel = tiles.largest_channel(window, grid)
        panel, space = (PANEL, SPACE) if args.held == 0 else (SMALLER, LESS)
        part = tiles.chunk_channels(min(chunk, cg), channel, size, TAPS, panel)
        target = pool_base(args.dwt, wide, args)
        i0, last, o = div(p.c * thread, nthreads), div(p.c * (thread + 1), nthreads), 0
        while i0 < last:
            group = div(i0, cg)
            i1, below = min(last, (group + 1) * cg), group * cg
            q0, q1 = div(i0 - below, chunk), div(i1 - 1 - below, chunk)
            low, high = mod(i0 - below, cg) - q0 * chunk, i1 - below - q1 * chunk
            o, taken = max(o, group * kg), Columns(q0, low * size, q1, high * size)
            most = min(ROWS, (group + 1) * kg - o)
            find(ws.firsts, args.columns, args.pointers, o, most, chunks, taken, row_bytes, space)
            outputs, count = ld_i32(ws.firsts, 2 * ROWS), ld_i32(ws.firsts, 2 * ROWS + 1)
            sums = ws.lines + outputs * row_bytes + SLACK
            set_row(sums, vsplat(ZERO), tiles.ceil_div(count, 16))
            for t in range(tiles.tiles_of(grid)):
                tile = tiles.tile_at(t, grid)
                ahead = tiles.next_tile(grid, tile, x, window)
                if known != tiles.shape_of(tile):
                    known = tiles.shape_of(tile)
                    tiles.fill_table(ws.table, part, window, tile, 0)
                    if piece > 0:
                        tiles.find_pieces(ws.places, max(piece, 1), tile, dy, nbytes)
                source, flat = lines(ws, nothing, dy, o, outputs, grid, tile), tiles.pixels_of(tile)
                for i in range(outputs):
                    st_i32(ws.cursors, i, ld_i32(ws.firsts, i))
                cursors, stops = ws.cursors, ws.stops
                for q in range(q0, q1 + 1):
                    begin, width = low if q == q0 else 0, high if q == q1 else chunk
                    ends = args.pointers + 4 * (o * chunks + q + 1)
                    for c0 in range(begin, width, part):
                        cc, ch = min(part, width - c0), below + q * chunk + c0
                        fill(ws.panel, nothing, x, ch, cc, tile, window, prologue, ahead)
                        walk = Walk(cursors, stops, ends, 4 * chunks, outputs, (c0 + cc) * size)
                        table, shifts = ws.table - 4 * c0 * size, ws.firsts + 4 * ROWS
                        dots(sums, shifts, source, flat, ws.panel, table, args.columns, walk)
                        cursors, stops = stops, cursors
            add_sums(target, ws.firsts, sums, outputs, count, numbers)
            o += outputs
            if o == (group + 1) * kg:
                i0 = i1

    return run


def _register(name: str, vectors: int, pixels: int, piece: int, when: str) -> None:
    how = {"variant": name, "when": f"{when} and {SUITS}", "check": CSR_CHECK}
    kernel("conv_csr_dw", dw_operands(_layout(pixels, piece).nbytes), **how)(
        lambda S, INDEX, G: _weight_gradient(vectors, pixels, piece, S, INDEX, G)
    )


_register("direct", 16, 256, 16, f"lanes >= 16 and {_WIDTH} % 16 == 0")
_register("direct8", 16, 256, 8, f"lanes >= 16 and {_EIGHTS}")
_register("wide", 8, 128, 0, "lanes >= 16")
_register("narrow", 4, 128, 0, "lanes >= 4")
