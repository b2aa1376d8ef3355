"""Sums of batch normalisation with vectors of 16, with the same bits as batch_sums.py."""

from typing import Any, NamedTuple

from ..registry import kernel
from .batch import BLOCK, CHECK, reduce_operands, stats_operands

_FAST = {"variant": "fast", "when": "lanes >= 4", "check": CHECK}


class Line(NamedTuple):
    """z = scale * x + shift, and the mean of x, each as a vector."""

    scale: Any
    shift: Any
    mean: Any


def _four_channels(S):
    """Inline functions: the sums of four channels, and of their squared differences.

    `o1`, `o2`, `o3`: elements from the first channel to the others. `near`: the channels have four
    elements each, next to each other.
    """
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.quad import none, quad_sums, quarter_sums, quarters
    from ..language.vector import WIDTH, loads, loads_first, vkeep, vsplat

    vld, vld_first = loads(S), loads_first(S)

    def over(add, add_first):
        """Total what add(i, middle, t, args) adds for each channel; a, b, c, d: their `middle`."""

        @inline
        def totals(args, ch, o1, o2, o3, near, a, b, c, d):
            total, every = none(), quarters(a, b, c, d)
            m0, m1, m2, m3 = vsplat(a), vsplat(b), vsplat(c), vsplat(d)
            for image in range(args.n):
                row = (image * args.c + ch) * args.s
                if near:
                    total = total + quarter_sums(add(row, every, vsplat(ZERO), args))
                    continue
                for start in range(row, row + args.s, BLOCK):
                    t0 = t1 = t2 = t3 = vsplat(ZERO)
                    stop = min(start + BLOCK, row + args.s)
                    i, full_end = start, start + ((stop - start) >> 4 << 4)
                    while i < full_end:
                        t0, t1 = add(i, m0, t0, args), add(i + o1, m1, t1, args)
                        t2, t3 = add(i + o2, m2, t2, args), add(i + o3, m3, t3, args)
                        i += WIDTH
                    if i < stop:
                        m = stop - i
                        t0, t1 = add_first(i, m, m0, t0, args), add_first(i + o1, m, m1, t1, args)
                        t2 = add_first(i + o2, m, m2, t2, args)
                        t3 = add_first(i + o3, m, m3, t3, args)
                    total = total + quad_sums(t0, t1, t2, t3)
            return total

        return totals

    @inline
    def value(i, middle, t, args):
        return t + vld(args.x, i)

    @inline
    def first_values(i, m, middle, t, args):
        return t + vld_first(args.x, i, m)

    @inline
    def square(i, middle, t, args):
        d = vld(args.x, i) - middle
        return fma(d, d, t)

    @inline
    def first_squares(i, m, middle, t, args):
        d = vkeep(vld_first(args.x, i, m) - middle, 0, m)
        return fma(d, d, t)

    return over(value, first_values), over(square, first_squares)


@kernel("bn_stats", stats_operands, **_FAST)
def bn_stats(S):
    """Statistics of this microbatch: two passes, the second over squared differences."""
    import numpy as np

    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.prim import FP32, div
    from ..language.quad import first, fourth, second, third
    from .batch import scalars

    (sums, squares), st = _four_channels(S), FP32.st
    real, inverse_root = scalars()
    single = np.float32

    @inline
    def keep(args, ch, mean, squared, count):
        variance = squared / count
        st(args.stat, ch, mean)
        st(args.stat, args.c + ch, inverse_root(variance, args.eps))
        st(args.stat, 2 * args.c + ch, variance)

    def run(thread, nthreads, args):
        hi, count = div(args.c * (thread + 1), nthreads), real(args.n * args.s)
        for ch in range(div(args.c * thread, nthreads), hi, 4):
            more = hi - 1 - ch  # channels after this one
            o1, o2, o3 = min(1, more) * args.s, min(2, more) * args.s, min(3, more) * args.s
            near = args.s == 4 and more >= 3
            t = sums(args, ch, o1, o2, o3, near, ZERO, ZERO, ZERO, ZERO)
            m0, m1 = first(t) / count, second(t) / count
            m2, m3 = third(t) / count, fourth(t) / count
            q = squares(args, ch, o1, o2, o3, near, single(m0), single(m1), single(m2), single(m3))
            keep(args, ch, m0, first(q), count)
            if more >= 1:
                keep(args, ch + 1, m1, second(q), count)
            if more >= 2:
                keep(args, ch + 2, m2, third(q), count)
            if more >= 3:
                keep(args, ch + 3, m3, fourth(q), count)

    return run


