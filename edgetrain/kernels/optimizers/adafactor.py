"""Adafactor: second moments as the product of means over rows and over columns.

A weight is `count` matrices [rows, cols], or a vector with a moment for each element. A matrix
takes three instructions; all threads finish one before the next begins: moments and the sum of
squares of the weights, the sum of squares of the steps, the weights. `sums` float64[128]: 64
partial sums for the weights, 64 for the steps, in fixed chunks.

Source: Shazeer and Stern 2018, algorithms 4 and 5; step sizes as torch.optim.Adafactor.
"""

import numpy as np

from .. import control
from ..language.block import first as part
from ..language.block import get_wide, new_wide, put_wide
from ..language.inlining import inline
from ..language.mathf import sqrt
from ..language.packed import LENGTH, Packed, get, loader, new, put, storer
from ..language.power import exp2_wide, log2_wide
from ..language.prim import FP32, div, hash32, ld_f64, ld_i64, mod, st_f64, to_real
from ..language.rng import stream
from ..registry import kernel
from .frame import zeroing
from .state import second_moments, state_scale, stored_scale
from .states import SECOND

LR, SKIP, GRAD_FACTOR, UPDATES = control.LR, control.SKIP, control.GRAD_FACTOR, control.ADAM_T
CHUNKS, COLUMNS = control.PARTIALS, 256  # columns that are summed at a time
ZERO = np.float32(0)
_ld, _st = FP32.ld, FP32.st


@inline
def share(ctl, power):
    """Weight of the newest squares: t ** power for update t = 1, 2, ..."""
    return exp2_wide(np.float64(power) * log2_wide(to_real(ld_i64(ctl, UPDATES))))


@inline
def total(sums, first):
    """The sum of 64 partial sums."""
    out = 0.0
    for chunk in range(CHUNKS):
        out += ld_f64(sums, first + chunk)
    return out


@inline
def scale_of(r, matrix, rows, eps):
    """1 / mean of the row moments of a matrix; the mean is at least eps."""
    mean = 0.0
    for i in range(rows):
        mean += np.float64(_ld(r, matrix * rows + i))
    return 1.0 / max(mean / to_real(rows), np.float64(eps))


def _steps(G):
    """Inline function: the unscaled step of element i, gradient / root of its moment."""
    ldg = G.ld

    @inline
    def factored(g, r, c, i, rows, cols, scale, eps, factor):
        row = div(i, cols)
        column = div(row, rows) * cols + mod(i, cols)
        moment = np.float64(_ld(r, row)) * np.float64(_ld(c, column)) * scale
        return np.float64(ldg(g, i) * factor) / max(sqrt(moment), np.float64(eps))

    return factored


@kernel(
    "adafactor_moments",
    "w:r:W[count*rows*cols] g:r:G[count*rows*cols] v_rows:m:f32[count*rows] "
    "v_cols:m:f32[count*cols] sums:m:f64[128] ctl:r:i64[64] count rows cols power:f",
    check="min(count, rows, cols) >= 1",
    blocks="W G",
    writes="v_rows=state v_cols=state",
)
def adafactor_moments(W, G):
    """v_rows, v_cols: means of squares of g over columns and over rows of each matrix, updated with
    weight t ** power; sums: squares of w. Sums are float64, in order of elements."""
    ldw, ldg = W.ld, G.ld

    @inline
    def update(offset, k, mean, weight):
        before = np.float64(_ld(offset, k))
        _st(offset, k, np.float32(before + (mean - before) * weight))

    @inline
    def square(g, i, factor):
        value = np.float64(ldg(g, i) * factor)
        return value * value

    def run(thread, nthreads, args):
        if ld_i64(args.ctl, SKIP) != 0:
            return
        weight, factor = share(args.ctl, args.power), np.float32(ld_f64(args.ctl, GRAD_FACTOR))
        n = args.count * args.rows * args.cols
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            squares = 0.0
            for i in range(div(n * chunk, CHUNKS), div(n * (chunk + 1), CHUNKS)):
                squares += np.float64(ldw(args.w, i)) * np.float64(ldw(args.w, i))
            st_f64(args.sums, chunk, squares)
        all_rows = args.count * args.rows
        for q in range(div(all_rows * thread, nthreads), div(all_rows * (thread + 1), nthreads)):
            squares = 0.0
            for j in range(args.cols):
                squares += square(args.g, q * args.cols + j, factor)
            update(args.v_rows, q, squares / to_real(args.cols), weight)
        wide = new_wide()
        each = div(args.cols + COLUMNS - 1, COLUMNS)  # blocks of columns of a matrix
        blocks = args.count * each
        for b in range(div(blocks * thread, nthreads), div(blocks * (thread + 1), nthreads)):
            matrix, first = div(b, each), mod(b, each) * COLUMNS
            used = min(COLUMNS, args.cols - first)
            for j in range(used):
                put_wide(wide, j, 0.0)
            for i in range(args.rows):
                offset = (matrix * args.rows + i) * args.cols + first
                for j in range(used):
                    put_wide(wide, j, get_wide(wide, j) + square(args.g, offset + j, factor))
            for j in range(used):
                update(
                    args.v_cols,
                    matrix * args.cols + first + j,
                    get_wide(wide, j) / to_real(args.rows),
                    weight,
                )

    return run


