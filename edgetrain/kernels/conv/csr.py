"""Convolution with a sparse weight, its input gradient, and its weight gradient at the nonzeros.

x [n, c, h, wd], y [n, k, oh, ow] as in conv/plain.py, same prologue. The weight is a pool of slots
(see formats/csr.py), in chunks of input channels, chunks = ceil(c / g / chunk). Nonzero e of row
(output channel) o and chunk q has the value w[e] and the column columns[e]:

    pointers[o * chunks + q] <= e < pointers[o * chunks + q + 1]
    columns[e] = (channel - q * chunk) * kh * kw + kernel row * kw + kernel column

If `room` is not 0, `w` (and `dwt`) is not the pool but only this layer's slots: `room` of them from
pointers[0] on. If `held` is not 0, it bounds a layer's nonzeros and asks for little scratch.
Pointers and columns are trusted: whoever writes them has checked them.
"""

from ..language.inlining import inline
from ..language.prim import ld_i32
from ..language.strides import reach
from ..registry import kernel
from .plain import CHECK, DX_WORK, INTS, WORK

PIXELS = 1024  # most pixels of a band of rows that is summed in scratch
_PROLOGUE = "stat?:r:f32[3*c] gamma?:r:f32[c] beta?:r:f32[c]"
_X, _Y = "[n*c*h*wd]", "[n*k*oh*ow]"
_PATTERN = "columns:r:I[slots] pointers:r:i32[k*((c//g+chunk-1)//chunk)+1]"
CSR_CHECK = f"{CHECK};min(chunk, slots) > 0;max(room, held) <= slots"
HELD = "(held if held > 0 else slots)"  # slots that hold all of a layer's nonzeros
_POOL = "[(room if room > 0 else slots)]"


def aimed(usual: int | str, least: int | str) -> str:
    """Expression for target bytes or counts: `least` if `held` asks for little scratch."""
    return f"({usual} if held == 0 else {least})"


