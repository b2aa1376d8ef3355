"""Fast gradient of a sparse weight at its nonzeros: dot products of panel rows with dy.

A thread owns a range of input channels, so that each is packed once. It takes the output channels
in blocks whose float32 sums, one a nonzero, fit in scratch while tiles of pixels pass. Where the
pixels of a tile lie in whole vectors of dy they are read there; elsewhere rows of dy are packed
beside the sums. The sum of a tile (16 lanes by fma, then the lanes) is added to the nonzero's, so
the order depends on the shape and on the number of vectors held in registers; then one addition
to `dwt`, rounded stochastically.
"""

from ..registry import kernel
from .csr import CSR_CHECK, dw_operands
from .csr_fast import BANKS, PANEL, SLACK, SUITS, TAPS
from .fast import panel_extent

ROWS = 128  # most output channels of a block
SPACE = 65536  # bytes of a block's rows and sums aimed at
_WIDTH = "(oh * ow if kh * kw * sh * sw == 1 and ph + pw == 0 and oh == h and ow == wd else ow)"

# Maps of lines of 8 that a tile holds whole.
_EIGHTS = f"{_WIDTH} % 8 == 0 and oh * ow % 16 == 0 and oh * ow <= 256"


def _line(pixels: int) -> int:
    """Bytes of a packed row of dy."""
    return 4 * pixels + 64


def _scratch(pixels: int, piece: int) -> str:
    row = f"({0 if piece else _line(pixels)} + 4 * (c // g) * kh * kw)"  # bytes of one row at most
    channel = f"kw * ({4 * pixels} * {BANKS} + 128)"
    return (
        f"4 * max({TAPS}, kh * kw) + 320 + {16 * ROWS} + {3 * SLACK} + "
        f"{panel_extent('(c // g)', channel, PANEL)} + "
        f"max({row}, min({SPACE}, k // g * {row}))"
    )


def _row_finder(INDEX):
    """Function that bounds the nonzeros of rows by a range of columns."""
    from ..jit import inline
    from ..words.prim import ld_i32, st_i32
    from ..words.vector import outline

    ldc = INDEX.ld

    @inline
    def nonzero_at(columns, pointers, at, column):
        """First nonzero of (row, chunk) `at` whose column is `column` or more."""
        low, high = ld_i32(pointers, at), ld_i32(pointers, at + 1)
        while low < high:
            middle = (low + high) >> 1
            if ldc(columns, middle) < column:
                low = middle + 1
            else:
                high = middle
        return low

    def find_rows(firsts, columns, pointers, o, outputs, chunks, q0, column0, q1, column1, line):
        """Rows from o on, from (chunk q0, column0) to before (q1, column1).

        firsts[i]: first nonzero; firsts[ROWS + i]: from a nonzero to its place in the sums, which
        follow each other; firsts[2 * ROWS] rows have sums that fit, `line` bytes beside each row's.
        """
        count = 0
        for i in range(outputs):
            first = nonzero_at(columns, pointers, (o + i) * chunks + q0, column0)
            end = nonzero_at(columns, pointers, (o + i) * chunks + q1, column1)
            if i > 0 and (i + 1) * line + 4 * (count + end - first) > SPACE:
                outputs = i
                break
            st_i32(firsts, i, first)
            st_i32(firsts, ROWS + i, count - first)
            count += end - first
        st_i32(firsts, 2 * ROWS, outputs)
        st_i32(firsts, 2 * ROWS + 1, count)

    return outline(f"et_csr_find_rows_{INDEX.name}", find_rows)


