"""Batch normalisation on vectors of 16: the kernels of norm.py, same operands, same meaning.

Sums run over 16 float32 partial sums (pixel modulo 16) for at most 1024 pixels of a map, whose
float64 total is added image by image: an order that depends on the shape alone.
"""

from typing import Any, NamedTuple

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


class Line(NamedTuple):
    """dx = scale * (dz - level - (x - mean) * invstd * tilt), each as a vector."""

    scale: Any
    shift: Any
    mean: Any
    invstd: Any
    level: Any
    tilt: Any


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

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            total, squares = 0.0, 0.0
            for b in range(k.n):
                row = (b * k.c + ch) * k.s
                for start in range(0, k.s, _BLOCK):
                    t = vsplat(ZERO)
                    stop = min(start + _BLOCK, k.s)
                    whole = start + ((stop - start) >> 4 << 4)
                    for j in range(start, whole, WIDTH):
                        t = vadd(t, vld(k.x, row + j))
                    if whole < stop:
                        t = vadd(t, vld_first(k.x, row + whole, stop - whole))
                    total += vsum(t)
            mean = total / real(k.n * k.s)
            middle = vsplat(single(mean))
            for b in range(k.n):
                row = (b * k.c + ch) * k.s
                for start in range(0, k.s, _BLOCK):
                    t = vsplat(ZERO)
                    stop = min(start + _BLOCK, k.s)
                    whole = start + ((stop - start) >> 4 << 4)
                    for j in range(start, whole, WIDTH):
                        d = vsub(vld(k.x, row + j), middle)
                        t = vfma(d, d, t)
                    if whole < stop:
                        d = vsub(vld_first(k.x, row + whole, stop - whole), middle)
                        d = vkeep(d, 0, stop - whole)
                        t = vfma(d, d, t)
                    squares += vsum(t)
            variance = squares / real(k.n * k.s)
            st(k.stat, ch, mean)
            st(k.stat, k.c + ch, inverse_root(variance, k.eps))
            st(k.stat, 2 * k.c + ch, variance)

    return run


@kernel("bn_apply", apply_operands, **_FAST)
def bn_apply(S):
    """y = act(z); y may be x."""
    from .words.act import norm_line
    from .words.prim import div
    from .words.vector import WIDTH, loads, loads_first, stores, vfma, vsplat
    from .words.vector_act import vact_value

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)

    def run(thread, nthreads, k):
        whole = k.s >> 4 << 4
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            line = norm_line(k, ch)
            a, shift = vsplat(line[0]), vsplat(line[1])
            for b in range(k.n):
                row = (b * k.c + ch) * k.s
                for i in range(row, row + whole, WIDTH):
                    z = vfma(vld(k.x, i), a, shift)
                    vst(k.y, i, vact_value(k.act, z, k.lo, k.hi), WIDTH)
                if whole < k.s:
                    z = vfma(vld_first(k.x, row + whole, k.s - whole), a, shift)
                    vst(k.y, row + whole, vact_value(k.act, z, k.lo, k.hi), k.s - whole)

    return run


@kernel("bn_reduce", reduce_operands, **_FAST)
def bn_reduce(S):
    """sums = (sum of dz, sum of dz * xhat), dz = dy * act'(z); dgamma, dbeta are added to."""
    import numpy as np

    from .words.act import ZERO, norm_line
    from .words.prim import FP32, div
    from .words.vector import WIDTH, loads, loads_first, vadd, vfma, vkeep, vmul, vsplat, vsub, vsum
    from .words.vector_act import vact_slope

    vld, vld_first, ldf, st = loads(S), loads_first(S), FP32.ld, FP32.st
    single = np.float32

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            line = norm_line(k, ch)
            a, shift = vsplat(line[0]), vsplat(line[1])
            mean, invstd = vsplat(ldf(k.stat, ch)), vsplat(ldf(k.stat, k.c + ch))
            total, along = 0.0, 0.0
            for b in range(k.n):
                row = (b * k.c + ch) * k.s
                for start in range(row, row + k.s, _BLOCK):
                    t, q = vsplat(ZERO), vsplat(ZERO)
                    stop = min(start + _BLOCK, row + k.s)
                    whole = start + ((stop - start) >> 4 << 4)
                    for i in range(start, whole, WIDTH):
                        v = vld(k.x, i)
                        dz = vmul(vld(k.dy, i), vact_slope(k.act, vfma(v, a, shift), k.lo, k.hi))
                        t = vadd(t, dz)
                        q = vfma(dz, vmul(vsub(v, mean), invstd), q)
                    if whole < stop:
                        v, d = (
                            vld_first(k.x, whole, stop - whole),
                            vld_first(k.dy, whole, stop - whole),
                        )
                        dz = vmul(d, vact_slope(k.act, vfma(v, a, shift), k.lo, k.hi))
                        t = vadd(t, vkeep(dz, 0, stop - whole))
                        dz = vmul(dz, vmul(vsub(v, mean), invstd))
                        q = vadd(q, vkeep(dz, 0, stop - whole))
                    total += vsum(t)
                    along += vsum(q)
            st(k.sums, ch, total)
            st(k.sums, k.c + ch, along)
            if k.dbeta != 0:
                st(k.dbeta, ch, ldf(k.dbeta, ch) + single(total))
            if k.dgamma != 0:
                st(k.dgamma, ch, ldf(k.dgamma, ch) + single(along))

    return run