def _terms(S):
    """Inline functions that add to two sums: 16 pixels, or fewer."""
    from ..language.fused_activation import act_slope
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.vector import loads, loads_first, vkeep

    vld, vld_first = loads(S), loads_first(S)

    @inline
    def added(args, i, act, to, t, q):
        v = vld(args.x, i)
        dz = vld(args.dy, i) * act_slope(act, fma(v, to.scale, to.shift), args.lo, args.hi)
        return t + dz, fma(dz, v - to.mean, q)

    @inline
    def added_first(args, i, count, act, to, t, q):
        v, d = vld_first(args.x, i, count), vld_first(args.dy, i, count)
        dz = vkeep(d * act_slope(act, fma(v, to.scale, to.shift), args.lo, args.hi), 0, count)
        return t + dz, fma(dz, v - to.mean, q)

    return added, added_first


def _reduced(S):
    """Inline functions: two sums of a channel, of dz and of dz * (x - mean), and the same for four
    channels of four elements each."""
    from ..language.fused_activation import ZERO, act_slope, norm_line
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.prim import FP32, div
    from ..language.quad import none, pair_sums, quarter_sums, quarters
    from ..language.vector import WIDTH, loads, vsplat

    (added, added_first), vld, ldf = _terms(S), loads(S), FP32.ld

    @inline
    def part(args, unit, blocks):
        """(first element of block `unit`, relative to the channel's first one; its pixels)."""
        image = div(unit, blocks)
        start = (unit - image * blocks) * BLOCK
        return image * args.c * args.s + start, min(args.s - start, BLOCK)

    @inline
    def one(args, ch, act):
        """Sum two blocks of pixels at once: in a single block, each addition would wait for the
        previous one."""
        line = norm_line(args, ch)
        zero, both = vsplat(ZERO), none()
        to = Line(vsplat(line[0]), vsplat(line[1]), vsplat(ldf(args.stat, ch)))
        unit, blocks = 0, div(args.s + BLOCK - 1, BLOCK)
        while unit < args.n * blocks:
            (first, count), (second, other) = part(args, unit, blocks), part(args, unit + 1, blocks)
            two = unit + 1 < args.n * blocks and other == count
            i, j = ch * args.s + first, ch * args.s + (second if two else first)
            t0 = q0 = t1 = q1 = zero
            stop = i + (count >> 4 << 4)
            while i < stop:
                t0, q0 = added(args, i, act, to, t0, q0)
                t1, q1 = added(args, j, act, to, t1, q1)
                i += WIDTH
                j += WIDTH
            m = count & (WIDTH - 1)
            if m > 0:
                t0, q0 = added_first(args, i, m, act, to, t0, q0)
                t1, q1 = added_first(args, j, m, act, to, t1, q1)
            both = both + pair_sums(t0, q0)
            if two:
                both = both + pair_sums(t1, q1)
            unit += 2 if two else 1
        return both

    @inline
    def each(address, ch):
        return quarters(
            ldf(address, ch), ldf(address, ch + 1), ldf(address, ch + 2), ldf(address, ch + 3)
        )

    @inline
    def four(args, ch):
        l0, l1 = norm_line(args, ch), norm_line(args, ch + 1)
        l2, l3 = norm_line(args, ch + 2), norm_line(args, ch + 3)
        a, shift = quarters(l0[0], l1[0], l2[0], l3[0]), quarters(l0[1], l1[1], l2[1], l3[1])
        mean = each(args.stat, ch)
        total, along = none(), none()
        for b in range(args.n):
            row = (b * args.c + ch) * 4
            v = vld(args.x, row)
            dz = vld(args.dy, row) * act_slope(args.act, fma(v, a, shift), args.lo, args.hi)
            total = total + quarter_sums(dz)
            # rounded like a sum that begins with zero
            q = fma(dz, v - mean, ZERO)
            along = along + quarter_sums(q)
        return total, along

    return one, four


@kernel("bn_reduce", reduce_operands, revision="2", **_FAST)
def bn_reduce(S):
    """sums = (sum of dz, sum of dz * xhat), dz = dy * act'(z); added to dbeta and dgamma too."""
    from ..language.fused_activation import CLIP, NONE, RELU
    from ..language.inlining import inline
    from ..language.prim import div
    from ..language.quad import first, fourth, second, third
    from .batch import sum_writer

    (one, four), keep = _reduced(S), sum_writer()

    @inline
    def of_channel(args, ch):
        """`one`; each usual activation has a loop without a choice of activation."""
        if args.act == RELU:
            return one(args, ch, RELU)
        if args.act == CLIP:
            return one(args, ch, CLIP)
        return one(args, ch, NONE) if args.act == NONE else one(args, ch, args.act)

    def run(thread, nthreads, args):
        ch, hi = div(args.c * thread, nthreads), div(args.c * (thread + 1), nthreads)
        while args.s == 4 and hi - ch >= 4:
            total, along = four(args, ch)
            keep(args, ch, first(total), first(along))
            keep(args, ch + 1, second(total), second(along))
            keep(args, ch + 2, third(total), third(along))
            keep(args, ch + 3, fourth(total), fourth(along))
            ch += 4
        while ch < hi:
            both = of_channel(args, ch)
            keep(args, ch, first(both), second(both))
            ch += 1

    return run
