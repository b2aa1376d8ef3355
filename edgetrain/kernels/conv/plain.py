"""Convolution, its input gradient and its weight gradient: plain loops for every shape.

Tensors are contiguous: x [n, c, h, wd], w [k, c/g, kh, kw], y [n, k, oh, ow]. ph and pw are the
top and left padding; bottom and right follow from oh and ow. A 1-D convolution has h = kh = oh = 1.

Prologue: with `stat` (batch-norm statistics, see norm.py) the convolution of
act(fma(x, a, b)) is taken, without it of act(x); padding stays zero either way.
"""

from ..registry import kernel
from ..words.strides import windows

INTS = "n c h wd k kh kw oh ow sh sw ph pw dh dw g"
CHECK = (
    "min(n, h, wd, oh, ow) > 0;min(ph, pw) >= 0;"
    "min(c, k, kh, kw, sh, sw, dh, dw, g) > 0;c % g == 0;k % g == 0;"
    # fast variants keep places in a channel's weights as 32-bit numbers of bytes
    "max(c, k) // g * kh * kw < 268435456;" + windows("dh", "dw")
)
WORK = "n*k*oh*ow*(c//g)*kh*kw"
DX_WORK = f"{WORK} + n*c*h*wd*(k//g)*kh*kw"
_PROLOGUE = "stat?:r:f32[3*c] gamma?:r:f32[c] beta?:r:f32[c]"
_X, _W, _Y = "[n*c*h*wd]", "[k*(c//g)*kh*kw]", "[n*k*oh*ow]"


def forward_operands(scratch: str) -> str:
    """Declaration of `conv` with this many bytes of scratch."""
    return (
        f"x:r:S{_X} w:r:W{_W} bias?:r:f32[k] {_PROLOGUE} y:w:S{_Y} ws:t[{scratch}] "
        f"{INTS} act lo:f hi:f"
    )


def dx_operands(scratch: str) -> str:
    """Declaration of `conv_dx`."""
    return f"dy:r:S{_Y} w:r:W{_W} dx:m:S{_X} ws:t[{scratch}] {INTS} acc"


def dw_operands(scratch: str) -> str:
    """Declaration of `conv_dw`; `dwt` is the accumulator, since `dw` is the dilation."""
    return (
        f"x:r:S{_X} {_PROLOGUE} dy:r:S{_Y} dwt:m:G{_W} ctl:r:i64[64] ws:t[{scratch}] "
        f"{INTS} act lo:f hi:f key"
    )


@kernel("conv", forward_operands("0"), check=CHECK, work=WORK)
def conv(S, W):
    """y = conv(prologue(x), w) + bias.

    Written: y whole. Scratch: none. Threads split (image, output channel). Order of a sum: bias,
    then input channels, kernel rows, kernel columns, each by fma in float32.
    """
    from ..words.act import ZERO, act_value, norm_scale, norm_shift
    from ..words.prim import FP32, div, fma, mod

    ld, st, ldw, ldf = S.ld, S.st, W.ld, FP32.ld

    def run(
        thread, nthreads, x, w, bias, stat, gamma, beta, y, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, act, lo, hi,
    ):  # fmt: skip
        cg = div(c, g)
        for u in range(div(n * k * thread, nthreads), div(n * k * (thread + 1), nthreads)):
            o = mod(u, k)
            first = div(o, div(k, g)) * cg
            plane = (div(u, k) * c + first) * h
            for p in range(oh * ow):
                y0, x0 = div(p, ow) * sh - ph, mod(p, ow) * sw - pw
                total = ldf(bias, o) if bias != 0 else ZERO
                for q in range(cg * kh):
                    i, iy = div(q, kh), y0 + mod(q, kh) * dh
                    if iy < 0 or iy >= h:
                        continue
                    row = (plane + i * h + iy) * wd
                    for s in range(kw):
                        ix = x0 + s * dw
                        if ix >= 0 and ix < wd:
                            v = ld(x, row + ix)
                            if stat != 0:
                                a = norm_scale(stat, gamma, first + i, c)
                                v = fma(v, a, norm_shift(stat, gamma, beta, first + i, c))
                            v = act_value(act, v, lo, hi)
                            total = fma(v, ldw(w, (o * cg * kh + q) * kw + s), total)
                st(y, u * oh * ow + p, total)

    return run


