"""Gradients of scale and shift for layer, RMS and group normalisation (layer.py)."""

from typing import NamedTuple

from .row_sums import pair_slopes
from .rows import UNCACHED, dbeta, fetcher, no_shift

# Channels that are summed together, with vectors and without; processors without vectors have
# little stack.
BLOCK, SMALL = 512, 128
CHAIN = 64  # images between two additions to a float64 sum
TOGETHER = 4  # images that are added to a channel at once


class Sums(NamedTuple):
    """Buffers: float32 sums of dy * xhat and of dy, then float64 sums of both."""

    products: int
    sums: int
    all_products: int
    all_sums: int


def _channel_sums(centre, vectors):
    """Inline functions on the float32 sums of one block of channels: clear (to, m), sums_of (to,
    j), keep (to, j, p, s)."""
    from ..language.elements import elements
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.prim import FP32

    width, load32, _, store32, spread = elements(FP32, vectors)

    @inline
    def clear(to, m):
        for j in range(0, m, width):
            store32(to.products, j, spread(ZERO), width)
            if centre:
                store32(to.sums, j, spread(ZERO), width)

    @inline
    def sums_of(to, j):
        if centre:
            return load32(to.products, j), load32(to.sums, j)
        return load32(to.products, j), spread(ZERO)

    @inline
    def keep(to, j, p, s):
        store32(to.products, j, p, width)
        if centre:
            store32(to.sums, j, s, width)

    return clear, sums_of, keep


def _by_images(S, centre, vectors):
    """Inline functions that add four images (args, rows, row, offset, step, m, to), or one, to the
    sums of m channels, and clear (to, m)."""
    from ..language.elements import elements
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.prim import FP32

    width, load, load_first, _, spread = elements(S, vectors)
    ldf, fetch = FP32.ld, fetcher(S, vectors)
    clear, sums_of, keep = _channel_sums(centre, vectors)

    @inline
    def statistics(rows, row):
        mean = ZERO
        if centre:
            mean = ldf(rows.means, row)
        return spread(mean), spread(ldf(rows.inverses, row))

    @inline
    def add(v, d, of, p, s):
        mean, inverse = of
        return fma(d * inverse, v - mean, p), s + d

    @inline
    def add_four(args, rows, row, offset, step, m, to):
        """Add four images, one after the other."""
        of0, of1 = statistics(rows, row), statistics(rows, row + rows.groups)
        of2 = statistics(rows, row + 2 * rows.groups)
        of3, full = statistics(rows, row + 3 * rows.groups), m & -width
        o1, o2, o3 = offset + step, offset + 2 * step, offset + 3 * step
        far, next_four = rows.total * rows.c > UNCACHED, offset + 4 * step
        for j in range(0, full, width):
            if far:
                for image in range(TOGETHER):
                    fetch(args.x, next_four + image * step + j)
                    fetch(args.dy, next_four + image * step + j)
            p, s = sums_of(to, j)
            p, s = add(load(args.x, offset + j), load(args.dy, offset + j), of0, p, s)
            p, s = add(load(args.x, o1 + j), load(args.dy, o1 + j), of1, p, s)
            p, s = add(load(args.x, o2 + j), load(args.dy, o2 + j), of2, p, s)
            p, s = add(load(args.x, o3 + j), load(args.dy, o3 + j), of3, p, s)
            keep(to, j, p, s)
        if full < m:
            j, rest = full, m - full
            p, s = sums_of(to, j)
            i = offset + j
            p, s = add(load_first(args.x, i, rest), load_first(args.dy, i, rest), of0, p, s)
            i = o1 + j
            p, s = add(load_first(args.x, i, rest), load_first(args.dy, i, rest), of1, p, s)
            i = o2 + j
            p, s = add(load_first(args.x, i, rest), load_first(args.dy, i, rest), of2, p, s)
            i = o3 + j
            p, s = add(load_first(args.x, i, rest), load_first(args.dy, i, rest), of3, p, s)
            keep(to, j, p, s)

    @inline
    def add_one(args, rows, row, offset, m, to):
        of = statistics(rows, row)
        for j in range(0, m, width):
            rest = min(width, m - j)
            p, s = sums_of(to, j)
            v, d = load_first(args.x, offset + j, rest), load_first(args.dy, offset + j, rest)
            p, s = add(v, d, of, p, s)
            keep(to, j, p, s)

    return add_four, add_one, clear


