"""Fast input gradient of a sparse convolution: the nonzeros listed by input channel.

The pool holds them by output channel. A thread takes as many input channels as their lists and
sums fit in scratch, lists their nonzeros once, and passes all of its tiles over them with the
inner loop of the forward pass. Pixels whose row has the same remainder modulo sh (column: sw) are
a class with lists of its own: a convolution of dy with stride 1 and falling offsets. A sum takes
output channels, then kernel elements, in the plain kernel's order by fma, so results equal the
plain kernel's bit for bit.
"""

from ..registry import kernel
from .csr import CSR_CHECK, dx_operands
from .csr_fast import PANEL, PIXELS, SLACK, TAPS
from .fast import panel_extent

SPACE = 77824  # bytes of lists and sums aimed at: all of 64 x 64 channels, 3 x 3, density 0.3
MAP = 4 * PIXELS  # bytes of the sums of one channel and class

_CHECK = f"{CSR_CHECK};max(sh, sw) <= 2;k // g * kh * kw <= 65535"
_SUITS = "I == 'u8' and max(sh, sw) <= 2 and k // g * kh * kw <= 65535 and n * h * wd >= 16"
_CHANNEL = f"({MAP} * sw + 6 * (k // g) * kh * kw)"  # bytes of one channel at most
_PANEL_CHANNEL = f"kw * ({MAP} * kh + 128)"
_SCRATCH = (
    f"4 * max({TAPS}, kh * kw) + 2112 + 12 * sh * sw * (c // g) + {3 * SLACK} + "
    f"{panel_extent('(k // g)', _PANEL_CHANNEL, PANEL)} + "
    f"max({_CHANNEL}, min({SPACE}, c // g * {_CHANNEL}))"
)


def _tables():
    """(fill_tap_table, find_slots)."""
    from ..words.prim import div, mod, st_i32
    from ..words.vector import outline
    from . import fast_tile as tile

    def fill_tap_table(
        table, channels, taps_h, taps_w, ydist, bank_rows, banks, pitch, size,
        r0, rstep, s0, sstep, kw,
    ):  # fmt: skip
        """Byte offset in the panel of (channel, tap), for the taps of a class."""
        region = 4 * tile.region_floats(banks * bank_rows, pitch)
        step = 4 * pitch * (1 if ydist == 1 else bank_rows)
        for i in range(channels):
            for r in range(taps_h):
                for s in range(taps_w):
                    offset = (i * taps_w + taps_w - 1 - s) * region + (taps_h - 1 - r) * step
                    st_i32(table, i * size + (r0 + r * rstep) * kw + s0 + s * sstep, offset)

    def find_slots(slots, cg, size, kw, sh, sw, ph, pw, dh, dw):
        """slots[column] = class * cg + channel, then slots[256 + column] = tap."""
        for column in range(256):
            tap = mod(column, size)
            a = mod(div(tap, kw) * dh + (sh - 1) * ph, sh)
            b = mod(mod(tap, kw) * dw + (sw - 1) * pw, sw)
            st_i32(slots, column, (a * sw + b) * cg + div(column, size))
            st_i32(slots, 256 + column, tap)

    return outline("et_csr_tap_table", fill_tap_table), outline("et_csr_slots", find_slots)


def _lists(W, INDEX):
    """(count_channels, list_channels)."""
    from ..words.prim import STORAGES, div, ld_i32, mod, st_i32
    from ..words.vector import outline

    ldc, st_id = INDEX.ld, STORAGES["u16"].st
    ldw, stw = W.ld, W.st
    name = f"{W.name}_{INDEX.name}"

    def count_channels(counts, slots, columns, pointers, first, kg, chunks, chunk, classes_cg):
        """counts[class * cg + channel] of the nonzeros of `kg` rows from `first` on."""
        for i in range(classes_cg):
            st_i32(counts, i, 0)
        for at in range(first * chunks, (first + kg) * chunks):
            shift = counts + 4 * chunk * mod(at, chunks)
            for e in range(ld_i32(pointers, at), ld_i32(pointers, at + 1)):
                i = ld_i32(slots, ldc(columns, e))
                st_i32(shift, i, ld_i32(shift, i) + 1)

    def list_channels(
        bounds, ids, weights, counts, slots, w, columns, pointers,
        first, kg, chunks, chunk, i0, ib, cg, classes, size,
    ):  # fmt: skip
        """Lists of channels i0 <= i < i0 + ib: (class, channel) has bounds[j] <= e < bounds[j + 1].

        j = class * ib + i - i0; an id is output channel * taps + tap.
        """
        at = 0
        st_i32(bounds, 0, 0)
        for q in range(classes):
            for i in range(ib):
                st_i32(bounds, q * ib + i + 1, at)
                at += ld_i32(counts, q * cg + i0 + i)
        for row in range(kg):
            for q in range(div(i0, chunk), div(i0 + ib - 1, chunk) + 1):
                p = (first + row) * chunks + q
                low, high = (i0 - q * chunk) * size, (i0 + ib - q * chunk) * size
                for e in range(ld_i32(pointers, p), ld_i32(pointers, p + 1)):
                    column = ldc(columns, e)
                    if low <= column and column < high:
                        slot = ld_i32(slots, column)
                        j = slot + q * chunk - i0 + 1
                        if classes > 1:
                            j -= div(slot, cg) * (cg - ib)
                        at = ld_i32(bounds, j)
                        st_i32(bounds, j, at + 1)
                        st_id(ids, at, row * size + ld_i32(slots, 256 + column))
                        stw(weights, at, ldw(w, e))

    return (
        outline(f"et_csr_count_{name}", count_channels),
        outline(f"et_csr_list_{name}", list_channels),
    )


