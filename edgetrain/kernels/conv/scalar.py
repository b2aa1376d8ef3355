"""Convolutions on processors without vectors: four channels at a time share what they read.

Sums of `conv` and `conv_dx` have the order of the plain kernels and their bits; `conv_dw` sums in
float32 instead of float64, so that it needs no unit for that.
"""

from ..registry import kernel
from .plain import CHECK, DX_WORK, WORK, dw_operands, dx_operands, forward_operands

# With fewer channels to share, more is computed twice than is saved.
_OUTPUTS, _INPUTS = "lanes == 1 and k // g >= 3", "lanes == 1 and c // g >= 3"


@kernel("conv", forward_operands("0"), variant="scalar", when=_OUTPUTS, check=CHECK, work=WORK)
def conv(S, W):
    """y = conv(prologue(x), w) + bias; order of a sum as in the plain kernel.

    Threads split (image, four output channels). Where a group's channels are no multiple of four,
    its last one is computed again.
    """
    from ..words.act import ZERO, act_value, norm_scale, norm_shift
    from ..words.prim import FP32, div, fma, mod

    ld, st, ldw, ldf = S.ld, S.st, W.ld, FP32.ld

    def run(
        thread, nthreads, x, w, bias, stat, gamma, beta, y, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, act, lo, hi,
    ):  # fmt: skip
        cg, kg, size, pixels = div(c, g), div(k, g), div(c, g) * kh * kw, oh * ow
        each = div(kg + 3, 4)
        units = n * g * each
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            b, part = div(u, g * each), mod(u, g * each)
            first = div(part, each) * cg
            o0, last = div(part, each) * kg + mod(part, each) * 4, (div(part, each) + 1) * kg - 1
            o1, o2, o3 = min(o0 + 1, last), min(o0 + 2, last), min(o0 + 3, last)
            plane = (b * c + first) * h
            for p in range(pixels):
                y0, x0 = div(p, ow) * sh - ph, mod(p, ow) * sw - pw
                t0 = t1 = t2 = t3 = ZERO
                if bias != 0:
                    t0, t1, t2, t3 = ldf(bias, o0), ldf(bias, o1), ldf(bias, o2), ldf(bias, o3)
                for q in range(cg * kh):
                    i, iy = div(q, kh), y0 + mod(q, kh) * dh
                    if iy < 0 or iy >= h:
                        continue
                    row = (plane + i * h + iy) * wd
                    for s in range(kw):
                        ix = x0 + s * dw
                        if ix >= 0 and ix < wd:
                            v, tap = ld(x, row + ix), q * kw + s
                            if stat != 0:
                                a = norm_scale(stat, gamma, first + i, c)
                                v = fma(v, a, norm_shift(stat, gamma, beta, first + i, c))
                            v = act_value(act, v, lo, hi)
                            t0 = fma(v, ldw(w, o0 * size + tap), t0)
                            t1 = fma(v, ldw(w, o1 * size + tap), t1)
                            t2 = fma(v, ldw(w, o2 * size + tap), t2)
                            t3 = fma(v, ldw(w, o3 * size + tap), t3)
                st(y, (b * k + o0) * pixels + p, t0)
                st(y, (b * k + o1) * pixels + p, t1)
                st(y, (b * k + o2) * pixels + p, t2)
                st(y, (b * k + o3) * pixels + p, t3)

    return run


@kernel("conv_dx", dx_operands("0"), variant="scalar", when=_INPUTS, check=CHECK, work=DX_WORK)
def conv_dx(S, W):
    """dx (+)= transposed convolution of dy; order of a sum as in the plain kernel.

    Threads split (image, four input channels).
    """
    from ..jit import inline
    from ..words.act import ZERO
    from ..words.prim import div, fma, mod

    ld, st, ldw = S.ld, S.st, W.ld

    @inline
    def put(dx, at, total, acc):
        if acc != 0:
            total += ld(dx, at)
        st(dx, at, total)

    def run(
        thread, nthreads, dy, w, dx, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, acc,
    ):  # fmt: skip
        cg, kg, taps, pixels = div(c, g), div(k, g), kh * kw, h * wd
        each = div(cg + 3, 4)
        units = n * g * each
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            b, part = div(u, g * each), mod(u, g * each)
            group, i0 = div(part, each), mod(part, each) * 4
            i1, i2, i3 = min(i0 + 1, cg - 1), min(i0 + 2, cg - 1), min(i0 + 3, cg - 1)
            plane = (b * c + group * cg) * pixels
            for p in range(pixels):
                y0, x0 = div(p, wd) + ph, mod(p, wd) + pw
                t0 = t1 = t2 = t3 = ZERO
                for q in range(kg * kh):
                    o, r = group * kg + div(q, kh), mod(q, kh)
                    ty = y0 - r * dh
                    if ty < 0 or mod(ty, sh) != 0 or div(ty, sh) >= oh:
                        continue
                    row = ((b * k + o) * oh + div(ty, sh)) * ow
                    for s in range(kw):
                        tx = x0 - s * dw
                        if tx >= 0 and mod(tx, sw) == 0 and div(tx, sw) < ow:
                            d, tap = ld(dy, row + div(tx, sw)), o * cg * taps + r * kw + s
                            t0 = fma(d, ldw(w, i0 * taps + tap), t0)
                            t1 = fma(d, ldw(w, i1 * taps + tap), t1)
                            t2 = fma(d, ldw(w, i2 * taps + tap), t2)
                            t3 = fma(d, ldw(w, i3 * taps + tap), t3)
                put(dx, plane + i0 * pixels + p, t0, acc)
                if i1 > i0:
                    put(dx, plane + i1 * pixels + p, t1, acc)
                if i2 > i1:
                    put(dx, plane + i2 * pixels + p, t2, acc)
                if i3 > i2:
                    put(dx, plane + i3 * pixels + p, t3, acc)

    return run


