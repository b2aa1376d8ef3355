"""Convolution, its input gradient and its weight gradient: plain loops for every shape.

Tensors are contiguous: x [n, c, h, wd], w [k, c/g, kh, kw], y [n, k, oh, ow]. ph and pw are the top
and left padding; bottom and right follow from oh and ow. A 1-D convolution has h = kh = oh = 1.

Prologue: with `stat` (batch-norm statistics, see norm/batch.py) act(fma(x, a, b)) is convolved,
without it act(x); padding stays zero either way.
"""

from ..language.strides import windows
from ..registry import kernel

INTS = "n c h wd k kh kw oh ow sh sw ph pw dh dw g"
CHECK = (
    "min(n, h, wd, oh, ow) > 0;min(ph, pw) >= 0;"
    "min(c, k, kh, kw, sh, sw, dh, dw, g) > 0;c % g == 0;k % g == 0;"
    # fast variants keep byte offsets in a channel's weights in 32 bits
    "max(c, k) // g * kh * kw < 268435456;" + windows("dh", "dw")
)
WORK = "n*k*oh*ow*(c//g)*kh*kw"
DX_WORK = f"{WORK} + n*c*h*wd*(k//g)*kh*kw"
_PROLOGUE = "stat?:r:f32[3*c] gamma?:r:f32[c] beta?:r:f32[c]"
_X, _W, _Y = "[n*c*h*wd]", "[k*(c//g)*kh*kw]", "[n*k*oh*ow]"


def forward_operands(scratch: str) -> str:
    """Declaration of `conv` with this many bytes of scratch, an expression."""
    return (
        f"x:r:S{_X} w:r:W{_W} bias?:r:f32[k] {_PROLOGUE} y:w:S{_Y} ws:t[{scratch}] "
        f"{INTS} act=activation lo:f hi:f"
    )


def dx_operands(scratch: str) -> str:
    """Declaration of `conv_dx`."""
    return f"dy:r:S{_Y} w:r:W{_W} dx:m:S{_X} ws:t[{scratch}] {INTS} acc=flag"


def dw_operands(scratch: str) -> str:
    """Declaration of `conv_dw`; `dwt` is the accumulator, since `dw` is the dilation."""
    return (
        f"x:r:S{_X} {_PROLOGUE} dy:r:S{_Y} dwt:m:G{_W} ctl:r:i64[64] ws:t[{scratch}] "
        f"{INTS} act=activation lo:f hi:f key=compared"
    )


# On processors without vectors, four channels at a time share what they read. With fewer channels,
# this would recompute more than it saves.
SHARED_OUTPUTS, _SHARED_INPUTS = "lanes == 1 and k // g >= 3", "lanes == 1 and c // g >= 3"


def _forward(at_once: int):
    """`conv`: y = conv(prologue(x), w) + bias.

    Written: all of y. Scratch: none. Threads split (image, `at_once` output channels); if a group's
    channels are not a multiple of that, its last one is computed more than once. Order of a sum:
    bias, then input channels, kernel rows, kernel columns, each by fma in float32.
    """

    def factory(S, W):
        from ..language.fused_activation import ZERO, act_value, norm_scale, norm_shift
        from ..language.number import fma
        from ..language.prim import FP32, div, mod

        ld, st, ldw, ldf, lanes = S.ld, S.st, W.ld, FP32.ld, tuple(range(at_once))

        def run(thread, nthreads, args):
            cg, kg, pixels = div(args.c, args.g), div(args.k, args.g), args.oh * args.ow
            size, each = cg * args.kh * args.kw, div(kg + at_once - 1, at_once)
            units = args.n * args.g * each
            for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
                b, part = div(u, args.g * each), mod(u, args.g * each)
                group, first = div(part, each), mod(part, each) * at_once
                outputs = tuple(group * kg + min(first + i, kg - 1) for i in lanes)
                plane = (b * args.c + group * cg) * args.h
                for p in range(pixels):
                    y0 = div(p, args.ow) * args.sh - args.ph
                    x0 = mod(p, args.ow) * args.sw - args.pw
                    totals = tuple(ZERO for _ in lanes)
                    if args.bias != 0:
                        totals = tuple(ldf(args.bias, o) for o in outputs)
                    for q in range(cg * args.kh):
                        i, iy = div(q, args.kh), y0 + mod(q, args.kh) * args.dh
                        if iy < 0 or iy >= args.h:
                            continue
                        row, taps = (plane + i * args.h + iy) * args.wd, q * args.kw
                        for s in range(args.kw):
                            ix = x0 + s * args.dw
                            if ix >= 0 and ix < args.wd:
                                v = ld(args.x, row + ix)
                                if args.stat != 0:
                                    ch = group * cg + i
                                    a = norm_scale(args.stat, args.gamma, ch, args.c)
                                    v = fma(
                                        v,
                                        a,
                                        norm_shift(args.stat, args.gamma, args.beta, ch, args.c),
                                    )
                                v = act_value(args.act, v, args.lo, args.hi)
                                totals = tuple(
                                    fma(v, ldw(args.w, o * size + taps + s), total)
                                    for o, total in zip(outputs, totals, strict=True)
                                )
                    for o, total in zip(outputs, totals, strict=True):
                        st(args.y, (b * args.k + o) * pixels + p, total)

        return run

    return factory