def _by_channels(S, centre, vectors):
    """Inline (args, rows, q, m, images, to): sum m channels of one group, from q on, with one pixel
    each; one source for scalars and vectors."""
    import numpy as np

    from ..language.block import get_wide, put_wide
    from ..language.inlining import inline
    from ..language.prim import FP32, div

    ldf = FP32.ld
    add_four, add_one, clear = _by_images(S, centre, vectors)

    @inline
    def by_channels(args, rows, q, m, images, to):
        group, step = div(q, rows.c), rows.groups * rows.c
        for j in range(m):
            put_wide(to.all_products, j, 0.0)
            put_wide(to.all_sums, j, 0.0)
        for start in range(0, images, CHAIN):
            stop = min(start + CHAIN, images)
            image = start
            clear(to, m)
            while image + TOGETHER <= stop:
                row = image * rows.groups + group
                add_four(args, rows, row, image * step + q, step, m, to)
                image += TOGETHER
            while image < stop:
                add_one(args, rows, image * rows.groups + group, image * step + q, m, to)
                image += 1
            for j in range(m):
                sum_of = get_wide(to.all_products, j) + np.float64(ldf(to.products, j))
                put_wide(to.all_products, j, sum_of)
                if centre:
                    put_wide(to.all_sums, j, get_wide(to.all_sums, j) + np.float64(ldf(to.sums, j)))

    return by_channels


def _by_pixels(S, centre, vectors):
    """Inline (args, rows, q, images, to): sum channel q, which has several pixels."""
    import numpy as np

    from ..language.block import put_wide
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.prim import FP32, div

    ldf, pair = FP32.ld, pair_slopes(S, vectors)

    @inline
    def mean_of(rows, row):
        if centre:
            return ldf(rows.means, row)
        return ZERO

    @inline
    def by_pixels(args, rows, q, images, to):
        products, sums, group = 0.0, 0.0, div(q, rows.c)
        channels, s = rows.groups * rows.c, rows.s
        for image in range(0, images, 2):
            other = min(image + 1, images - 1)
            r0, r1 = image * rows.groups + group, other * rows.groups + group
            o0, o1 = (image * channels + q) * s, (other * channels + q) * s
            t0, q0, t1, q1 = pair(args, o0, o1, s, mean_of(rows, r0), mean_of(rows, r1))
            sums, products = sums + t0, products + q0 * np.float64(ldf(rows.inverses, r0))
            if other > image:
                sums, products = sums + t1, products + q1 * np.float64(ldf(rows.inverses, r1))
        put_wide(to.all_products, 0, products)
        put_wide(to.all_sums, 0, sums)

    return by_pixels


def dparam(S, centre, vectors):
    """body(thread, nthreads, args, rows): computes dgamma and dbeta; threads split channels."""
    import numpy as np

    from ..language.block import get_wide, stack, wide_memory
    from ..language.inlining import inline
    from ..language.prim import FP32, div, mod

    by_channels, by_pixels = _by_channels(S, centre, vectors), _by_pixels(S, centre, vectors)
    ldf, st, single = FP32.ld, FP32.st, np.float32
    shift_of = dbeta if centre else no_shift
    block = BLOCK if vectors else SMALL
    new, wide, other = stack(2 * 4 * block), wide_memory(block), wide_memory(block)

    @inline
    def add_to(address, q, m, wide):
        if address != 0:
            for j in range(m):
                st(address, q + j, ldf(address, q + j) + single(get_wide(wide, j)))

    @inline
    def body(thread, nthreads, args, rows):
        place = new()
        to = Sums(place, place + 4 * block, wide(), other())
        channels, images = rows.groups * rows.c, div(rows.total, rows.groups)
        q, hi = div(channels * thread, nthreads), div(channels * (thread + 1), nthreads)
        while q < hi:
            m = 1
            if rows.s == 1:
                m = min(min(block, hi - q), rows.c - mod(q, rows.c))
                by_channels(args, rows, q, m, images, to)
            else:
                by_pixels(args, rows, q, images, to)
            add_to(args.dgamma, q, m, to.all_products)
            add_to(shift_of(args), q, m, to.all_sums)
            q += m

    return body