def _blocks(W):
    """(channels_that_fit, count_blocks): how a group's input channels are worked on."""
    from ..jit import inline
    from ..words.prim import div, ld_i32

    entry = W.nbytes + 2

    @inline
    def channel_nbytes(counts, i, cg, classes, map_bytes):
        """Bytes of a channel's sums and lists."""
        total = 0
        for q in range(classes):
            total += ld_i32(counts, q * cg + i)
        return map_bytes + total * entry

    @inline
    def channels_that_fit(counts, i0, cg, classes, map_bytes, space):
        """(channels from i0 on whose lists and sums fit, their nonzeros); at least one channel."""
        i, used = i0 + 1, channel_nbytes(counts, i0, cg, classes, map_bytes)
        while i < cg:
            more = channel_nbytes(counts, i, cg, classes, map_bytes)
            if used + more > space:
                break
            used += more
            i += 1
        return i - i0, div(used - (i - i0) * map_bytes, entry)

    @inline
    def count_blocks(counts, cg, classes, map_bytes):
        """(least blocks of channels that fit, space of a block that makes them about equal)."""
        blocks, used, total, most = 1, 0, 0, 0
        for i in range(cg):
            more = channel_nbytes(counts, i, cg, classes, map_bytes)
            if used > 0 and used + more > SPACE:
                blocks, used = blocks + 1, 0
            used += more
            total += more
            most = max(most, more)
        return blocks, min(SPACE, div(total + blocks - 1, blocks) + most)

    return channels_that_fit, count_blocks


