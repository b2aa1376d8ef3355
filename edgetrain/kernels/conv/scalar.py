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
    from ..language.fused_activation import ZERO, act_value, norm_scale, norm_shift
    from ..language.number import fma
    from ..language.prim import FP32, div, mod

    ld, st, ldw, ldf = S.ld, S.st, W.ld, FP32.ld

    def run(thread, nthreads, k):
        cg, kg, pixels = div(k.c, k.g), div(k.k, k.g), k.oh * k.ow
        size = cg * k.kh * k.kw
        each = div(kg + 3, 4)
        units = k.n * k.g * each
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            b, part = div(u, k.g * each), mod(u, k.g * each)
            first = div(part, each) * cg
            o0, last = div(part, each) * kg + mod(part, each) * 4, (div(part, each) + 1) * kg - 1
            o1, o2, o3 = min(o0 + 1, last), min(o0 + 2, last), min(o0 + 3, last)
            plane = (b * k.c + first) * k.h
            for p in range(pixels):
                y0, x0 = div(p, k.ow) * k.sh - k.ph, mod(p, k.ow) * k.sw - k.pw
                t0 = t1 = t2 = t3 = ZERO
                if k.bias != 0:
                    t0, t1 = ldf(k.bias, o0), ldf(k.bias, o1)
                    t2, t3 = ldf(k.bias, o2), ldf(k.bias, o3)
                for q in range(cg * k.kh):
                    i, iy = div(q, k.kh), y0 + mod(q, k.kh) * k.dh
                    if iy < 0 or iy >= k.h:
                        continue
                    row = (plane + i * k.h + iy) * k.wd
                    for s in range(k.kw):
                        ix = x0 + s * k.dw
                        if ix >= 0 and ix < k.wd:
                            v, tap = ld(k.x, row + ix), q * k.kw + s
                            if k.stat != 0:
                                a = norm_scale(k.stat, k.gamma, first + i, k.c)
                                v = fma(v, a, norm_shift(k.stat, k.gamma, k.beta, first + i, k.c))
                            v = act_value(k.act, v, k.lo, k.hi)
                            t0 = fma(v, ldw(k.w, o0 * size + tap), t0)
                            t1 = fma(v, ldw(k.w, o1 * size + tap), t1)
                            t2 = fma(v, ldw(k.w, o2 * size + tap), t2)
                            t3 = fma(v, ldw(k.w, o3 * size + tap), t3)
                st(k.y, (b * k.k + o0) * pixels + p, t0)
                st(k.y, (b * k.k + o1) * pixels + p, t1)
                st(k.y, (b * k.k + o2) * pixels + p, t2)
                st(k.y, (b * k.k + o3) * pixels + p, t3)

    return run


@kernel("conv_dx", dx_operands("0"), variant="scalar", when=_INPUTS, check=CHECK, work=DX_WORK)
def conv_dx(S, W):
    """dx (+)= transposed convolution of dy; order of a sum as in the plain kernel.

    Threads split (image, four input channels).
    """
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.prim import div, mod

    ld, st, ldw = S.ld, S.st, W.ld

    @inline
    def put(dx, offset, total, acc):
        if acc != 0:
            total += ld(dx, offset)
        st(dx, offset, total)

    def run(thread, nthreads, k):
        cg, kg, taps, pixels = div(k.c, k.g), div(k.k, k.g), k.kh * k.kw, k.h * k.wd
        each = div(cg + 3, 4)
        units = k.n * k.g * each
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            b, part = div(u, k.g * each), mod(u, k.g * each)
            group, i0 = div(part, each), mod(part, each) * 4
            i1, i2, i3 = min(i0 + 1, cg - 1), min(i0 + 2, cg - 1), min(i0 + 3, cg - 1)
            plane = (b * k.c + group * cg) * pixels
            for p in range(pixels):
                y0, x0 = div(p, k.wd) + k.ph, mod(p, k.wd) + k.pw
                t0 = t1 = t2 = t3 = ZERO
                for q in range(kg * k.kh):
                    o, r = group * kg + div(q, k.kh), mod(q, k.kh)
                    ty = y0 - r * k.dh
                    if ty < 0 or mod(ty, k.sh) != 0 or div(ty, k.sh) >= k.oh:
                        continue
                    row = ((b * k.k + o) * k.oh + div(ty, k.sh)) * k.ow
                    for s in range(k.kw):
                        tx = x0 - s * k.dw
                        if tx >= 0 and mod(tx, k.sw) == 0 and div(tx, k.sw) < k.ow:
                            d, tap = ld(k.dy, row + div(tx, k.sw)), o * cg * taps + r * k.kw + s
                            t0 = fma(d, ldw(k.w, i0 * taps + tap), t0)
                            t1 = fma(d, ldw(k.w, i1 * taps + tap), t1)
                            t2 = fma(d, ldw(k.w, i2 * taps + tap), t2)
                            t3 = fma(d, ldw(k.w, i3 * taps + tap), t3)
                put(k.dx, plane + i0 * pixels + p, t0, k.acc)
                if i1 > i0:
                    put(k.dx, plane + i1 * pixels + p, t1, k.acc)
                if i2 > i1:
                    put(k.dx, plane + i2 * pixels + p, t2, k.acc)
                if i3 > i2:
                    put(k.dx, plane + i3 * pixels + p, t3, k.acc)

    return run


