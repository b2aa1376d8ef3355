"""Convolution by a sparse weight, its input gradient and its weight gradient at the nonzeros.

x [n, c, h, wd], y [n, k, oh, ow] as in conv/plain.py, same prologue. The weight is a pool of slots
(see storage/csr.py): nonzero e of row (output channel) o and chunk q of input channels, for
pointers[o * chunks + q] <= e < pointers[o * chunks + q + 1], has the value w[e] and the column
columns[e] = (channel - q * chunk) * kh * kw + kernel row * kw + kernel column. chunks =
ceil(c / g / chunk). Pointers and columns are trusted: whoever fills them has checked them.
"""

from ..jit import inline
from ..registry import kernel
from .plain import CHECK, DX_WORK, INTS, WORK

PIXELS = 1024  # of a band of rows that is summed in scratch
_PROLOGUE = "stat?:r:f32[3*c] gamma?:r:f32[c] beta?:r:f32[c]"
_X, _Y = "[n*c*h*wd]", "[n*k*oh*ow]"
_PATTERN = "columns:r:I[slots] pointers:r:i32[k*((c//g+chunk-1)//chunk)+1]"
CSR_CHECK = f"{CHECK};min(chunk, slots) > 0"
FORWARD_BAND = f"4*ow*min(oh, max(1, {PIXELS}//ow))"
DX_BAND = f"4*wd*min(h, max(1, {PIXELS}//wd))"


def forward_operands(scratch: str) -> str:
    """Declaration of `conv_csr` with this many bytes of scratch."""
    return (
        f"x:r:S{_X} w:r:W[slots] bias?:r:f32[k] {_PROLOGUE} {_PATTERN} y:w:S{_Y} "
        f"ws:t[{scratch}] {INTS} chunk slots act lo:f hi:f"
    )


def dx_operands(scratch: str) -> str:
    """Declaration of `conv_csr_dx`."""
    return f"dy:r:S{_Y} w:r:W[slots] {_PATTERN} dx:m:S{_X} ws:t[{scratch}] {INTS} chunk slots acc"


def dw_operands(scratch: str) -> str:
    """Declaration of `conv_csr_dw`; `dwt` is the accumulator of the whole pool."""
    return (
        f"x:r:S{_X} {_PROLOGUE} dy:r:S{_Y} {_PATTERN} dwt:m:G[slots] ctl:r:i64[64] "
        f"ws:t[{scratch}] {INTS} chunk slots act lo:f hi:f key"
    )


def _geometry():
    """first_output(offset, stride): least j with j * stride + offset >= 0; outputs below a size."""
    from ..words.prim import div

    @inline
    def first_output(offset, stride):
        return 0 if offset >= 0 else div(stride - 1 - offset, stride)

    @inline
    def end_output(offset, stride, size, count):
        last = size - 1 - offset
        return 0 if last < 0 else min(count, div(last, stride) + 1)

    return first_output, end_output