def _input_gradient(vectors: int, S, W, INDEX):
    """`conv_csr_dx`: dx (+)= transposed convolution of dy.

    Threads split (block of input channels, tile, row class). Scratch of a thread: tables,
    cursors, counts, bounds, panel, then sums and lists of a block.
    """
    from ..jit import inline
    from ..words.act import ZERO
    from ..words.prim import STORAGES, div, ld_i32, mod, st_i32
    from ..words.vector import vsplat
    from . import fast_pack as pack
    from . import fast_tile as tile
    from .csr_fast_columns import row_products

    fill, store, set_row = pack.panel_fill(S), pack.classes_store(S), pack.set_row
    products, nbytes, weight = row_products(vectors, W, STORAGES["u16"], S), S.nbytes, W.nbytes
    fill_tap_table, find_slots = _tables()
    count_channels, list_channels = _lists(W, INDEX)
    channels_that_fit, count_blocks = _blocks(W)

    @inline
    def parts(ws, size, cg, kg, classes, largest):
        """Addresses of the scratch's parts behind the tap table."""
        pieces = ws + tile.ceil_div(max(TAPS, size), 16) * 64
        places = pieces + 64
        counts = places + 2048
        bounds = counts + tile.ceil_div(classes * cg, 16) * 64
        cursors = bounds + tile.ceil_div(classes * cg + 1, 16) * 64
        stops = cursors + tile.ceil_div(cg, 16) * 64
        panel = stops + tile.ceil_div(cg, 16) * 64
        sums = panel + tile.panel_nbytes(kg, largest, PANEL) + SLACK
        return pieces, places, counts, bounds, cursors, stops, panel, sums

    @inline
    def start(cursors, bounds, rows):
        """Every list from its first nonzero."""
        for j in range(rows):
            st_i32(cursors, j, ld_i32(bounds, j))

    def run(
        thread, nthreads, dy, w, columns, pointers, dx, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, chunk, slots, acc,
    ):  # fmt: skip
        if kh * kw * sh * sw == 1 and ph + pw == 0 and oh == h and ow == wd:
            h, wd, oh, ow = 1, h * wd, 1, h * wd
        cg, kg, size, classes, area = div(c, g), div(k, g), kh * kw, sh * sw, oh * ow
        lists, plane = classes * cg, h * wd
        nothing, chunks = div(thread, nthreads), tile.ceil_div(cg, chunk)
        tall, wide = tile.ceil_div(h, sh), tile.ceil_div(wd, sw)
        grid = tile.tile_grid(n, tall, wide, PIXELS)
        tiles = grid[0] * grid[1] * grid[2]
        most = kw * tile.region_floats(kh * grid[4], grid[5] * grid[3])
        pieces, places, counts, bounds, cursors, stops, panel, sums = parts(
            ws, size, cg, kg, classes, most
        )
        find_slots(places, cg, size, kw, sh, sw, ph, pw, dh, dw)
        for group in range(g):
            count_channels(counts, places, columns, pointers, group * kg, kg, chunks, chunk, lists)
            blocks, space = count_blocks(counts, cg, classes, MAP * sw)
            units, i0, block = blocks * tiles * sh, 0, 0
            u, end = div(units * thread, nthreads), div(units * (thread + 1), nthreads)
            while u < end:
                ib, total = channels_that_fit(counts, i0, cg, classes, MAP * sw, space)
                if block == div(u, tiles * sh):
                    weights = sums + ib * MAP * sw
                    ids = weights + total * weight
                    list_channels(
                        bounds, ids, weights, counts, places, w, columns, pointers,
                        group * kg, kg, chunks, chunk, i0, ib, cg, classes, size,
                    )  # fmt: skip
                while u < end and block == div(u, tiles * sh):
                    a, t = mod(u, sh), mod(div(u, sh), tiles)
                    image0, images, row0, rows, col0, tw = tile.tile_at(t, grid, n, tall, wide)
                    u, pitch, count, at = u + 1, images * tw, 1, image0 * c + group * cg + i0
                    while count * 16 < rows * pitch:
                        count *= 2
                    ahead, span = tile.next_tile(grid, rows, images, tw, 1, 1, area, k * area, ow)
                    r0, rstep, taps_h, ylow, ydist = tile.tap_class(a + ph, kh, sh, dh)
                    extra, banks = (taps_h - 1, 1) if ydist == 1 else (0, taps_h)
                    piece = 0
                    if sh * sw == 1 and acc == 0 and vectors == 8:
                        piece = tile.whole_pieces(
                            pieces, 128, rows, images, tw, wd, c * plane, nbytes
                        )
                    if sh * sw > 1:
                        set_row(sums, vsplat(ZERO), ib * sw * count)
                    for b in range(sw):
                        s0, sstep, taps_w, xlow, xdist = tile.tap_class(b + pw, kw, sw, dw)
                        if taps_h * taps_w == 0:
                            continue
                        channel = taps_w * tile.region_floats(banks * (rows + extra), pitch)
                        part = tile.chunk_channels(kg, channel, size, TAPS, PANEL)
                        fill_tap_table(
                            ws, part, taps_h, taps_w, ydist, rows + extra, banks, pitch, size,
                            r0, rstep, s0, sstep, kw,
                        )  # fmt: skip
                        list0 = bounds + 4 * (a * sw + b) * ib
                        start(cursors, list0, ib)
                        for o0 in range(0, kg, part):
                            oc = min(part, kg - o0)
                            fill(
                                panel, nothing, dy, n * k * area, image0, group * kg + o0, oc, k,
                                oh, ow, images, row0, rows + extra, col0, tw, 1, ylow, ydist, banks,
                                1, xlow, xdist, taps_w, 0, 0, 0, 0, ZERO, ZERO, ahead, span,
                            )  # fmt: skip
                            products(
                                sums + b * ib * count * 64, count, panel, weights, ids,
                                ws - 4 * o0 * size, cursors, stops, list0 + 4, 4, ib,
                                (o0 + oc) * size, total, 1 if o0 == 0 and sh * sw == 1 else 0,
                                piece if o0 + oc == kg else 0,
                                dx + ((at * h + row0) * wd + col0) * nbytes, plane * nbytes, pieces,
                            )  # fmt: skip
                            cursors, stops = stops, cursors
                    if piece == 0:
                        store(
                            dx, at * plane, ib, c * plane, sums, count, ib * count * 64, a, sh, sw,
                            images, row0, rows, col0, tw, h, wd, acc,
                        )  # fmt: skip
                i0, block = i0 + ib, block + 1

    return run


def _register(name: str, vectors: int, lanes: int) -> None:
    how = {"variant": name, "when": f"lanes >= {lanes} and {_SUITS}", "check": _CHECK}
    kernel("conv_csr_dx", dx_operands(_SCRATCH), **how)(
        lambda S, W, INDEX: _input_gradient(vectors, S, W, INDEX)
    )


_register("wide", 8, 16)
_register("narrow", 4, 4)