@kernel("conv_dw", dw_operands("0"), variant="scalar", when=_OUTPUTS, check=CHECK, work=WORK)
def conv_dw(S, G):
    """dwt += sum over images and pixels of dy * prologue(x), rounded stochastically.

    Threads split (four output channels, tap). Order of a sum: pixels of a row by fma, rows of an
    image, images, each in float32 from zero; then one addition to the accumulator. So a sum is off
    by at most (ow + oh + n) * 2^-24 of the sum of its terms' magnitudes.
    """
    from ..language.fused_activation import ZERO, act_value, norm_scale, norm_shift
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.prim import div, mod, u32
    from ..language.rng import stream

    ld, ldg, sr = S.ld, G.ld, G.sr

    @inline
    def begin(offset, stride, width):
        """The first pixel of a row whose tap lies in the map."""
        return 0 if offset >= 0 else min(div(stride - 1 - offset, stride), width)

    def run(thread, nthreads, k):
        cg, kg, pixels = div(k.c, k.g), div(k.k, k.g), k.oh * k.ow
        numbers = stream(k.ctl, u32(k.key))
        taps, each = cg * k.kh * k.kw, div(kg + 3, 4)
        units = k.g * each * taps
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            part, e = div(u, taps), mod(u, taps)
            s, r = mod(e, k.kw) * k.dw - k.pw, mod(div(e, k.kw), k.kh) * k.dh - k.ph
            o0, last = div(part, each) * kg + mod(part, each) * 4, (div(part, each) + 1) * kg - 1
            o1, o2, o3 = min(o0 + 1, last), min(o0 + 2, last), min(o0 + 3, last)
            ch = div(part, each) * cg + div(e, k.kh * k.kw)
            left, right = begin(s, k.sw, k.ow), k.ow
            while right > left and (right - 1) * k.sw + s >= k.wd:
                right -= 1
            t0 = t1 = t2 = t3 = ZERO
            for b in range(k.n):
                m0 = m1 = m2 = m3 = ZERO
                for j in range(k.oh):
                    iy = j * k.sh + r
                    if iy < 0 or iy >= k.h:
                        continue
                    row, out = ((b * k.c + ch) * k.h + iy) * k.wd + s, b * k.k * pixels + j * k.ow
                    s0 = s1 = s2 = s3 = ZERO
                    for p in range(left, right):
                        v = ld(k.x, row + p * k.sw)
                        if k.stat != 0:
                            a = norm_scale(k.stat, k.gamma, ch, k.c)
                            v = fma(v, a, norm_shift(k.stat, k.gamma, k.beta, ch, k.c))
                        v = act_value(k.act, v, k.lo, k.hi)
                        s0 = fma(v, ld(k.dy, out + o0 * pixels + p), s0)
                        s1 = fma(v, ld(k.dy, out + o1 * pixels + p), s1)
                        s2 = fma(v, ld(k.dy, out + o2 * pixels + p), s2)
                        s3 = fma(v, ld(k.dy, out + o3 * pixels + p), s3)
                    m0, m1, m2, m3 = m0 + s0, m1 + s1, m2 + s2, m3 + s3
                t0, t1, t2, t3 = t0 + m0, t1 + m1, t2 + m2, t3 + m3
            sr(k.dwt, o0 * taps + e, ldg(k.dwt, o0 * taps + e) + t0, numbers)
            if o1 > o0:
                sr(k.dwt, o1 * taps + e, ldg(k.dwt, o1 * taps + e) + t1, numbers)
            if o2 > o1:
                sr(k.dwt, o2 * taps + e, ldg(k.dwt, o2 * taps + e) + t2, numbers)
            if o3 > o2:
                sr(k.dwt, o3 * taps + e, ldg(k.dwt, o3 * taps + e) + t3, numbers)

    return run
