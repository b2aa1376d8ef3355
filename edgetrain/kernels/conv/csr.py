"""Convolution by a sparse weight, its input gradient and its weight gradient at the nonzeros.

x [n, c, h, wd], y [n, k, oh, ow] as in conv/plain.py, same prologue. The weight is a pool of slots
(see formats/csr.py): nonzero e of row (output channel) o and chunk q of input channels, for
pointers[o * chunks + q] <= e < pointers[o * chunks + q + 1], has the value w[e] and the column
columns[e] = (channel - q * chunk) * kh * kw + kernel row * kw + kernel column. chunks =
ceil(c / g / chunk). Where `room` is not 0, `w` (and `dwt`) is not the pool but that many slots from
pointers[0] on: this layer's. `held` bounds a layer's nonzeros and asks for little scratch; 0: not
so. Pointers and columns are trusted: whoever fills them has checked them.
"""

from ..language.inlining import inline
from ..language.prim import ld_i32
from ..language.strides import reach
from ..registry import kernel
from .plain import CHECK, DX_WORK, INTS, WORK

PIXELS = 1024  # of a band of rows that is summed in scratch
_PROLOGUE = "stat?:r:f32[3*c] gamma?:r:f32[c] beta?:r:f32[c]"
_X, _Y = "[n*c*h*wd]", "[n*k*oh*ow]"
_PATTERN = "columns:r:I[slots] pointers:r:i32[k*((c//g+chunk-1)//chunk)+1]"
CSR_CHECK = f"{CHECK};min(chunk, slots) > 0;max(room, held) <= slots"
HELD = "(held if held > 0 else slots)"  # slots that hold all of a layer's nonzeros
_POOL = "[(room if room > 0 else slots)]"


def aimed(usual: int | str, least: int | str) -> str:
    """Bytes or counts aimed at: fewer where `held` asks for that."""
    return f"({usual} if held == 0 else {least})"


def lower_bounds(INDEX):
    """Inline function that finds the first of the nonzeros low to before high, whose columns rise,
    in column `wanted` or later."""
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
def pool_base(address, nbytes, k):
    """Where slot 0 of the pool is, or would be where the layer's slots alone are there."""
    return address if k.room == 0 else address - nbytes * ld_i32(k.pointers, 0)


@kernel("conv_csr", forward_operands(FORWARD_BAND), check=CSR_CHECK, work=WORK)
def conv_csr(S, W, INDEX):
    """y = conv(prologue(x), w) + bias.

    Written: y whole. Scratch: a band of output rows in float32. Threads split (image, output
    channel). Order of a sum: bias, then the row's nonzeros in order, each by fma in float32.
    """
    from ..language.fused_activation import ONE, ZERO, act_value, norm_scale, norm_shift
    from ..language.number import fma
    from ..language.prim import FP32, div, mod

    ld, st, ldw, ldc, ldf, stf = S.ld, S.st, W.ld, INDEX.ld, FP32.ld, FP32.st
    nbytes = W.nbytes
    first_inside, end_inside = reach()

    def run(thread, nthreads, k):
        cg, taps, pool = div(k.c, k.g), k.kh * k.kw, pool_base(k.w, nbytes, k)
        chunks, band = div(cg + k.chunk - 1, k.chunk), max(1, div(PIXELS, k.ow))
        for u in range(div(k.n * k.k * thread, nthreads), div(k.n * k.k * (thread + 1), nthreads)):
            o = mod(u, k.k)
            channel = div(o, div(k.k, k.g)) * cg
            images = div(u, k.k) * k.c
            start = ldf(k.bias, o) if k.bias != 0 else ZERO
            for top in range(0, k.oh, band):
                rows = min(band, k.oh - top)
                for p in range(rows * k.ow):
                    stf(k.ws, p, start)
                for q in range(chunks):
                    offset = o * chunks + q
                    for e in range(ld_i32(k.pointers, offset), ld_i32(k.pointers, offset + 1)):
                        column, weight = ldc(k.columns, e), ldw(pool, e)
                        ch = channel + q * k.chunk + div(column, taps)
                        tap = mod(column, taps)
                        iy0, ix0 = div(tap, k.kw) * k.dh - k.ph, mod(tap, k.kw) * k.dw - k.pw
                        a, b = ONE, ZERO
                        if k.stat != 0:
                            a = norm_scale(k.stat, k.gamma, ch, k.c)
                            b = norm_shift(k.stat, k.gamma, k.beta, ch, k.c)
                        left, right = first_inside(ix0, k.sw), end_inside(ix0, k.sw, k.wd, k.ow)
                        for row in range(rows):
                            iy = (top + row) * k.sh + iy0
                            if iy < 0 or iy >= k.h:
                                continue
                            source, out = ((images + ch) * k.h + iy) * k.wd + ix0, row * k.ow
                            for j in range(left, right):
                                v = ld(k.x, source + j * k.sw)
                                if k.stat != 0:
                                    v = fma(v, a, b)
                                v = act_value(k.act, v, k.lo, k.hi)
                                stf(k.ws, out + j, fma(v, weight, ldf(k.ws, out + j)))
                for p in range(rows * k.ow):
                    st(k.y, (u * k.oh + top) * k.ow + p, ldf(k.ws, p))

    return run