@kernel("conv_csr", forward_operands(FORWARD_BAND), check=CSR_CHECK, work=WORK)
def conv_csr(S, W, INDEX):
    """y = conv(prologue(x), w) + bias.

    Written: y whole. Scratch: a band of output rows in float32. Threads split (image, output
    channel). Order of a sum: bias, then the row's nonzeros in order, each by fma in float32.
    """
    from ..words.act import ONE, ZERO, act_value, norm_scale, norm_shift
    from ..words.prim import FP32, div, fma, ld_i32, mod

    ld, st, ldw, ldc, ldf, stf = S.ld, S.st, W.ld, INDEX.ld, FP32.ld, FP32.st
    first_output, end_output = _geometry()

    def run(
        thread, nthreads, x, w, bias, stat, gamma, beta, columns, pointers, y, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, chunk, slots, act, lo, hi,
    ):  # fmt: skip
        cg, taps = div(c, g), kh * kw
        chunks, band = div(cg + chunk - 1, chunk), max(1, div(PIXELS, ow))
        for u in range(div(n * k * thread, nthreads), div(n * k * (thread + 1), nthreads)):
            o = mod(u, k)
            channel = div(o, div(k, g)) * cg
            images = div(u, k) * c
            start = ldf(bias, o) if bias != 0 else ZERO
            for top in range(0, oh, band):
                rows = min(band, oh - top)
                for p in range(rows * ow):
                    stf(ws, p, start)
                for q in range(chunks):
                    at = o * chunks + q
                    for e in range(ld_i32(pointers, at), ld_i32(pointers, at + 1)):
                        column, weight = ldc(columns, e), ldw(w, e)
                        ch = channel + q * chunk + div(column, taps)
                        tap = mod(column, taps)
                        iy0, ix0 = div(tap, kw) * dh - ph, mod(tap, kw) * dw - pw
                        a, b = ONE, ZERO
                        if stat != 0:
                            a = norm_scale(stat, gamma, ch, c)
                            b = norm_shift(stat, gamma, beta, ch, c)
                        left, right = first_output(ix0, sw), end_output(ix0, sw, wd, ow)
                        for row in range(rows):
                            iy = (top + row) * sh + iy0
                            if iy < 0 or iy >= h:
                                continue
                            source, out = ((images + ch) * h + iy) * wd + ix0, row * ow
                            for j in range(left, right):
                                v = ld(x, source + j * sw)
                                if stat != 0:
                                    v = fma(v, a, b)
                                v = act_value(act, v, lo, hi)
                                stf(ws, out + j, fma(v, weight, ldf(ws, out + j)))
                for p in range(rows * ow):
                    st(y, (u * oh + top) * ow + p, ldf(ws, p))

    return run


