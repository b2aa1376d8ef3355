"""The weight gradient on processors without vectors: four channels at a time share what they read.

It sums in float32 instead of float64, so it needs no float64 unit.
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
        """First pixel of a row whose tap is inside the map."""
        return 0 if offset >= 0 else min(div(stride - 1 - offset, stride), width)

    def run(thread, nthreads, args):
        cg, kg, pixels = div(args.c, args.g), div(args.k, args.g), args.oh * args.ow
        numbers = stream(args.ctl, u32(args.key))
        taps, each = cg * args.kh * args.kw, div(kg + 3, 4)
        units = args.g * each * taps
        for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
            part, e = div(u, taps), mod(u, taps)
            s = mod(e, args.kw) * args.dw - args.pw
            r = mod(div(e, args.kw), args.kh) * args.dh - args.ph
            group, first = div(part, each), mod(part, each) * 4
            outputs = tuple(group * kg + min(first + i, kg - 1) for i in four)
            ch = group * cg + div(e, args.kh * args.kw)
            left, right = begin(s, args.sw, args.ow), args.ow
            while right > left and (right - 1) * args.sw + s >= args.wd:
                right -= 1
            totals = tuple(ZERO for _ in four)
            for b in range(args.n):
                of_image = tuple(ZERO for _ in four)
                for j in range(args.oh):
                    iy = j * args.sh + r
                    if iy < 0 or iy >= args.h:
                        continue
                    row = ((b * args.c + ch) * args.h + iy) * args.wd + s
                    out = b * args.k * pixels + j * args.ow
                    of_row = tuple(ZERO for _ in four)
                    for p in range(left, right):
                        v = ld(args.x, row + p * args.sw)
                        if args.stat != 0:
                            a = norm_scale(args.stat, args.gamma, ch, args.c)
                            v = fma(v, a, norm_shift(args.stat, args.gamma, args.beta, ch, args.c))
                        v = act_value(args.act, v, args.lo, args.hi)
                        of_row = tuple(
                            fma(v, ld(args.dy, out + o * pixels + p), total)
                            for o, total in zip(outputs, of_row, strict=True)
                        )
                    of_image = tuple(t + more for t, more in zip(of_image, of_row, strict=True))
                totals = tuple(t + more for t, more in zip(totals, of_image, strict=True))
            for i, (o, total) in enumerate(zip(outputs, totals, strict=True)):
                if o == group * kg + first + i:  # not a repeat of the last channel
                    sr(args.dwt, o * taps + e, ldg(args.dwt, o * taps + e) + total, numbers)

    return run