@kernel(
    "adafactor_steps",
    "g:r:G[count*rows*cols] v_rows:r:f32[count*rows] v_cols:r:f32[count*cols] sums:m:f64[128] "
    "ctl:r:i64[64] count rows cols eps:f",
    check="min(count, rows, cols) >= 1",
    blocks="G",
)
def adafactor_steps(G):
    """sums + 64: squares of the steps, gradient / max(root of the moment, eps)."""
    step_of = _steps(G)

    def run(thread, nthreads, args):
        if ld_i64(args.ctl, SKIP) != 0:
            return
        factor, size = np.float32(ld_f64(args.ctl, GRAD_FACTOR)), args.rows * args.cols
        n = args.count * size
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            squares, scale, matrix = 0.0, 0.0, -1
            for i in range(div(n * chunk, CHUNKS), div(n * (chunk + 1), CHUNKS)):
                if div(i, size) != matrix:
                    matrix = div(i, size)
                    scale = scale_of(args.v_rows, matrix, args.rows, args.eps)
                step = step_of(
                    args.g,
                    args.v_rows,
                    args.v_cols,
                    i,
                    args.rows,
                    args.cols,
                    scale,
                    args.eps,
                    factor,
                )
                squares += step * step
            st_f64(args.sums, CHUNKS + chunk, squares)

    return run


@inline
def sizes(ctl, sums, n, least, most, wd):
    """(factor of a step, factor that decays a weight)."""
    rate = ld_f64(ctl, LR)
    updates, count = to_real(ld_i64(ctl, UPDATES)), to_real(n)
    relative = max(np.float64(least), sqrt(total(sums, 0) / count))
    clip = max(1.0, sqrt(total(sums, CHUNKS) / count) / np.float64(most))
    size = min(rate, 1.0 / sqrt(updates)) * relative / clip
    return size, np.float32(1.0 - rate * np.float64(wd))


@kernel(
    "adafactor",
    "w:m:W[count*rows*cols] g:m:G[count*rows*cols] v_rows:r:f32[count*rows] "
    "v_cols:r:f32[count*cols] sums:r:f64[128] ctl:r:i64[64] key=compared count rows cols "
    "eps:f least:f most:f wd:f",
    check="min(count, rows, cols) >= 1",
    blocks="W G",
    writes="w=parameter g=accumulator",
)
def adafactor(W, G):
    """Update w and zero g.

    w = w * (1 - LR * wd) - step * min(LR, 1 / sqrt(t)) * max(least, rms of w) / clip with
    clip = max(1, rms of the steps / most).
    """
    load_w, store_w = loader(W), storer(W)
    step_of, zero = _steps(G), zeroing(G)

    def run(thread, nthreads, args):
        n = args.count * args.rows * args.cols
        lo, hi = part(n, thread, nthreads), part(n, thread + 1, nthreads)
        if ld_i64(args.ctl, SKIP) != 0:
            zero(args.g, lo, hi)
            return
        weight_key, factor = stream(args.ctl, args.key), np.float32(ld_f64(args.ctl, GRAD_FACTOR))
        size, kept = sizes(args.ctl, args.sums, n, args.least, args.most, args.wd)
        scale, matrix, each = 0.0, -1, args.rows * args.cols
        w = new()
        for first in range(lo, hi, LENGTH):
            m = min(LENGTH, hi - first)
            load_w(w, args.w, first, m)
            for j in range(m):
                i = first + j
                if div(i, each) != matrix:
                    matrix = div(i, each)
                    scale = scale_of(args.v_rows, matrix, args.rows, args.eps)
                step = step_of(
                    args.g,
                    args.v_rows,
                    args.v_cols,
                    i,
                    args.rows,
                    args.cols,
                    scale,
                    args.eps,
                    factor,
                )
                put(w, j, get(w, j) * kept - np.float32(size * step))
            store_w(args.w, first, m, w, weight_key)
        zero(args.g, lo, hi)

    return run


