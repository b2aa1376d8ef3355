"""Average pooling by windows, and its gradient.

Plain variants add in float64, rows then columns, and divide. Windows two columns wide that do not
overlap have a variant on vectors of 16, which adds in float32, columns in pairs, and multiplies:
other bits, so neither can be written as the other.
"""

from ..language.strides import windows
from ..registry import kernel
from .operands import BACKWARD_WORK, CHECK, SIZES, WORK, X, Y

_SIZES = f"{SIZES} pb pr include_pad=flag"
_CHECK = f"{CHECK};min(pb, pr) >= 0;{windows('1', '1')}"
_OPERANDS = f"x:r:S{X} y:w:S{Y} {_SIZES}"
_BACKWARD = f"dy:r:S{Y} dx:m:S{X} ws:t[4*wd] {_SIZES} acc=flag"
_PAIRS = {
    "variant": "pairs",
    "when": "lanes >= 4 and kw == 2 and sw == 2 and kh == sh and ph + pw + pb + pr == 0 "
    "and h == oh * sh and wd == 2 * ow",
    "check": _CHECK,
}


def _window_count():
    """Inline function: by how many pixels the window at output coordinate `o` is divided, 1-D."""
    from ..language.inlining import inline

    @inline
    def count(o, size, kernel_size, stride, before, after, include_pad):
        start = o * stride - before
        stop = min(start + kernel_size, size + after)
        if include_pad == 0:
            start, stop = max(start, 0), min(stop, size)
        return max(stop - start, 1)

    return count


@kernel("avgpool", _OPERANDS, check=_CHECK, work=WORK)
def avgpool(S):
    """y = mean of each window; the divisor counts padding where include_pad, as torch and ONNX.

    pb, pr: bottom and right padding, which a window may cover but not exceed when counted.
    Written: y whole. Threads split (image, channel). Order of a sum: rows, columns, float64.
    """
    import numpy as np

    from ..language.prim import div, mod, to_float

    ld, st, count = S.ld, S.st, _window_count()
    single = np.float32

    def run(thread, nthreads, k):
        planes = k.n * k.c
        for u in range(div(planes * thread, nthreads), div(planes * (thread + 1), nthreads)):
            for p in range(k.oh * k.ow):
                oy, ox = div(p, k.ow), mod(p, k.ow)
                total = 0.0
                for iy in range(max(oy * k.sh - k.ph, 0), min(oy * k.sh - k.ph + k.kh, k.h)):
                    for ix in range(max(ox * k.sw - k.pw, 0), min(ox * k.sw - k.pw + k.kw, k.wd)):
                        total += ld(k.x, (u * k.h + iy) * k.wd + ix)
                pixels = count(oy, k.h, k.kh, k.sh, k.ph, k.pb, k.include_pad)
                pixels *= count(ox, k.wd, k.kw, k.sw, k.pw, k.pr, k.include_pad)
                st(k.y, u * k.oh * k.ow + p, single(total) / to_float(pixels))

    return run


@kernel("avgpool_bwd", _BACKWARD, check=_CHECK, work=BACKWARD_WORK)
def avgpool_bwd(S):
    """dx (+)= sum over the windows that cover a pixel of dy over the window's divisor.

    Written: dx whole. Scratch: a row. Threads split rows. What was in dx is added last.
    """
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32, div, mod, to_float

    ld, st, count, ldf, stf = S.ld, S.st, _window_count(), FP32.ld, FP32.st

    def run(thread, nthreads, k):
        lines = k.n * k.c * k.h
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            u, iy = div(q, k.h), mod(q, k.h)
            for ix in range(k.wd):
                stf(k.ws, ix, ZERO)
            for r in range(k.kh):
                ty = iy + k.ph - r
                if ty < 0 or mod(ty, k.sh) != 0 or div(ty, k.sh) >= k.oh:
                    continue
                oy = div(ty, k.sh)
                rows = count(oy, k.h, k.kh, k.sh, k.ph, k.pb, k.include_pad)
                for ox in range(k.ow):
                    pixels = rows * count(ox, k.wd, k.kw, k.sw, k.pw, k.pr, k.include_pad)
                    share = ld(k.dy, (u * k.oh + oy) * k.ow + ox) / to_float(pixels)
                    for ix in range(max(ox * k.sw - k.pw, 0), min(ox * k.sw - k.pw + k.kw, k.wd)):
                        stf(k.ws, ix, ldf(k.ws, ix) + share)
            for ix in range(k.wd):
                total = ldf(k.ws, ix)
                st(k.dx, q * k.wd + ix, total + ld(k.dx, q * k.wd + ix) if k.acc != 0 else total)

    return run


@kernel("avgpool", _OPERANDS, **_PAIRS)
def avgpool_pairs(S):
    """y = mean of each window. Written: y whole. Threads split rows of y."""
    from ..language.fused_activation import ONE, ZERO
    from ..language.number import shuffled
    from ..language.prim import div, to_float
    from ..language.vector import WIDTH, loads, loads_first, stores, vsplat

    both = 2 * WIDTH
    vld, vld_first, vst = loads(S, 1, both), loads_first(S, both), stores(S)
    even, odd = (shuffled(tuple(range(first, both, 2))) for first in (0, 1))

    def run(thread, nthreads, k):
        lines, size, share = k.n * k.c * k.oh, k.n * k.c * k.h * k.wd, ONE / to_float(k.kh * k.kw)
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            for j in range(0, k.ow, WIDTH):
                total, first, rest = vsplat(ZERO), q * k.kh * k.wd + 2 * j, k.ow - j
                for offset in range(first, first + k.kh * k.wd, k.wd):
                    v = (
                        vld(k.x, offset)
                        if offset + both <= size
                        else vld_first(k.x, offset, 2 * rest)
                    )
                    total = total + (even(v, v) + odd(v, v))
                vst(k.y, q * k.ow + j, total * share, rest)

    return run


@kernel("avgpool_bwd", _BACKWARD, **_PAIRS)
def avgpool_bwd_pairs(S):
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
                    offset, count = target + 2 * j + WIDTH * part, 2 * rest - WIDTH * part
                    if count > 0:
                        z = vinterleave(v, v, part)
                        if k.acc != 0:
                            z = z + vld_first(k.dx, offset, count)
                        vst(k.dx, offset, z, count)

    return run