def lower_bounds(INDEX):
    """Inline function that finds the first of nonzeros low <= e < high, sorted by column, whose
    column is `wanted` or later."""
    ldc = INDEX.ld

    @inline
    def lower_bound(columns, low, high, wanted):
        while low < high:
            middle = (low + high) >> 1
            if ldc(columns, middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    return lower_bound


FORWARD_BAND = f"4*ow*min(oh, max(1, {PIXELS}//ow))"
DX_BAND = f"4*wd*min(h, max(1, {PIXELS}//wd))"


def forward_operands(scratch: str) -> str:
    """Declaration of `conv_csr` with this many bytes of scratch."""
    return (
        f"x:r:S{_X} w:r:W{_POOL} bias?:r:f32[k] {_PROLOGUE} {_PATTERN} y:w:S{_Y} "
        f"ws:t[{scratch}] {INTS} chunk slots act=activation lo:f hi:f room held"
    )


def dx_operands(scratch: str) -> str:
    """Declaration of `conv_csr_dx`."""
    operands = f"dy:r:S{_Y} w:r:W{_POOL} {_PATTERN} dx:m:S{_X} ws:t[{scratch}] {INTS}"
    return f"{operands} chunk slots acc=flag room held"


def dw_operands(scratch: str) -> str:
    """Declaration of `conv_csr_dw`; `dwt` is the accumulator of the whole pool."""
    return (
        f"x:r:S{_X} {_PROLOGUE} dy:r:S{_Y} {_PATTERN} dwt:m:G{_POOL} ctl:r:i64[64] "
        f"ws:t[{scratch}] {INTS} chunk slots act=activation lo:f hi:f key=compared room held"
    )


@inline
def pool_base(address, nbytes, args):
    """Address of slot 0 of the pool, or where it would be if only the layer's slots are present."""
    return address if args.room == 0 else address - nbytes * ld_i32(args.pointers, 0)


@kernel("conv_csr", forward_operands(FORWARD_BAND), check=CSR_CHECK, work=WORK)
def conv_csr(S, W, INDEX):
    """y = conv(prologue(x), w) + bias.

    Written: all of y. Scratch: a band of output rows in float32. Threads split (image, output
    channel). Order of a sum: bias, then the row's nonzeros in order, each by fma in float32.
    """
    from ..language.fused_activation import ONE, ZERO, act_value, norm_scale, norm_shift
    from ..language.number import fma
    from ..language.prim import FP32, div, mod

    ld, st, ldw, ldc, ldf, stf = S.ld, S.st, W.ld, INDEX.ld, FP32.ld, FP32.st
    nbytes = W.nbytes
    first_inside, end_inside = reach()

    def run(thread, nthreads, args):
        cg, taps, pool = div(args.c, args.g), args.kh * args.kw, pool_base(args.w, nbytes, args)
        chunks, band = div(cg + args.chunk - 1, args.chunk), max(1, div(PIXELS, args.ow))
        for u in range(
            div(args.n * args.k * thread, nthreads), div(args.n * args.k * (thread + 1), nthreads)
        ):
            o = mod(u, args.k)
            channel = div(o, div(args.k, args.g)) * cg
            images = div(u, args.k) * args.c
            start = ldf(args.bias, o) if args.bias != 0 else ZERO
            for top in range(0, args.oh, band):
                rows = min(band, args.oh - top)
                for p in range(rows * args.ow):
                    stf(args.ws, p, start)
                for q in range(chunks):
                    offset = o * chunks + q
                    for e in range(
                        ld_i32(args.pointers, offset), ld_i32(args.pointers, offset + 1)
                    ):
                        column, weight = ldc(args.columns, e), ldw(pool, e)
                        ch = channel + q * args.chunk + div(column, taps)
                        tap = mod(column, taps)
                        iy0 = div(tap, args.kw) * args.dh - args.ph
                        ix0 = mod(tap, args.kw) * args.dw - args.pw
                        a, b = ONE, ZERO
                        if args.stat != 0:
                            a = norm_scale(args.stat, args.gamma, ch, args.c)
                            b = norm_shift(args.stat, args.gamma, args.beta, ch, args.c)
                        left = first_inside(ix0, args.sw)
                        right = end_inside(ix0, args.sw, args.wd, args.ow)
                        for row in range(rows):
                            iy = (top + row) * args.sh + iy0
                            if iy < 0 or iy >= args.h:
                                continue
                            source = ((images + ch) * args.h + iy) * args.wd + ix0
                            out = row * args.ow
                            for j in range(left, right):
                                v = ld(args.x, source + j * args.sw)
                                if args.stat != 0:
                                    v = fma(v, a, b)
                                v = act_value(args.act, v, args.lo, args.hi)
                                stf(args.ws, out + j, fma(v, weight, ldf(args.ws, out + j)))
                for p in range(rows * args.ow):
                    st(args.y, (u * args.oh + top) * args.ow + p, ldf(args.ws, p))

    return run


@kernel("conv_csr_dx", dx_operands(DX_BAND), check=CSR_CHECK, work=DX_WORK, blocks="W")
def conv_csr_dx(S, W, INDEX):
    """dx (+)= transposed convolution of dy; the prologue's own gradient is computed elsewhere.

    Written: all of dx, added to if acc. Scratch: a band of input rows in float32. Threads split
    (image, input channel); the channel's nonzeros in a (row, chunk) are found by bisection. Order
    of a sum: output channels, kernel elements, fma in float32; the previous dx is added last.
    """
    from ..language.fused_activation import ZERO
    from ..language.number import fma
    from ..language.prim import FP32, div, mod

    ld, st, ldw, ldc, ldf, stf = S.ld, S.st, W.ld, INDEX.ld, FP32.ld, FP32.st
    nbytes = W.nbytes
    first_inside, end_inside = reach()

    lower_bound = lower_bounds(INDEX)

    def run(thread, nthreads, args):
        cg, kg, taps = div(args.c, args.g), div(args.k, args.g), args.kh * args.kw
        pool = pool_base(args.w, nbytes, args)
        chunks, band = div(cg + args.chunk - 1, args.chunk), max(1, div(PIXELS, args.wd))
        for u in range(
            div(args.n * args.c * thread, nthreads), div(args.n * args.c * (thread + 1), nthreads)
        ):
            ch = mod(u, args.c)
            group, i = div(ch, cg), mod(ch, cg)
            q = div(i, args.chunk)
            wanted = (i - q * args.chunk) * taps
            for top in range(0, args.h, band):
                rows = min(band, args.h - top)
                for p in range(rows * args.wd):
                    stf(args.ws, p, ZERO)
                for o in range(group * kg, group * kg + kg):
                    end = ld_i32(args.pointers, o * chunks + q + 1)
                    e = lower_bound(
                        args.columns, ld_i32(args.pointers, o * chunks + q), end, wanted
                    )
                    while e < end and ldc(args.columns, e) < wanted + taps:
                        tap, weight = ldc(args.columns, e) - wanted, ldw(pool, e)
                        iy0 = div(tap, args.kw) * args.dh - args.ph
                        ix0 = mod(tap, args.kw) * args.dw - args.pw
                        left = first_inside(ix0, args.sw)
                        right = end_inside(ix0, args.sw, args.wd, args.ow)
                        low = first_inside(iy0 - top, args.sh)
                        high = end_inside(iy0 - top, args.sh, rows, args.oh)
                        for oy in range(low, high):
                            source = ((div(u, args.c) * args.k + o) * args.oh + oy) * args.ow
                            out = (oy * args.sh + iy0 - top) * args.wd + ix0
                            for j in range(left, right):
                                old = ldf(args.ws, out + j * args.sw)
                                stf(
                                    args.ws,
                                    out + j * args.sw,
                                    fma(ld(args.dy, source + j), weight, old),
                                )
                        e += 1
                for p in range(rows * args.wd):
                    offset = (u * args.h + top) * args.wd + p
                    total = ldf(args.ws, p)
                    if args.acc != 0:
                        total += ld(args.dx, offset)
                    st(args.dx, offset, total)

    return run


@kernel("conv_csr_dw", dw_operands("0"), check=CSR_CHECK, work=WORK)
def conv_csr_dw(S, INDEX, G):
    """dwt[e] += sum over images and pixels of dy * prologue(x) at every nonzero e, rounded
    stochastically.

    Written: dwt at the layer's nonzeros. Scratch: none. Threads split the output channels. Order of
    a sum of float32 products, in float64: images, output rows; a row's columns in four interleaved
    sums; then one float32 addition to the accumulator.
    """
    from ..language.fused_activation import ONE, ZERO, act_value, norm_scale, norm_shift
    from ..language.number import fma
    from ..language.prim import div, mod, u32
    from ..language.rng import stream
    from .records import Affine, LinePair

    ld, ldc, ldg, sr, nbytes = S.ld, INDEX.ld, G.ld, G.sr, G.nbytes
    first_inside, end_inside = reach()

    @inline
    def product(line, j, how):
        v = ld(line.x, line.offset + j * line.stride)
        if how.norm != 0:
            v = fma(v, how.scale, how.shift)
        return float(act_value(how.act, v, how.lo, how.hi)) * float(ld(line.dy, line.out + j))

    @inline
    def dot(line, left, right, how):
        s0 = s1 = s2 = s3 = 0.0
        limit = right - mod(max(right - left, 0), 4)
        for j in range(left, limit, 4):
            s0 += product(line, j, how)
            s1 += product(line, j + 1, how)
            s2 += product(line, j + 2, how)
            s3 += product(line, j + 3, how)
        for j in range(limit, right):
            s0 += product(line, j, how)
        return (s0 + s1) + (s2 + s3)

    def run(thread, nthreads, args):
        cg, taps, numbers = div(args.c, args.g), args.kh * args.kw, stream(args.ctl, u32(args.key))
        chunks, target = div(cg + args.chunk - 1, args.chunk), pool_base(args.dwt, nbytes, args)
        for offset in range(
            div(args.k * thread, nthreads) * chunks, div(args.k * (thread + 1), nthreads) * chunks
        ):
            o = div(offset, chunks)
            channel = div(o, div(args.k, args.g)) * cg + mod(offset, chunks) * args.chunk
            for e in range(ld_i32(args.pointers, offset), ld_i32(args.pointers, offset + 1)):
                ch, tap = channel + div(ldc(args.columns, e), taps), mod(ldc(args.columns, e), taps)
                iy0 = div(tap, args.kw) * args.dh - args.ph
                ix0 = mod(tap, args.kw) * args.dw - args.pw
                left, right = first_inside(ix0, args.sw), end_inside(ix0, args.sw, args.wd, args.ow)
                low, high = first_inside(iy0, args.sh), end_inside(iy0, args.sh, args.h, args.oh)
                norm, a, b = 0, ONE, ZERO
                if args.stat != 0:
                    norm, a = 1, norm_scale(args.stat, args.gamma, ch, args.c)
                    b = norm_shift(args.stat, args.gamma, args.beta, ch, args.c)
                how, total = Affine(norm, a, b, args.act, args.lo, args.hi), 0.0
                for image in range(args.n):
                    for oy in range(low, high):
                        source = (
                            (image * args.c + ch) * args.h + oy * args.sh + iy0
                        ) * args.wd + ix0
                        out = ((image * args.k + o) * args.oh + oy) * args.ow
                        total += dot(
                            LinePair(args.x, source, args.sw, args.dy, out), left, right, how
                        )
                sr(target, e, ldg(target, e) + total, numbers)

    return run