def _chunks(V):
    """Inline border(n, chunk): first element of a fixed chunk, the start of a block if moments are
    in blocks."""
    is_packed = isinstance(V, Packed)

    @inline
    def border(n, chunk):
        return part(n, chunk, CHUNKS) if is_packed else div(n * chunk, CHUNKS)

    return border


@kernel(
    "adafactor_vector_moments",
    "w:r:W[n] g:r:G[n] v:m:V[n] sums:m:f64[128] ctl:m:i64[64] n key=compared power:f eps:f",
    blocks="W G V",
    writes="v=state",
)
def adafactor_vector_moments(W, G, V):
    """Like adafactor_moments and adafactor_steps at once, with a moment v for each element.

    fp16 v holds the moment's root; the summed steps use the moment before rounding.
    """
    ldw, ldg = W.ld, G.ld
    load_second, store_second = second_moments(V)
    border = _chunks(V)

    def run(thread, nthreads, args):
        if ld_i64(args.ctl, SKIP) != 0:
            return
        weight = np.float32(share(args.ctl, args.power))
        factor = np.float32(ld_f64(args.ctl, GRAD_FACTOR))
        square_key = hash32(stream(args.ctl, args.key), SECOND)
        by, v = state_scale(args.ctl), new()
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            weights = steps = 0.0
            end = border(args.n, chunk + 1)
            for first in range(border(args.n, chunk), end, LENGTH):
                m = min(LENGTH, end - first)
                load_second(v, args.v, first, m, by)
                for j in range(m):
                    value = np.float64(ldw(args.w, first + j))
                    weights += value * value
                    gradient, second = ldg(args.g, first + j) * factor, get(v, j)
                    second += (gradient * gradient - second) * weight
                    put(v, j, second)
                    root = np.float32(sqrt(np.float64(second)))
                    step = np.float64(gradient) / np.float64(max(root, args.eps))
                    steps += step * step
                store_second(args.v, first, m, v, square_key, by)
            st_f64(args.sums, chunk, weights)
            st_f64(args.sums, CHUNKS + chunk, steps)

    return run


@kernel(
    "adafactor_vector",
    "w:m:W[n] g:m:G[n] v:r:V[n] sums:r:f64[128] ctl:r:i64[64] n "
    "key=compared eps:f least:f most:f wd:f",
    blocks="W G V",
    writes="w=parameter g=accumulator",
)
def adafactor_vector(W, G, V):
    """Like adafactor, with a moment v for each element."""
    load_w, store_w, ldg = loader(W), storer(W), G.ld
    load_second, _ = second_moments(V)
    zero = zeroing(G)

    def run(thread, nthreads, args):
        lo, hi = part(args.n, thread, nthreads), part(args.n, thread + 1, nthreads)
        if ld_i64(args.ctl, SKIP) != 0:
            zero(args.g, lo, hi)
            return
        weight_key, factor = stream(args.ctl, args.key), np.float32(ld_f64(args.ctl, GRAD_FACTOR))
        size, kept = sizes(args.ctl, args.sums, args.n, args.least, args.most, args.wd)
        by, w, v = stored_scale(args.ctl), new(), new()
        for first in range(lo, hi, LENGTH):
            m = min(LENGTH, hi - first)
            load_w(w, args.w, first, m)
            load_second(v, args.v, first, m, by)
            for j in range(m):
                root = np.float32(sqrt(np.float64(get(v, j))))
                step = np.float64(ldg(args.g, first + j) * factor) / np.float64(max(root, args.eps))
                put(w, j, get(w, j) * kept - np.float32(size * step))
            store_w(args.w, first, m, w, weight_key)
        zero(args.g, lo, hi)

    return run