def _weight_gradient(vectors: int, pixels: int, piece: int, S, INDEX, G):
    """`conv_csr_dw`: dwt[e] += sum over images and pixels of dy * prologue(x), stochastic.

    Scratch of a thread: tables of offsets in the panel and in dy; first nonzeros, shifts, cursors
    of rows; panel, rows of dy, sums.

    Args:
      piece: elements of dy read at once; 0 where its rows are packed.
    """
    from ..jit import inline
    from ..words.act import ZERO
    from ..words.prim import div, ld_i32, mod, st_i32, u32
    from ..words.rng import stream
    from ..words.vector import vsplat
    from . import fast_pack as pack
    from . import fast_tile as tile
    from .csr_fast_dots import row_dots
    from .fast_sum import accumulate_row

    fill, set_row, find = pack.panel_fill(S), pack.set_row, _row_finder(INDEX)
    dots, add = row_dots(vectors, S, INDEX, piece), accumulate_row(G)
    line, nbytes = 0 if piece else _line(pixels), S.nbytes

    @inline
    def add_sums(dwt, firsts, sums, outputs, count, numbers):
        """dwt += the sums of a block of rows."""
        for i in range(outputs):
            first, at, after = ld_i32(firsts, i), ld_i32(firsts, ROWS + i), count
            if i + 1 < outputs:
                after = ld_i32(firsts, i + 1) + ld_i32(firsts, ROWS + i + 1)
            add(dwt, first, sums + 4 * (first + at), after - first - at, numbers)

    def run(
        thread, nthreads, x, stat, gamma, beta, dy, columns, pointers, dwt, ctl, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, chunk, slots, act, lo, hi, key,
    ):  # fmt: skip
        nothing, numbers, known = div(thread, nthreads), stream(ctl, u32(key)), -1
        if kh * kw * sh * sw == 1 and ph + pw == 0 and oh == h and ow == wd:
            h, wd, oh, ow = 1, h * wd, 1, h * wd
        cg, kg, size = div(c, g), div(k, g), kh * kw
        chunks, grid = tile.ceil_div(cg, chunk), tile.tile_grid(n, oh, ow, pixels)
        banks, extra = tile.banks_of(kh, dh, sh)
        channel = kw * tile.region_floats(banks * (grid[4] + extra), grid[5] * grid[3])
        part = tile.chunk_channels(min(chunk, cg), channel, size, TAPS, PANEL)
        places = ws + tile.ceil_div(max(TAPS, size), 16) * 64
        firsts = places + 128
        cursors = firsts + 8 * ROWS + 64
        stops = cursors + 4 * ROWS
        panel = stops + 4 * ROWS
        lines = panel + tile.panel_nbytes(cg, channel, PANEL) + SLACK
        i0, last, o = div(c * thread, nthreads), div(c * (thread + 1), nthreads), 0
        while i0 < last:
            group = div(i0, cg)
            i1 = min(last, (group + 1) * cg)
            q0, q1 = div(i0 - group * cg, chunk), div(i1 - 1 - group * cg, chunk)
            low, high = mod(i0 - group * cg, cg) - q0 * chunk, i1 - group * cg - q1 * chunk
            o = max(o, group * kg)
            find(
                firsts, columns, pointers, o, min(ROWS, (group + 1) * kg - o), chunks,
                q0, low * size, q1, high * size, line,
            )  # fmt: skip
            outputs, count = ld_i32(firsts, 2 * ROWS), ld_i32(firsts, 2 * ROWS + 1)
            sums = lines + outputs * line + SLACK
            set_row(sums, vsplat(ZERO), tile.ceil_div(count, 16))
            for t in range(grid[0] * grid[1] * grid[2]):
                image0, images, row0, rows, col0, tw = tile.tile_at(t, grid, n, oh, ow)
                pitch = images * tw
                ahead, span = tile.next_tile(grid, rows, images, tw, sh, sw, h * wd, c * h * wd, wd)
                later, extent = tile.next_tile(
                    grid, rows, images, tw, 1, 1, oh * ow, k * oh * ow, ow
                )
                if known != (rows << 40) + (images << 20) + tw:
                    known = (rows << 40) + (images << 20) + tw
                    tile.fill_table(ws, part, kh, kw, dh, sh, rows + extra, banks, pitch, 0)
                    if piece > 0:
                        tile.find_pieces(
                            places, max(piece, 1), rows, images, tw, ow, k * oh * ow, nbytes
                        )
                source, stride = lines, 4 * tile.region_floats(rows, pitch)
                if piece == 0:
                    fill(
                        lines, nothing, dy, n * k * oh * ow, image0, o, outputs, k, oh, ow,
                        images, row0, rows, col0, tw, 1, 0, 1, 1, 1, 0, 1, 1,
                        0, 0, 0, 0, ZERO, ZERO, later, extent,
                    )  # fmt: skip
                else:
                    source = dy + (((image0 * k + o) * oh + row0) * ow + col0) * nbytes
                    stride = oh * ow * nbytes
                for i in range(outputs):
                    st_i32(cursors, i, ld_i32(firsts, i))
                for q in range(q0, q1 + 1):
                    begin = low if q == q0 else 0
                    width = high if q == q1 else chunk
                    for c0 in range(begin, width, part):
                        cc = min(part, width - c0)
                        fill(
                            panel, nothing, x, n * c * h * wd, image0,
                            group * cg + q * chunk + c0, cc, c, h, wd, images, row0, rows + extra,
                            col0, tw, sh, -ph, dh, banks, sw, -pw, dw, kw,
                            stat, gamma, beta, act, lo, hi, ahead, span,
                        )  # fmt: skip
                        dots(
                            sums, source, stride, places, rows * pitch,
                            panel, columns, ws - 4 * c0 * size, cursors, stops,
                            pointers + 4 * (o * chunks + q + 1), 4 * chunks, outputs,
                            (c0 + cc) * size, firsts + 4 * ROWS,
                        )  # fmt: skip
                        cursors, stops = stops, cursors
            add_sums(dwt, firsts, sums, outputs, count, numbers)
            o += outputs
            if o == (group + 1) * kg:
                i0 = i1

    return run


def _register(name: str, vectors: int, pixels: int, piece: int, when: str) -> None:
    how = {"variant": name, "when": f"{when} and {SUITS}", "check": CSR_CHECK}
    kernel("conv_csr_dw", dw_operands(_scratch(pixels, piece)), **how)(
        lambda S, INDEX, G: _weight_gradient(vectors, pixels, piece, S, INDEX, G)
    )


_register("direct", 16, 256, 16, f"lanes >= 16 and {_WIDTH} % 16 == 0")
_register("direct8", 16, 256, 8, f"lanes >= 16 and {_EIGHTS}")
_register("wide", 8, 128, 0, "lanes >= 16")
_register("narrow", 4, 128, 0, "lanes >= 4")
