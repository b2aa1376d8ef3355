"""Batch normalisation on vectors of 16: the kernels of batch.py, same operands, same meaning.

Sums run over 16 float32 partial sums (pixel modulo 16) for at most 1024 pixels of a map, whose
float64 total is added image by image: an order that depends on the shape alone.
"""

from typing import Any, NamedTuple

from ..registry import kernel
from .batch import (
    CHECK,
    apply_operands,
    dx_eval_operands,
    dx_operands,
    reduce_operands,
    stats_operands,
)

_FAST = {"variant": "fast", "when": "lanes >= 4", "check": CHECK}
_BLOCK = 1024  # pixels between two additions to a float64 sum


class Line(NamedTuple):
    """dx = scale * (dz - level - (x - mean) * invstd * tilt), each as a vector."""

    scale: Any
    shift: Any
    mean: Any
    invstd: Any
    level: Any
    tilt: Any


def _four_channels(S):
    """Inline functions: the sums of four channels, and those of their squared differences.

    `o1`, `o2`, `o3`: elements from the first channel to the others. `near`: four elements each,
    in a row.
    """
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.quad import none, quad_sums, quarter_sums, quarters
    from ..language.vector import WIDTH, loads, loads_first, vkeep, vsplat

    vld, vld_first = loads(S), loads_first(S)

    def over(add, add_first):
        """Of what add(i, middle, t, k) adds to each channel; a, b, c, d: their `middle`."""

        @inline
        def totals(k, ch, o1, o2, o3, near, a, b, c, d):
            total, every = none(), quarters(a, b, c, d)
            m0, m1, m2, m3 = vsplat(a), vsplat(b), vsplat(c), vsplat(d)
            for image in range(k.n):
                row = (image * k.c + ch) * k.s
                if near:
                    total = total + quarter_sums(add(row, every, vsplat(ZERO), k))
                    continue
                for start in range(row, row + k.s, _BLOCK):
                    t0 = t1 = t2 = t3 = vsplat(ZERO)
                    stop = min(start + _BLOCK, row + k.s)
                    i, whole = start, start + ((stop - start) >> 4 << 4)
                    while i < whole:
                        t0, t1 = add(i, m0, t0, k), add(i + o1, m1, t1, k)
                        t2, t3 = add(i + o2, m2, t2, k), add(i + o3, m3, t3, k)
                        i += WIDTH
                    if i < stop:
                        m = stop - i
                        t0, t1 = add_first(i, m, m0, t0, k), add_first(i + o1, m, m1, t1, k)
                        t2 = add_first(i + o2, m, m2, t2, k)
                        t3 = add_first(i + o3, m, m3, t3, k)
                    total = total + quad_sums(t0, t1, t2, t3)
            return total

        return totals

    @inline
    def value(i, middle, t, k):
        return t + vld(k.x, i)

    @inline
    def first_values(i, m, middle, t, k):
        return t + vld_first(k.x, i, m)

    @inline
    def square(i, middle, t, k):
        d = vld(k.x, i) - middle
        return fma(d, d, t)

    @inline
    def first_squares(i, m, middle, t, k):
        d = vkeep(vld_first(k.x, i, m) - middle, 0, m)
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
    def keep(k, ch, mean, squared, count):
        variance = squared / count
        st(k.stat, ch, mean)
        st(k.stat, k.c + ch, inverse_root(variance, k.eps))
        st(k.stat, 2 * k.c + ch, variance)

    def run(thread, nthreads, k):
        hi, count = div(k.c * (thread + 1), nthreads), real(k.n * k.s)
        for ch in range(div(k.c * thread, nthreads), hi, 4):
            more = hi - 1 - ch  # channels after this one
            o1, o2, o3 = min(1, more) * k.s, min(2, more) * k.s, min(3, more) * k.s
            near = k.s == 4 and more >= 3
            t = sums(k, ch, o1, o2, o3, near, ZERO, ZERO, ZERO, ZERO)
            m0, m1 = first(t) / count, second(t) / count
            m2, m3 = third(t) / count, fourth(t) / count
            q = squares(k, ch, o1, o2, o3, near, single(m0), single(m1), single(m2), single(m3))
            keep(k, ch, m0, first(q), count)
            if more >= 1:
                keep(k, ch + 1, m1, second(q), count)
            if more >= 2:
                keep(k, ch + 2, m2, third(q), count)
            if more >= 3:
                keep(k, ch + 3, m3, fourth(q), count)

    return run