@kernel("conv_dw", dw_operands("0"), variant="scalar", when=_OUTPUTS, check=CHECK, work=WORK)
def conv_dw(S, G):
    """dwt += sum over images and pixels of dy * prologue(x), rounded stochastically.

    Threads split (four output channels, tap). Order of a sum: pixels of a row by fma, rows of an
    image, images, each in float32 from zero; then one addition to the accumulator. So a sum is off
    by at most (ow + oh + n) * 2^-24 of the sum of its terms' magnitudes.
    """
    from ..jit import inline
    from ..words.act import ZERO, act_value, norm_scale, norm_shift
    from ..words.prim import div, fma, mod, u32
    from ..words.rng import stream

    ld, ldg, sr = S.ld, G.ld, G.sr

    @inline
    def begin(offset, stride, width):
        """The first pixel of a row whose tap lies in the map."""
        return 0 if offset >= 0 else min(div(stride - 1 - offset, stride), width)

    def run(
        thread, nthreads, x, stat, gamma, beta, dy, dwt, ctl, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, act, lo, hi, key,
    ):  # fmt: skip
        cg, kg, numbers, pixels = div(c, g), div(k, g), stream(ctl, u32(key)), oh * ow
        taps, each = cg * kh * kw, div(kg + 3, 4)
        units = g * each * taps
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            part, e = div(u, taps), mod(u, taps)
            s, r = mod(e, kw) * dw - pw, mod(div(e, kw), kh) * dh - ph
            o0, last = div(part, each) * kg + mod(part, each) * 4, (div(part, each) + 1) * kg - 1
            o1, o2, o3 = min(o0 + 1, last), min(o0 + 2, last), min(o0 + 3, last)
            ch = div(part, each) * cg + div(e, kh * kw)
            left, right = begin(s, sw, ow), ow
            while right > left and (right - 1) * sw + s >= wd:
                right -= 1
            t0 = t1 = t2 = t3 = ZERO
            for b in range(n):
                m0 = m1 = m2 = m3 = ZERO
                for j in range(oh):
                    iy = j * sh + r
                    if iy < 0 or iy >= h:
                        continue
                    row, out = ((b * c + ch) * h + iy) * wd + s, b * k * pixels + j * ow
                    s0 = s1 = s2 = s3 = ZERO
                    for p in range(left, right):
                        v = ld(x, row + p * sw)
                        if stat != 0:
                            a = norm_scale(stat, gamma, ch, c)
                            v = fma(v, a, norm_shift(stat, gamma, beta, ch, c))
                        v = act_value(act, v, lo, hi)
                        s0 = fma(v, ld(dy, out + o0 * pixels + p), s0)
                        s1 = fma(v, ld(dy, out + o1 * pixels + p), s1)
                        s2 = fma(v, ld(dy, out + o2 * pixels + p), s2)
                        s3 = fma(v, ld(dy, out + o3 * pixels + p), s3)
                    m0, m1, m2, m3 = m0 + s0, m1 + s1, m2 + s2, m3 + s3
                t0, t1, t2, t3 = t0 + m0, t1 + m1, t2 + m2, t3 + m3
            sr(dwt, o0 * taps + e, ldg(dwt, o0 * taps + e) + t0, numbers)
            if o1 > o0:
                sr(dwt, o1 * taps + e, ldg(dwt, o1 * taps + e) + t1, numbers)
            if o2 > o1:
                sr(dwt, o2 * taps + e, ldg(dwt, o2 * taps + e) + t2, numbers)
            if o3 > o2:
                sr(dwt, o3 * taps + e, ldg(dwt, o3 * taps + e) + t3, numbers)

    return run