def _row_gradient(S):
    """Inline functions: the Line of a channel, the gradient of one run of it."""
    from .jit import inline
    from .words.vector import WIDTH, loads, loads_first, stores, vadd, vfma, vmul, vsplat, vsub
    from .words.vector_act import vact_slope

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)

    @inline
    def line(scale, shift, mean, invstd, level, tilt):
        a, b, m, r = vsplat(scale), vsplat(shift), vsplat(mean), vsplat(invstd)
        return Line(a, b, m, r, vsplat(level), vsplat(tilt))

    @inline
    def step(v, d, to, k):
        dz = vmul(d, vact_slope(k.act, vfma(v, to.scale, to.shift), k.lo, k.hi))
        centred = vmul(vsub(v, to.mean), to.invstd)
        return vmul(to.scale, vsub(vsub(dz, to.level), vmul(centred, to.tilt)))

    @inline
    def gradient(k, row, to):
        """dx (+)= scale * (dz - level - (x - mean) * invstd * tilt), s elements from row on."""
        whole = k.s >> 4 << 4
        for i in range(row, row + whole, WIDTH):
            d = step(vld(k.x, i), vld(k.dy, i), to, k)
            if k.acc != 0:
                d = vadd(d, vld(k.dx, i))
            vst(k.dx, i, d, WIDTH)
        if whole < k.s:
            i, rest = row + whole, k.s - whole
            v, d = vld_first(k.x, i, rest), vld_first(k.dy, i, rest)
            d = step(v, d, to, k)
            if k.acc != 0:
                d = vadd(d, vld_first(k.dx, i, rest))
            vst(k.dx, i, d, rest)

    return line, gradient


@kernel("bn_dx", dx_operands, **_FAST)
def bn_dx(S):
    """dx (+)= a * (dz - mean(dz) - xhat * mean(dz * xhat)); dx may be dy or x where acc = 0."""
    import numpy as np

    from .norm import scalars
    from .words.act import norm_line
    from .words.prim import FP32, div

    (line, gradient), ldf, single = _row_gradient(S), FP32.ld, np.float32
    real, _ = scalars()

    def run(thread, nthreads, k):
        count = real(max(k.n * k.s, 1))
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            level = single(ldf(k.sums, ch) / count)
            tilt = single(ldf(k.sums, k.c + ch) / count)
            (scale, shift), mean, invstd = norm_line(k, ch), ldf(k.stat, ch), ldf(k.stat, k.c + ch)
            to = line(scale, shift, mean, invstd, level, tilt)
            for b in range(k.n):
                gradient(k, (b * k.c + ch) * k.s, to)

    return run


@kernel("bn_dx_eval", dx_eval_operands, **_FAST)
def bn_dx_eval(S):
    """dx (+)= a * dz for statistics that do not depend on x; dx may be dy or x where acc = 0."""
    from .words.act import ZERO, norm_line
    from .words.prim import div

    line, gradient = _row_gradient(S)

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            scale, shift = norm_line(k, ch)
            to = line(scale, shift, ZERO, ZERO, ZERO, ZERO)
            for b in range(k.n):
                gradient(k, (b * k.c + ch) * k.s, to)

    return run
