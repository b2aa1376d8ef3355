"""Batch normalisation on vectors of 16: the kernels of norm.py, same operands, same meaning.

Sums run over 16 float32 partial sums (pixel modulo 16) for at most 1024 pixels of a map, whose
float64 total is added image by image: an order that depends on the shape alone.
"""

from .norm import (
    CHECK,
    apply_operands,
    dx_eval_operands,
    dx_operands,
    reduce_operands,
    stats_operands,
)
from .registry import kernel

_FAST = {"variant": "fast", "when": "lanes >= 4", "check": CHECK}
_BLOCK = 1024  # pixels between two additions to a float64 sum


@kernel("bn_stats", stats_operands, **_FAST)
def bn_stats(S):
    """Statistics of this microbatch: two passes, the second over squared differences."""
    import numpy as np

    from .norm import scalars
    from .words.act import ZERO
    from .words.prim import FP32, div
    from .words.vector import WIDTH, loads, loads_first, vadd, vfma, vkeep, vsplat, vsub, vsum

    vld, vld_first, st = loads(S), loads_first(S), FP32.st
    real, inverse_root = scalars()
    single = np.float32

    def run(thread, nthreads, x, stat, n, c, s, eps):
        for ch in range(div(c * thread, nthreads), div(c * (thread + 1), nthreads)):
            total, squares = 0.0, 0.0
            for b in range(n):
                row = (b * c + ch) * s
                for start in range(0, s, _BLOCK):
                    t = vsplat(ZERO)
                    stop = min(start + _BLOCK, s)
                    whole = start + ((stop - start) >> 4 << 4)
                    for j in range(start, whole, WIDTH):
                        t = vadd(t, vld(x, row + j))
                    if whole < stop:
                        t = vadd(t, vld_first(x, row + whole, stop - whole))
                    total += vsum(t)
            mean = total / real(n * s)
            middle = vsplat(single(mean))
            for b in range(n):
                row = (b * c + ch) * s
                for start in range(0, s, _BLOCK):
                    t = vsplat(ZERO)
                    stop = min(start + _BLOCK, s)
                    whole = start + ((stop - start) >> 4 << 4)
                    for j in range(start, whole, WIDTH):
                        d = vsub(vld(x, row + j), middle)
                        t = vfma(d, d, t)
                    if whole < stop:
                        d = vsub(vld_first(x, row + whole, stop - whole), middle)
                        d = vkeep(d, 0, stop - whole)
                        t = vfma(d, d, t)
                    squares += vsum(t)
            variance = squares / real(n * s)
            st(stat, ch, mean)
            st(stat, c + ch, inverse_root(variance, eps))
            st(stat, 2 * c + ch, variance)

    return run


@kernel("bn_apply", apply_operands, **_FAST)
def bn_apply(S):
    """y = act(z); y may be x."""
    from .words.act import norm_scale, norm_shift
    from .words.prim import div
    from .words.vector import WIDTH, loads, loads_first, stores, vfma, vsplat
    from .words.vector_act import vact_value

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)

    def run(thread, nthreads, x, stat, gamma, beta, y, n, c, s, act, lo, hi):
        whole = s >> 4 << 4
        for ch in range(div(c * thread, nthreads), div(c * (thread + 1), nthreads)):
            a = vsplat(norm_scale(stat, gamma, ch, c))
            shift = vsplat(norm_shift(stat, gamma, beta, ch, c))
            for b in range(n):
                row = (b * c + ch) * s
                for i in range(row, row + whole, WIDTH):
                    z = vfma(vld(x, i), a, shift)
                    vst(y, i, vact_value(act, z, lo, hi), WIDTH)
                if whole < s:
                    z = vfma(vld_first(x, row + whole, s - whole), a, shift)
                    vst(y, row + whole, vact_value(act, z, lo, hi), s - whole)

    return run