@kernel("conv_csr_dx", dx_operands(DX_BAND), check=CSR_CHECK, work=DX_WORK)
def conv_csr_dx(S, W, INDEX):
    """dx (+)= transposed convolution of dy; the prologue's own gradient is taken elsewhere.

    Written: dx whole, added to where acc. Scratch: a band of input rows in float32. Threads split
    (image, input channel); the channel's nonzeros of a (row, chunk) are found by bisection. Order
    of a sum: output channels, kernel elements, fma in float32; what was in dx is added last.
    """
    from ..words.act import ZERO
    from ..words.prim import FP32, div, fma, ld_i32, mod

    ld, st, ldw, ldc, ldf, stf = S.ld, S.st, W.ld, INDEX.ld, FP32.ld, FP32.st
    first_output, end_output = _geometry()

    @inline
    def lower_bound(columns, low, high, wanted):
        while low < high:
            middle = (low + high) >> 1
            if ldc(columns, middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def run(
        thread, nthreads, dy, w, columns, pointers, dx, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, chunk, slots, acc,
    ):  # fmt: skip
        cg, kg, taps = div(c, g), div(k, g), kh * kw
        chunks, band = div(cg + chunk - 1, chunk), max(1, div(PIXELS, wd))
        for u in range(div(n * c * thread, nthreads), div(n * c * (thread + 1), nthreads)):
            ch = mod(u, c)
            group, i = div(ch, cg), mod(ch, cg)
            q = div(i, chunk)
            wanted = (i - q * chunk) * taps
            for top in range(0, h, band):
                rows = min(band, h - top)
                for p in range(rows * wd):
                    stf(ws, p, ZERO)
                for o in range(group * kg, group * kg + kg):
                    end = ld_i32(pointers, o * chunks + q + 1)
                    e = lower_bound(columns, ld_i32(pointers, o * chunks + q), end, wanted)
                    while e < end and ldc(columns, e) < wanted + taps:
                        tap, weight = ldc(columns, e) - wanted, ldw(w, e)
                        iy0, ix0 = div(tap, kw) * dh - ph, mod(tap, kw) * dw - pw
                        left, right = first_output(ix0, sw), end_output(ix0, sw, wd, ow)
                        low, high = first_output(iy0 - top, sh), end_output(iy0 - top, sh, rows, oh)
                        for oy in range(low, high):
                            source = ((div(u, c) * k + o) * oh + oy) * ow
                            out = (oy * sh + iy0 - top) * wd + ix0
                            for j in range(left, right):
                                old = ldf(ws, out + j * sw)
                                stf(ws, out + j * sw, fma(ld(dy, source + j), weight, old))
                        e += 1
                for p in range(rows * wd):
                    at = (u * h + top) * wd + p
                    total = ldf(ws, p)
                    if acc != 0:
                        total += ld(dx, at)
                    st(dx, at, total)

    return run


@kernel("conv_csr_dw", dw_operands("0"), check=CSR_CHECK, work=WORK)
def conv_csr_dw(S, INDEX, G):
    """dwt[e] += sum over images and pixels of dy * prologue(x) at every nonzero e, stochastic.

    Written: dwt at the layer's nonzeros. Scratch: none. Threads split the output channels. Order
    of a sum, in float64: images, output rows; a row's columns in four interleaved sums; then one
    float32 addition to the accumulator.
    """
    from ..words.act import ONE, ZERO, act_value, norm_scale, norm_shift
    from ..words.prim import div, fma, ld_i32, mod, u32
    from ..words.rng import stream

    ld, ldc, ldg, sr = S.ld, INDEX.ld, G.ld, G.sr
    first_output, end_output = _geometry()

    @inline
    def product(x, at, dy, out, norm, a, b, act, lo, hi):
        v = ld(x, at)
        if norm:
            v = fma(v, a, b)
        return float(act_value(act, v, lo, hi)) * float(ld(dy, out))

    @inline
    def dot(x, source, sw, dy, out, left, right, norm, a, b, act, lo, hi):
        s0 = s1 = s2 = s3 = 0.0
        whole = right - mod(max(right - left, 0), 4)
        for j in range(left, whole, 4):
            s0 += product(x, source + j * sw, dy, out + j, norm, a, b, act, lo, hi)
            s1 += product(x, source + (j + 1) * sw, dy, out + j + 1, norm, a, b, act, lo, hi)
            s2 += product(x, source + (j + 2) * sw, dy, out + j + 2, norm, a, b, act, lo, hi)
            s3 += product(x, source + (j + 3) * sw, dy, out + j + 3, norm, a, b, act, lo, hi)
        for j in range(whole, right):
            s0 += product(x, source + j * sw, dy, out + j, norm, a, b, act, lo, hi)
        return (s0 + s1) + (s2 + s3)

    def run(
        thread, nthreads, x, stat, gamma, beta, dy, columns, pointers, dwt, ctl, ws,
        n, c, h, wd, k, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, g, chunk, slots, act, lo, hi, key,
    ):  # fmt: skip
        cg, taps, numbers = div(c, g), kh * kw, stream(ctl, u32(key))
        chunks = div(cg + chunk - 1, chunk)
        for at in range(
            div(k * thread, nthreads) * chunks, div(k * (thread + 1), nthreads) * chunks
        ):
            o = div(at, chunks)
            channel = div(o, div(k, g)) * cg + mod(at, chunks) * chunk
            for e in range(ld_i32(pointers, at), ld_i32(pointers, at + 1)):
                ch, tap = channel + div(ldc(columns, e), taps), mod(ldc(columns, e), taps)
                iy0, ix0 = div(tap, kw) * dh - ph, mod(tap, kw) * dw - pw
                left, right = first_output(ix0, sw), end_output(ix0, sw, wd, ow)
                low, high = first_output(iy0, sh), end_output(iy0, sh, h, oh)
                a, b = ONE, ZERO
                if stat != 0:
                    a = norm_scale(stat, gamma, ch, c)
                    b = norm_shift(stat, gamma, beta, ch, c)
                total = 0.0
                for image in range(n):
                    for oy in range(low, high):
                        source = ((image * c + ch) * h + oy * sh + iy0) * wd + ix0
                        out = ((image * k + o) * oh + oy) * ow
                        total += dot(
                            x, source, sw, dy, out, left, right, stat != 0, a, b, act, lo, hi
                        )
                sr(dwt, e, ldg(dwt, e) + total, numbers)

    return run
