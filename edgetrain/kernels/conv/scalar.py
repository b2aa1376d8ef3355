"""The weight gradient on processors without vectors: four channels at a time share what they read.

It sums in float32 instead of float64, so that it needs no unit for that.
"""

from ..registry import kernel
from .plain import CHECK, SHARED_OUTPUTS, WORK, dw_operands


@kernel("conv_dw", dw_operands("0"), variant="scalar", when=SHARED_OUTPUTS, check=CHECK, work=WORK)
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

    ld, ldg, sr, four = S.ld, G.ld, G.sr, tuple(range(4))

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
            group, first = div(part, each), mod(part, each) * 4
            outputs = tuple(group * kg + min(first + i, kg - 1) for i in four)
            ch = group * cg + div(e, k.kh * k.kw)
            left, right = begin(s, k.sw, k.ow), k.ow
            while right > left and (right - 1) * k.sw + s >= k.wd:
                right -= 1
            totals = tuple(ZERO for _ in four)
            for b in range(k.n):
                of_image = tuple(ZERO for _ in four)
                for j in range(k.oh):
                    iy = j * k.sh + r
                    if iy < 0 or iy >= k.h:
                        continue
                    row, out = ((b * k.c + ch) * k.h + iy) * k.wd + s, b * k.k * pixels + j * k.ow
                    of_row = tuple(ZERO for _ in four)
                    for p in range(left, right):
                        v = ld(k.x, row + p * k.sw)
                        if k.stat != 0:
                            a = norm_scale(k.stat, k.gamma, ch, k.c)
                            v = fma(v, a, norm_shift(k.stat, k.gamma, k.beta, ch, k.c))
                        v = act_value(k.act, v, k.lo, k.hi)
                        of_row = tuple(
                            fma(v, ld(k.dy, out + o * pixels + p), total)
                            for o, total in zip(outputs, of_row, strict=True)
                        )
                    of_image = tuple(t + more for t, more in zip(of_image, of_row, strict=True))
                totals = tuple(t + more for t, more in zip(totals, of_image, strict=True))
            for i, (o, total) in enumerate(zip(outputs, totals, strict=True)):
                if o == group * kg + first + i:  # the last one is there once
                    sr(k.dwt, o * taps + e, ldg(k.dwt, o * taps + e) + total, numbers)

    return run