@kernel("bn_reduce", reduce_operands, **_FAST)
def bn_reduce(S):
    """sums = (sum of dz, sum of dz * xhat), dz = dy * act'(z); dgamma, dbeta are added to."""
    import numpy as np

    from .words.act import ZERO, norm_scale, norm_shift
    from .words.prim import FP32, div
    from .words.vector import WIDTH, loads, loads_first, vadd, vfma, vkeep, vmul, vsplat, vsub, vsum
    from .words.vector_act import vact_slope

    vld, vld_first, ldf, st = loads(S), loads_first(S), FP32.ld, FP32.st
    single = np.float32

    def run(
        thread, nthreads, x, stat, gamma, beta, dy, sums, dgamma, dbeta, n, c, s, act, lo, hi
    ):  # fmt: skip
        for ch in range(div(c * thread, nthreads), div(c * (thread + 1), nthreads)):
            a = vsplat(norm_scale(stat, gamma, ch, c))
            shift = vsplat(norm_shift(stat, gamma, beta, ch, c))
            mean, invstd = vsplat(ldf(stat, ch)), vsplat(ldf(stat, c + ch))
            total, along = 0.0, 0.0
            for b in range(n):
                row = (b * c + ch) * s
                for start in range(row, row + s, _BLOCK):
                    t, q = vsplat(ZERO), vsplat(ZERO)
                    stop = min(start + _BLOCK, row + s)
                    whole = start + ((stop - start) >> 4 << 4)
                    for i in range(start, whole, WIDTH):
                        v = vld(x, i)
                        dz = vmul(vld(dy, i), vact_slope(act, vfma(v, a, shift), lo, hi))
                        t = vadd(t, dz)
                        q = vfma(dz, vmul(vsub(v, mean), invstd), q)
                    if whole < stop:
                        v, d = vld_first(x, whole, stop - whole), vld_first(dy, whole, stop - whole)
                        dz = vmul(d, vact_slope(act, vfma(v, a, shift), lo, hi))
                        t = vadd(t, vkeep(dz, 0, stop - whole))
                        dz = vmul(dz, vmul(vsub(v, mean), invstd))
                        q = vadd(q, vkeep(dz, 0, stop - whole))
                    total += vsum(t)
                    along += vsum(q)
            st(sums, ch, total)
            st(sums, c + ch, along)
            if dbeta != 0:
                st(dbeta, ch, ldf(dbeta, ch) + single(total))
            if dgamma != 0:
                st(dgamma, ch, ldf(dgamma, ch) + single(along))

    return run


def _row_gradient(S):
    """Inline function that writes the gradient of one run of a channel."""
    from .jit import inline
    from .words.vector import WIDTH, loads, loads_first, stores, vadd, vfma, vmul, vsplat, vsub
    from .words.vector_act import vact_slope

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)

    @inline
    def step(v, d, a, shift, mean, invstd, level, tilt, act, lo, hi):
        dz = vmul(d, vact_slope(act, vfma(v, a, shift), lo, hi))
        return vmul(a, vsub(vsub(dz, level), vmul(vmul(vsub(v, mean), invstd), tilt)))

    @inline
    def gradient(x, dy, dx, row, s, scale, shift, mean, invstd, level, tilt, act, lo, hi, acc):
        """dx (+)= scale * (dz - level - (x - mean) * invstd * tilt), s elements from row on."""
        a, b, m, r = vsplat(scale), vsplat(shift), vsplat(mean), vsplat(invstd)
        p, q, whole = vsplat(level), vsplat(tilt), s >> 4 << 4
        for i in range(row, row + whole, WIDTH):
            d = step(vld(x, i), vld(dy, i), a, b, m, r, p, q, act, lo, hi)
            if acc != 0:
                d = vadd(d, vld(dx, i))
            vst(dx, i, d, WIDTH)
        if whole < s:
            i, rest = row + whole, s - whole
            v, d = vld_first(x, i, rest), vld_first(dy, i, rest)
            d = step(v, d, a, b, m, r, p, q, act, lo, hi)
            if acc != 0:
                d = vadd(d, vld_first(dx, i, rest))
            vst(dx, i, d, rest)

    return gradient


@kernel("bn_dx", dx_operands, **_FAST)
def bn_dx(S):
    """dx (+)= a * (dz - mean(dz) - xhat * mean(dz * xhat)); dx may be dy or x where acc = 0."""
    import numpy as np

    from .norm import scalars
    from .words.act import norm_scale, norm_shift
    from .words.prim import FP32, div

    gradient, ldf, single = _row_gradient(S), FP32.ld, np.float32
    real, _ = scalars()

    def run(thread, nthreads, x, stat, gamma, beta, sums, dy, dx, n, c, s, act, lo, hi, acc):
        count = real(max(n * s, 1))
        for ch in range(div(c * thread, nthreads), div(c * (thread + 1), nthreads)):
            level = single(ldf(sums, ch) / count)
            tilt = single(ldf(sums, c + ch) / count)
            for b in range(n):
                gradient(
                    x, dy, dx, (b * c + ch) * s, s, norm_scale(stat, gamma, ch, c),
                    norm_shift(stat, gamma, beta, ch, c), ldf(stat, ch), ldf(stat, c + ch),
                    level, tilt, act, lo, hi, acc,
                )  # fmt: skip

    return run


@kernel("bn_dx_eval", dx_eval_operands, **_FAST)
def bn_dx_eval(S):
    """dx (+)= a * dz for statistics that do not depend on x; dx may be dy or x where acc = 0."""
    from .words.act import ZERO, norm_scale, norm_shift
    from .words.prim import div

    gradient = _row_gradient(S)

    def run(thread, nthreads, x, stat, gamma, beta, dy, dx, n, c, s, act, lo, hi, acc):
        for ch in range(div(c * thread, nthreads), div(c * (thread + 1), nthreads)):
            for b in range(n):
                gradient(
                    x, dy, dx, (b * c + ch) * s, s, norm_scale(stat, gamma, ch, c),
                    norm_shift(stat, gamma, beta, ch, c), ZERO, ZERO, ZERO, ZERO, act, lo, hi, acc,
                )  # fmt: skip

    return run
