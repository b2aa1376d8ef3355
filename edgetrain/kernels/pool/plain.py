"""Max and average pooling over windows, forward and backward; global pooling is one window.

x [n, c, h, wd], y [n, c, oh, ow], contiguous; ph, pw are the top and left padding. Backward
kernels take an input row at a time: the windows over it add to a float32 row of scratch, kernel
rows in order, then output columns in order, and each pixel is written once.
"""

from ..language.strides import windows
from ..registry import kernel

_SIZES = "n c h wd oh ow kh kw sh sw ph pw"
_X, _Y = "[n*c*h*wd]", "[n*c*oh*ow]"
_CHECK = "min(n, c, h, wd, oh, ow) > 0;min(ph, pw) >= 0;min(kh, kw, sh, sw) > 0"
MAX_CHECK = f"{_CHECK};min(dh, dw) > 0;kh * kw <= 65536;{windows('dh', 'dw')}"
_WORK = "n*c*oh*ow*kh*kw"
_BACKWARD_WORK = f"{_WORK} + n*c*h*kh"
maxpool_operands = f"x:r:S{_X} y:w:S{_Y} idx?:w:I{_Y} {_SIZES} dh dw"
maxpool_bwd_operands = f"idx:r:I{_Y} dy:r:S{_Y} dx:m:S{_X} ws:t[4*wd] {_SIZES} dh dw acc=flag"


def one_window(S, I):  # noqa: E741
    """Inline (operands, plane, oy, ox): the maximum of a window."""
    import numpy as np

    from ..language.inlining import inline

    ld, st, sti = S.ld, S.st, I.st
    lowest = np.float32(-np.inf)

    @inline
    def one(k, u, oy, ox):
        y0, x0, p = oy * k.sh - k.ph, ox * k.sw - k.pw, (u * k.oh + oy) * k.ow + ox
        best, where, none = lowest, 0, True
        for r in range(k.kh):
            iy = y0 + r * k.dh
            if iy < 0 or iy >= k.h:
                continue
            row = (u * k.h + iy) * k.wd
            for s in range(k.kw):
                ix = x0 + s * k.dw
                if ix >= 0 and ix < k.wd:
                    v = ld(k.x, row + ix)
                    if none or v > best or v != v:
                        best, where, none = v, r * k.kw + s, False
        st(k.y, p, best)
        if k.idx != 0:
            sti(k.idx, p, where)

    return one


@kernel("maxpool", maxpool_operands, check=MAX_CHECK, work=_WORK)
def maxpool(S, I):  # noqa: E741
    """y = maximum of each window; idx = its position r * kw + s, the first among equals.

    Written: y, idx whole (idx as u8 holds windows of at most 256). A NaN wins, the last one
    where there are several, as in torch. Threads split (image, channel).
    """
    from ..language.prim import div, mod

    one = one_window(S, I)

    def run(thread, nthreads, k):
        planes = k.n * k.c
        for u in range(div(planes * thread, nthreads), div(planes * (thread + 1), nthreads)):
            for p in range(k.oh * k.ow):
                one(k, u, div(p, k.ow), mod(p, k.ow))

    return run


@kernel("maxpool_bwd", maxpool_bwd_operands, check=MAX_CHECK, work=_BACKWARD_WORK)
def maxpool_bwd(I, S):  # noqa: E741
    """dx (+)= dy of every window whose maximum the pixel was.

    Written: dx whole. Scratch: a row. Threads split rows. What was in dx is added last.
    Positions outside the window or the image are skipped.
    """
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32, div, mod

    ld, st, ldi, ldf, stf = S.ld, S.st, I.ld, FP32.ld, FP32.st

    def run(thread, nthreads, k):
        rows = k.n * k.c * k.h
        for q in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            u, iy = div(q, k.h), mod(q, k.h)
            for ix in range(k.wd):
                stf(k.ws, ix, ZERO)
            for r in range(k.kh):
                ty = iy + k.ph - r * k.dh
                if ty < 0 or mod(ty, k.sh) != 0 or div(ty, k.sh) >= k.oh:
                    continue
                line = (u * k.oh + div(ty, k.sh)) * k.ow
                for ox in range(k.ow):
                    s = ldi(k.idx, line + ox) - r * k.kw
                    ix = ox * k.sw - k.pw + s * k.dw
                    if s >= 0 and s < k.kw and ix >= 0 and ix < k.wd:
                        stf(k.ws, ix, ldf(k.ws, ix) + ld(k.dy, line + ox))
            for ix in range(k.wd):
                total = ldf(k.ws, ix)
                st(k.dx, q * k.wd + ix, total + ld(k.dx, q * k.wd + ix) if k.acc != 0 else total)

    return run


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


_AVERAGE = _SIZES + " pb pr include_pad=flag"
AVERAGE_CHECK = f"{_CHECK};min(pb, pr) >= 0;{windows('1', '1')}"
avgpool_operands = f"x:r:S{_X} y:w:S{_Y} {_AVERAGE}"
avgpool_bwd_operands = f"dy:r:S{_Y} dx:m:S{_X} ws:t[4*wd] {_AVERAGE} acc=flag"


@kernel("avgpool", avgpool_operands, check=AVERAGE_CHECK, work=_WORK)
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


@kernel("avgpool_bwd", avgpool_bwd_operands, check=AVERAGE_CHECK, work=_BACKWARD_WORK)
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