@kernel("conv_dx", dx_operands("0"), check=CHECK, work=DX_WORK)
def conv_dx(S, W):
    """dx (+)= transposed convolution of dy; the prologue's own gradient is taken elsewhere.

    Written: dx whole, added to where acc. Scratch: none. Threads split (image, input channel).
    Order of a sum: output channels of the group, kernel rows, kernel columns, fma in float32;
    what was in dx is added last.
    """
    from ..words.act import ZERO
    from ..words.prim import div, fma, mod

    ld, st, ldw = S.ld, S.st, W.ld

    def run(
        thread, nthreads, dy, w, dx, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, acc,
    ):  # fmt: skip
        cg, kg = div(c, g), div(k, g)
        for u in range(div(n * c * thread, nthreads), div(n * c * (thread + 1), nthreads)):
            ch = mod(u, c)
            group, i = div(ch, cg), mod(ch, cg)
            for p in range(h * wd):
                y0, x0 = div(p, wd) + ph, mod(p, wd) + pw
                total = ZERO
                for q in range(kg * kh):
                    o, r = group * kg + div(q, kh), mod(q, kh)
                    ty = y0 - r * dh
                    if ty < 0 or mod(ty, sh) != 0 or div(ty, sh) >= oh:
                        continue
                    row = ((div(u, c) * k + o) * oh + div(ty, sh)) * ow
                    for s in range(kw):
                        tx = x0 - s * dw
                        if tx >= 0 and mod(tx, sw) == 0 and div(tx, sw) < ow:
                            weight = ldw(w, ((o * cg + i) * kh + r) * kw + s)
                            total = fma(ld(dy, row + div(tx, sw)), weight, total)
                if acc != 0:
                    total += ld(dx, u * h * wd + p)
                st(dx, u * h * wd + p, total)

    return run


@kernel("conv_dw", dw_operands("0"), check=CHECK, work=WORK)
def conv_dw(S, G):
    """dwt += sum over images and pixels of dy * prologue(x), rounded stochastically.

    Written: dwt whole. Scratch: none. Threads split the elements of dwt. Order of a sum: images,
    output rows, output columns, in float64; then one float32 addition to the accumulator.
    """
    from ..words.act import act_value, norm_scale, norm_shift
    from ..words.prim import div, fma, mod, u32
    from ..words.rng import stream

    ld, ldg, sr = S.ld, G.ld, G.sr

    def run(
        thread, nthreads, x, stat, gamma, beta, dy, dwt, ctl, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, act, lo, hi, key,
    ):  # fmt: skip
        cg, numbers = div(c, g), stream(ctl, u32(key))
        taps = k * cg * kh * kw
        for e in range(div(taps * thread, nthreads), div(taps * (thread + 1), nthreads)):
            s, r = mod(e, kw) * dw - pw, mod(div(e, kw), kh) * dh - ph
            o = div(e, cg * kh * kw)
            ch = div(o, div(k, g)) * cg + mod(div(e, kh * kw), cg)
            total = 0.0
            for q in range(n * oh):
                b, iy = div(q, oh), mod(q, oh) * sh + r
                if iy < 0 or iy >= h:
                    continue
                row, out = ((b * c + ch) * h + iy) * wd, ((b * k + o) * oh + mod(q, oh)) * ow
                for j in range(ow):
                    ix = j * sw + s
                    if ix >= 0 and ix < wd:
                        v = ld(x, row + ix)
                        if stat != 0:
                            a = norm_scale(stat, gamma, ch, c)
                            v = fma(v, a, norm_shift(stat, gamma, beta, ch, c))
                        v = act_value(act, v, lo, hi)
                        total += float(v) * float(ld(dy, out + j))
            sr(dwt, e, ldg(dwt, e) + total, numbers)

    return run