@kernel("conv_csr_dx", dx_operands(DX_BAND), check=CSR_CHECK, work=DX_WORK, blocks="W")
def conv_csr_dx(S, W, INDEX):
    """dx (+)= transposed convolution of dy; the prologue's own gradient is taken elsewhere.

    Written: dx whole, added to where acc. Scratch: a band of input rows in float32. Threads split
    (image, input channel); the channel's nonzeros of a (row, chunk) are found by bisection. Order
    of a sum: output channels, kernel elements, fma in float32; what was in dx is added last.
    """
    from ..language.fused_activation import ZERO
    from ..language.number import fma
    from ..language.prim import FP32, div, mod

    ld, st, ldw, ldc, ldf, stf = S.ld, S.st, W.ld, INDEX.ld, FP32.ld, FP32.st
    nbytes = W.nbytes
    first_inside, end_inside = reach()

    lower_bound = lower_bounds(INDEX)

    def run(thread, nthreads, k):
        cg, kg, taps = div(k.c, k.g), div(k.k, k.g), k.kh * k.kw
        pool = pool_base(k.w, nbytes, k)
        chunks, band = div(cg + k.chunk - 1, k.chunk), max(1, div(PIXELS, k.wd))
        for u in range(div(k.n * k.c * thread, nthreads), div(k.n * k.c * (thread + 1), nthreads)):
            ch = mod(u, k.c)
            group, i = div(ch, cg), mod(ch, cg)
            q = div(i, k.chunk)
            wanted = (i - q * k.chunk) * taps
            for top in range(0, k.h, band):
                rows = min(band, k.h - top)
                for p in range(rows * k.wd):
                    stf(k.ws, p, ZERO)
                for o in range(group * kg, group * kg + kg):
                    end = ld_i32(k.pointers, o * chunks + q + 1)
                    e = lower_bound(k.columns, ld_i32(k.pointers, o * chunks + q), end, wanted)
                    while e < end and ldc(k.columns, e) < wanted + taps:
                        tap, weight = ldc(k.columns, e) - wanted, ldw(pool, e)
                        iy0, ix0 = div(tap, k.kw) * k.dh - k.ph, mod(tap, k.kw) * k.dw - k.pw
                        left, right = first_inside(ix0, k.sw), end_inside(ix0, k.sw, k.wd, k.ow)
                        low = first_inside(iy0 - top, k.sh)
                        high = end_inside(iy0 - top, k.sh, rows, k.oh)
                        for oy in range(low, high):
                            source = ((div(u, k.c) * k.k + o) * k.oh + oy) * k.ow
                            out = (oy * k.sh + iy0 - top) * k.wd + ix0
                            for j in range(left, right):
                                old = ldf(k.ws, out + j * k.sw)
                                stf(k.ws, out + j * k.sw, fma(ld(k.dy, source + j), weight, old))
                        e += 1
                for p in range(rows * k.wd):
                    offset = (u * k.h + top) * k.wd + p
                    total = ldf(k.ws, p)
                    if k.acc != 0:
                        total += ld(k.dx, offset)
                    st(k.dx, offset, total)

    return run


@kernel("conv_csr_dw", dw_operands("0"), check=CSR_CHECK, work=WORK)
def conv_csr_dw(S, INDEX, G):
    """dwt[e] += sum over images and pixels of dy * prologue(x) at every nonzero e, stochastic.

    Written: dwt at the layer's nonzeros. Scratch: none. Threads split the output channels. Order
    of a sum, in float64: images, output rows; a row's columns in four interleaved sums; then one
    float32 addition to the accumulator.
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
        v = ld(line.x, line.at + j * line.stride)
        if how.norm != 0:
            v = fma(v, how.scale, how.shift)
        return float(act_value(how.act, v, how.lo, how.hi)) * float(ld(line.dy, line.out + j))

    @inline
    def dot(line, left, right, how):
        s0 = s1 = s2 = s3 = 0.0
        whole = right - mod(max(right - left, 0), 4)
        for j in range(left, whole, 4):
            s0 += product(line, j, how)
            s1 += product(line, j + 1, how)
            s2 += product(line, j + 2, how)
            s3 += product(line, j + 3, how)
        for j in range(whole, right):
            s0 += product(line, j, how)
        return (s0 + s1) + (s2 + s3)

    def run(thread, nthreads, k):
        cg, taps, numbers = div(k.c, k.g), k.kh * k.kw, stream(k.ctl, u32(k.key))
        chunks, target = div(cg + k.chunk - 1, k.chunk), pool_base(k.dwt, nbytes, k)
        for offset in range(
            div(k.k * thread, nthreads) * chunks, div(k.k * (thread + 1), nthreads) * chunks
        ):
            o = div(offset, chunks)
            channel = div(o, div(k.k, k.g)) * cg + mod(offset, chunks) * k.chunk
            for e in range(ld_i32(k.pointers, offset), ld_i32(k.pointers, offset + 1)):
                ch, tap = channel + div(ldc(k.columns, e), taps), mod(ldc(k.columns, e), taps)
                iy0, ix0 = div(tap, k.kw) * k.dh - k.ph, mod(tap, k.kw) * k.dw - k.pw
                left, right = first_inside(ix0, k.sw), end_inside(ix0, k.sw, k.wd, k.ow)
                low, high = first_inside(iy0, k.sh), end_inside(iy0, k.sh, k.h, k.oh)
                norm, a, b = 0, ONE, ZERO
                if k.stat != 0:
                    norm, a = 1, norm_scale(k.stat, k.gamma, ch, k.c)
                    b = norm_shift(k.stat, k.gamma, k.beta, ch, k.c)
                how, total = Affine(norm, a, b, k.act, k.lo, k.hi), 0.0
                for image in range(k.n):
                    for oy in range(low, high):
                        source = ((image * k.c + ch) * k.h + oy * k.sh + iy0) * k.wd + ix0
                        out = ((image * k.k + o) * k.oh + oy) * k.ow
                        total += dot(LinePair(k.x, source, k.sw, k.dy, out), left, right, how)
                sr(target, e, ldg(target, e) + total, numbers)

    return run