def _input_gradient(at_once: int):
    """`conv_dx`: dx (+)= transposed convolution of dy; the prologue's own gradient is computed
    elsewhere.

    Written: all of dx, added to if acc. Scratch: none. Threads split (image, `at_once` input
    channels). Order of a sum: output channels of the group, kernel rows, kernel columns, fma in
    float32; the previous dx is added last.
    """

    def factory(S, W):
        from ..language.fused_activation import ZERO
        from ..language.number import fma
        from ..language.prim import div, mod

        ld, st, ldw, lanes = S.ld, S.st, W.ld, tuple(range(at_once))

        def run(thread, nthreads, args):
            cg = div(args.c, args.g)
            kg = div(args.k, args.g)
            taps = args.kh * args.kw
            pixels = args.h * args.wd
            each = div(cg + at_once - 1, at_once)
            units = args.n * args.g * each
            for u in range(div(units * thread, nthreads), div(units * (thread + 1), nthreads)):
                b, part = div(u, args.g * each), mod(u, args.g * each)
                group, first = div(part, each), mod(part, each) * at_once
                inputs = tuple(min(first + i, cg - 1) for i in lanes)
                plane = (b * args.c + group * cg) * pixels
                for p in range(pixels):
                    y0, x0 = div(p, args.wd) + args.ph, mod(p, args.wd) + args.pw
                    totals = tuple(ZERO for _ in lanes)
                    for q in range(kg * args.kh):
                        o, r = group * kg + div(q, args.kh), mod(q, args.kh)
                        ty = y0 - r * args.dh
                        if ty < 0 or mod(ty, args.sh) != 0 or div(ty, args.sh) >= args.oh:
                            continue
                        row = ((b * args.k + o) * args.oh + div(ty, args.sh)) * args.ow
                        for s in range(args.kw):
                            tx = x0 - s * args.dw
                            if tx >= 0 and mod(tx, args.sw) == 0 and div(tx, args.sw) < args.ow:
                                d = ld(args.dy, row + div(tx, args.sw))
                                tap = o * cg * taps + r * args.kw + s
                                totals = tuple(
                                    fma(d, ldw(args.w, i * taps + tap), total)
                                    for i, total in zip(inputs, totals, strict=True)
                                )
                    for j, (i, total) in enumerate(zip(inputs, totals, strict=True)):
                        if i == first + j:  # not a repeat of the last channel
                            offset = plane + i * pixels + p
                            st(
                                args.dx,
                                offset,
                                total + ld(args.dx, offset) if args.acc != 0 else total,
                            )

        return run

    return factory


def _register(at_once: int, of_outputs: dict[str, str], of_inputs: dict[str, str]) -> None:
    outputs = kernel("conv", forward_operands("0"), check=CHECK, work=WORK, **of_outputs)
    inputs = kernel("conv_dx", dx_operands("0"), check=CHECK, work=DX_WORK, **of_inputs)
    outputs(_forward(at_once))
    inputs(_input_gradient(at_once))


_register(
    4,
    {"variant": "scalar", "when": SHARED_OUTPUTS},
    {"variant": "scalar", "when": _SHARED_INPUTS},
)
_register(1, {}, {})


@kernel("conv_dw", dw_operands("0"), check=CHECK, work=WORK)
def conv_dw(S, G):
    """dwt += sum over images and pixels of dy * prologue(x), rounded stochastically.

    Written: all of dwt. Scratch: none. Threads split the elements of dwt. Order of a sum: images,
    output rows, output columns, of float32 products in float64; then one addition to the
    accumulator, rounded to float32.
    """
    from ..language.fused_activation import act_value, norm_scale, norm_shift
    from ..language.number import fma
    from ..language.prim import div, mod, u32
    from ..language.rng import stream

    ld, ldg, sr = S.ld, G.ld, G.sr

    def run(thread, nthreads, args):
        cg, numbers = div(args.c, args.g), stream(args.ctl, u32(args.key))
        taps = args.k * cg * args.kh * args.kw
        for e in range(div(taps * thread, nthreads), div(taps * (thread + 1), nthreads)):
            s = mod(e, args.kw) * args.dw - args.pw
            r = mod(div(e, args.kw), args.kh) * args.dh - args.ph
            o = div(e, cg * args.kh * args.kw)
            ch = div(o, div(args.k, args.g)) * cg + mod(div(e, args.kh * args.kw), cg)
            total = 0.0
            for q in range(args.n * args.oh):
                b, iy = div(q, args.oh), mod(q, args.oh) * args.sh + r
                if iy < 0 or iy >= args.h:
                    continue
                row = ((b * args.c + ch) * args.h + iy) * args.wd
                out = ((b * args.k + o) * args.oh + mod(q, args.oh)) * args.ow
                for j in range(args.ow):
                    ix = j * args.sw + s
                    if ix >= 0 and ix < args.wd:
                        v = ld(args.x, row + ix)
                        if args.stat != 0:
                            a = norm_scale(args.stat, args.gamma, ch, args.c)
                            v = fma(v, a, norm_shift(args.stat, args.gamma, args.beta, ch, args.c))
                        v = act_value(args.act, v, args.lo, args.hi)
                        total += float(v) * float(ld(args.dy, out + j))
            sr(args.dwt, e, ldg(args.dwt, e) + total, numbers)

    return run
