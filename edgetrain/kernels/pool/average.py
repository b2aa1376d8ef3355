"""Average pooling by windows, and its gradient.

Plain variants add in float64, rows then columns, and divide. Windows two columns wide that do not
overlap have a variant on vectors of 16, which adds in float32, columns in pairs, and multiplies.
Its bits differ, so the two variants cannot share a source.
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
    """Inline function: the divisor along one axis of the window at output coordinate `o`."""
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
    """y = mean of each window; the divisor counts padding if include_pad, as in torch and ONNX.

    pb, pr: bottom and right padding, which a window may cover but not exceed when counted. Written:
    all of y. Threads split (image, channel). Order of a sum: rows, columns, float64.
    """
    import numpy as np

    from ..language.prim import div, mod, to_float

    ld, st, count = S.ld, S.st, _window_count()
    single = np.float32

    def run(thread, nthreads, args):
        planes = args.n * args.c
        for u in range(div(planes * thread, nthreads), div(planes * (thread + 1), nthreads)):
            for p in range(args.oh * args.ow):
                oy, ox = div(p, args.ow), mod(p, args.ow)
                total = 0.0
                for iy in range(
                    max(oy * args.sh - args.ph, 0), min(oy * args.sh - args.ph + args.kh, args.h)
                ):
                    for ix in range(
                        max(ox * args.sw - args.pw, 0),
                        min(ox * args.sw - args.pw + args.kw, args.wd),
                    ):
                        total += ld(args.x, (u * args.h + iy) * args.wd + ix)
                pixels = count(oy, args.h, args.kh, args.sh, args.ph, args.pb, args.include_pad)
                pixels *= count(ox, args.wd, args.kw, args.sw, args.pw, args.pr, args.include_pad)
                st(args.y, u * args.oh * args.ow + p, single(total) / to_float(pixels))

    return run


@kernel("avgpool_bwd", _BACKWARD, check=_CHECK, work=BACKWARD_WORK)
def avgpool_bwd(S):
    """dx (+)= sum over the windows that cover a pixel of dy / the window's divisor.

    Written: all of dx. Scratch: a row. Threads split rows. The previous dx is added last.
    """
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32, div, mod, to_float

    ld, st, count, ldf, stf = S.ld, S.st, _window_count(), FP32.ld, FP32.st

    def run(thread, nthreads, args):
        lines = args.n * args.c * args.h
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            u, iy = div(q, args.h), mod(q, args.h)
            for ix in range(args.wd):
                stf(args.ws, ix, ZERO)
            for r in range(args.kh):
                ty = iy + args.ph - r
                if ty < 0 or mod(ty, args.sh) != 0 or div(ty, args.sh) >= args.oh:
                    continue
                oy = div(ty, args.sh)
                rows = count(oy, args.h, args.kh, args.sh, args.ph, args.pb, args.include_pad)
                for ox in range(args.ow):
                    pixels = rows * count(
                        ox, args.wd, args.kw, args.sw, args.pw, args.pr, args.include_pad
                    )
                    share = ld(args.dy, (u * args.oh + oy) * args.ow + ox) / to_float(pixels)
                    for ix in range(
                        max(ox * args.sw - args.pw, 0),
                        min(ox * args.sw - args.pw + args.kw, args.wd),
                    ):
                        stf(args.ws, ix, ldf(args.ws, ix) + share)
            for ix in range(args.wd):
                total = ldf(args.ws, ix)
                st(
                    args.dx,
                    q * args.wd + ix,
                    total + ld(args.dx, q * args.wd + ix) if args.acc != 0 else total,
                )

    return run


@kernel("avgpool", _OPERANDS, **_PAIRS)
def avgpool_pairs(S):
    """y = mean of each window. Written: all of y. Threads split rows of y."""
    from ..language.fused_activation import ONE, ZERO
    from ..language.number import shuffled
    from ..language.prim import div, to_float
    from ..language.vector import WIDTH, loads, loads_first, stores, vsplat

    both = 2 * WIDTH
    vld, vld_first, vst = loads(S, 1, both), loads_first(S, both), stores(S)
    even, odd = (shuffled(tuple(range(first, both, 2))) for first in (0, 1))

    def run(thread, nthreads, args):
        lines = args.n * args.c * args.oh
        size = args.n * args.c * args.h * args.wd
        share = ONE / to_float(args.kh * args.kw)
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            for j in range(0, args.ow, WIDTH):
                total, first, rest = vsplat(ZERO), q * args.kh * args.wd + 2 * j, args.ow - j
                for offset in range(first, first + args.kh * args.wd, args.wd):
                    v = (
                        vld(args.x, offset)
                        if offset + both <= size
                        else vld_first(args.x, offset, 2 * rest)
                    )
                    total = total + (even(v, v) + odd(v, v))
                vst(args.y, q * args.ow + j, total * share, rest)

    return run


@kernel("avgpool_bwd", _BACKWARD, **_PAIRS)
def avgpool_bwd_pairs(S):
    """dx (+)= dy of the window / its size. Written: all of dx. Threads split rows of dy."""
    from ..language.fused_activation import ONE
    from ..language.inlining import inline
    from ..language.prim import div, to_float
    from ..language.vector import WIDTH, loads, loads_first, stores, vinterleave

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)

    @inline
    def put_rows(args, offset, value, count):
        """Store or add the same lanes in every row of the windows."""
        for r in range(args.kh):
            row = offset + r * args.wd
            if args.acc != 0:
                vst(args.dx, row, value + vld_first(args.dx, row, count), count)
            else:
                vst(args.dx, row, value, count)

    def run(thread, nthreads, args):
        lines, share = args.n * args.c * args.oh, ONE / to_float(args.kh * args.kw)
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            for j in range(0, args.ow, WIDTH):
                source, target, rest = q * args.ow + j, q * args.kh * args.wd + 2 * j, args.ow - j
                v = vld(args.dy, source) if rest >= WIDTH else vld_first(args.dy, source, rest)
                v = v * share
                put_rows(args, target, vinterleave(v, v, 0), 2 * rest)
                if 2 * rest > WIDTH:
                    put_rows(args, target + WIDTH, vinterleave(v, v, 1), 2 * rest - WIDTH)

    return run
