"""Average pooling by windows two columns wide that do not overlap, on vectors of 16.

The operands are those of plain.py. Sums run in float32 over the kernel rows, columns in pairs.
"""

from ..registry import kernel
from .plain import AVERAGE_CHECK, avgpool_bwd_operands, avgpool_operands

_PAIRS = {
    "variant": "pairs",
    "when": "lanes >= 4 and kw == 2 and sw == 2 and kh == sh and ph + pw + pb + pr == 0 "
    "and h == oh * sh and wd == 2 * ow",
    "check": AVERAGE_CHECK,
}


@kernel("avgpool", avgpool_operands, **_PAIRS)
def avgpool(S):
    """y = mean of each window. Written: y whole. Threads split rows of y."""
    from ..language.fused_activation import ONE, ZERO
    from ..language.prim import div, to_float
    from ..language.vector import WIDTH, loads, stores, vsplat

    ld, st, vld2, vst = S.ld, S.st, loads(S, 2), stores(S)

    def run(thread, nthreads, k):
        lines, size, share = k.n * k.c * k.oh, k.n * k.c * k.h * k.wd, ONE / to_float(k.kh * k.kw)
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            for j in range(0, k.ow, WIDTH):
                first = q * k.kh * k.wd + 2 * j
                if first + (k.kh - 1) * k.wd + 2 * WIDTH < size:
                    total = vsplat(ZERO)
                    for at in range(first, first + k.kh * k.wd, k.wd):
                        total = total + (vld2(k.x, at) + vld2(k.x, at + 1))
                    vst(k.y, q * k.ow + j, total * share, k.ow - j)
                else:
                    for i in range(min(WIDTH, k.ow - j)):
                        one = ZERO
                        for at in range(first + 2 * i, first + 2 * i + k.kh * k.wd, k.wd):
                            one += ld(k.x, at) + ld(k.x, at + 1)
                        st(k.y, q * k.ow + j + i, one * share)

    return run


@kernel("avgpool_bwd", avgpool_bwd_operands, **_PAIRS)
def avgpool_bwd(S):
    """dx (+)= dy of the window over its size. Written: dx whole. Threads split rows of dx."""
    from ..language.fused_activation import ONE
    from ..language.prim import div, to_float
    from ..language.vector import WIDTH, loads, loads_first, stores, vinterleave

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)

    def run(thread, nthreads, k):
        lines, share = k.n * k.c * k.h, ONE / to_float(k.kh * k.kw)
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            source, target = div(q, k.kh) * k.ow, q * k.wd
            for j in range(0, k.ow, WIDTH):
                rest = k.ow - j
                v = vld(k.dy, source + j) if rest >= WIDTH else vld_first(k.dy, source + j, rest)
                v = v * share
                for part in range(2):
                    at, count = target + 2 * j + WIDTH * part, 2 * rest - WIDTH * part
                    if count > 0:
                        z = vinterleave(v, v, part)
                        if k.acc != 0:
                            z = z + vld_first(k.dx, at, count)
                        vst(k.dx, at, z, count)

    return run