@kernel("bn_apply", apply_operands, **_FAST)
def bn_apply(S):
    """y = act(z); y may be x."""
    from ..language.fused_activation import act_value, norm_line
    from ..language.number import fma
    from ..language.prim import div
    from ..language.vector import WIDTH, loads, loads_first, stores, vsplat

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)

    def run(thread, nthreads, k):
        whole = k.s >> 4 << 4
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            line = norm_line(k, ch)
            a, shift = vsplat(line[0]), vsplat(line[1])
            for b in range(k.n):
                row = (b * k.c + ch) * k.s
                for i in range(row, row + whole, WIDTH):
                    z = fma(vld(k.x, i), a, shift)
                    vst(k.y, i, act_value(k.act, z, k.lo, k.hi), WIDTH)
                if whole < k.s:
                    z = fma(vld_first(k.x, row + whole, k.s - whole), a, shift)
                    vst(k.y, row + whole, act_value(k.act, z, k.lo, k.hi), k.s - whole)

    return run


def _terms(S):
    """Inline functions that add to two sums: 16 pixels, or the first few of them."""
    from ..language.fused_activation import act_slope
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.vector import loads, loads_first, vkeep

    vld, vld_first = loads(S), loads_first(S)

    @inline
    def added(k, i, act, to, t, q):
        v = vld(k.x, i)
        dz = vld(k.dy, i) * act_slope(act, fma(v, to.scale, to.shift), k.lo, k.hi)
        return t + dz, fma(dz, (v - to.mean) * to.invstd, q)

    @inline
    def added_first(k, i, count, act, to, t, q):
        v, d = vld_first(k.x, i, count), vld_first(k.dy, i, count)
        dz = d * act_slope(act, fma(v, to.scale, to.shift), k.lo, k.hi)
        along = dz * ((v - to.mean) * to.invstd)
        return t + vkeep(dz, 0, count), q + vkeep(along, 0, count)

    return added, added_first


def _reduced(S):
    """Inline functions: two sums of a channel, of dz and of dz * xhat; those of four channels of
    four elements each."""
    from ..language.fused_activation import ZERO, act_slope, norm_line
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.prim import FP32, div
    from ..language.quad import none, pair_sums, quarter_sums, quarters
    from ..language.vector import WIDTH, loads, vsplat

    (added, added_first), vld, ldf = _terms(S), loads(S), FP32.ld

    @inline
    def part(k, unit, blocks):
        """(first element of block `unit` of a channel whose maps begin at 0, its pixels)."""
        image = div(unit, blocks)
        start = (unit - image * blocks) * _BLOCK
        return image * k.c * k.s + start, min(k.s - start, _BLOCK)

    @inline
    def one(k, ch, act):
        """Two blocks of pixels at once: the sums of one are chains that wait for every addition."""
        line = norm_line(k, ch)
        mean, invstd = vsplat(ldf(k.stat, ch)), vsplat(ldf(k.stat, k.c + ch))
        zero, both = vsplat(ZERO), none()
        to = Line(vsplat(line[0]), vsplat(line[1]), mean, invstd, zero, zero)
        unit, blocks = 0, div(k.s + _BLOCK - 1, _BLOCK)
        while unit < k.n * blocks:
            (first, count), (second, other) = part(k, unit, blocks), part(k, unit + 1, blocks)
            two = unit + 1 < k.n * blocks and other == count
            i, j = ch * k.s + first, ch * k.s + (second if two else first)
            t0 = q0 = t1 = q1 = zero
            stop = i + (count >> 4 << 4)
            while i < stop:
                t0, q0 = added(k, i, act, to, t0, q0)
                t1, q1 = added(k, j, act, to, t1, q1)
                i += WIDTH
                j += WIDTH
            m = count & (WIDTH - 1)
            if m > 0:
                t0, q0 = added_first(k, i, m, act, to, t0, q0)
                t1, q1 = added_first(k, j, m, act, to, t1, q1)
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
    def four(k, ch):
        l0, l1 = norm_line(k, ch), norm_line(k, ch + 1)
        l2, l3 = norm_line(k, ch + 2), norm_line(k, ch + 3)
        a, shift = quarters(l0[0], l1[0], l2[0], l3[0]), quarters(l0[1], l1[1], l2[1], l3[1])
        mean, invstd = each(k.stat, ch), each(k.stat, k.c + ch)
        total, along = none(), none()
        for b in range(k.n):
            row = (b * k.c + ch) * 4
            v = vld(k.x, row)
            dz = vld(k.dy, row) * act_slope(k.act, fma(v, a, shift), k.lo, k.hi)
            total = total + quarter_sums(dz)
            # what a sum that begins with zero rounds
            q = fma(dz, (v - mean) * invstd, ZERO)
            along = along + quarter_sums(q)
        return total, along

    return one, four


@kernel("bn_reduce", reduce_operands, **_FAST)
def bn_reduce(S):
    """sums = (sum of dz, sum of dz * xhat), dz = dy * act'(z); dgamma, dbeta are added to."""
    from ..language.fused_activation import CLIP, NONE, RELU
    from ..language.inlining import inline
    from ..language.prim import div
    from ..language.quad import first, fourth, second, third
    from .batch import sum_writer

    (one, four), keep = _reduced(S), sum_writer()

    @inline
    def of_channel(k, ch):
        """`one` without a choice between activations in its loop, for the usual ones."""
        if k.act == RELU:
            return one(k, ch, RELU)
        if k.act == CLIP:
            return one(k, ch, CLIP)
        return one(k, ch, NONE) if k.act == NONE else one(k, ch, k.act)

    def run(thread, nthreads, k):
        ch, hi = div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)
        while k.s == 4 and hi - ch >= 4:
            total, along = four(k, ch)
            keep(k, ch, first(total), first(along))
            keep(k, ch + 1, second(total), second(along))
            keep(k, ch + 2, third(total), third(along))
            keep(k, ch + 3, fourth(total), fourth(along))
            ch += 4
        while ch < hi:
            both = of_channel(k, ch)
            keep(k, ch, first(both), second(both))
            ch += 1

    return run


def _row_gradient(S):
    """Inline functions: the Line of a channel, the gradient of one run of it."""
    from ..language.fused_activation import CLIP, NONE, RELU, act_slope
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.vector import WIDTH, loads, loads_first, stores, vsplat

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)

    @inline
    def line(scale, shift, mean, invstd, level, tilt):
        a, b, m, r = vsplat(scale), vsplat(shift), vsplat(mean), vsplat(invstd)
        return Line(a, b, m, r, vsplat(level), vsplat(tilt))

    @inline
    def step(v, d, act, to, k):
        dz = d * act_slope(act, fma(v, to.scale, to.shift), k.lo, k.hi)
        centred = (v - to.mean) * to.invstd
        return to.scale * (dz - to.level - centred * to.tilt)

    @inline
    def run_gradient(k, row, act, to):
        whole = k.s >> 4 << 4
        for i in range(row, row + whole, WIDTH):
            d = step(vld(k.x, i), vld(k.dy, i), act, to, k)
            if k.acc != 0:
                d = d + vld(k.dx, i)
            vst(k.dx, i, d, WIDTH)
        if whole < k.s:
            i, rest = row + whole, k.s - whole
            v, d = vld_first(k.x, i, rest), vld_first(k.dy, i, rest)
            d = step(v, d, act, to, k)
            if k.acc != 0:
                d = d + vld_first(k.dx, i, rest)
            vst(k.dx, i, d, rest)

    @inline
    def gradient(k, row, to):
        """dx (+)= scale * (dz - level - (x - mean) * invstd * tilt), s elements from row on."""
        if k.act == RELU:
            run_gradient(k, row, RELU, to)
        elif k.act == CLIP:
            run_gradient(k, row, CLIP, to)
        elif k.act == NONE:
            run_gradient(k, row, NONE, to)
        else:
            run_gradient(k, row, k.act, to)

    return line, gradient


@kernel("bn_dx", dx_operands, **_FAST)
def bn_dx(S):
    """dx (+)= a * (dz - mean(dz) - xhat * mean(dz * xhat)); dx may be dy or x where acc = 0."""
    import numpy as np

    from ..language.fused_activation import norm_line
    from ..language.prim import FP32, div
    from .batch import scalars

    (line, gradient), ldf, single = _row_gradient(S), FP32.ld, np.float32
    real, _ = scalars()

    def run(thread, nthreads, k):
        count = real(max(k.n * k.s, 1))
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            level = single(ldf(k.sums, ch) / count)
            tilt = single(ldf(k.sums, k.c + ch) / count)
            (scale, shift), mean, invstd = norm_line(k, ch), ldf(k.stat, ch), ldf(k.stat, k.c + ch)
            to = line(scale, shift, mean, invstd, level, tilt)
            for b in range(k.n):
                gradient(k, (b * k.c + ch) * k.s, to)

    return run


@kernel("bn_dx_eval", dx_eval_operands, **_FAST)
def bn_dx_eval(S):
    """dx (+)= a * dz for statistics that do not depend on x; dx may be dy or x where acc = 0."""
    from ..language.fused_activation import ZERO, norm_line
    from ..language.prim import div

    line, gradient = _row_gradient(S)

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            scale, shift = norm_line(k, ch)
            to = line(scale, shift, ZERO, ZERO, ZERO, ZERO)
            for b in range(k.n):
                gradient(k, (b * k.c + ch) * k.s, to)

    return run
