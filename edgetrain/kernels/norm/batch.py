"""Batch normalisation over [n, c, s] (s = pixels of a channel), contiguous, fused with `act`.

`stat` is float32[3*c]: mean, 1/sqrt(var + eps), biased variance of each channel. gamma and beta
may be absent (1 and 0). All kernels see z = fma(x, a, b) as language/fused_activation.py defines
it. Threads split the channels; sums run over images, then pixels, in float64.
"""

from ..registry import kernel

_X = "[n*c*s]"
_NORM = f"x:r:S{_X} stat:r:f32[3*c] gamma?:r:f32[c] beta?:r:f32[c]"
_SIZES = "n c s act=activation lo:f hi:f"
CHECK = "min(n, c, s) > 0"

stats_operands = f"x:r:S{_X} stat:w:f32[3*c] n c s eps:f"
apply_operands = f"{_NORM} y:w:S{_X} {_SIZES}"
reduce_operands = f"{_NORM} dy:r:S{_X} sums:w:f32[2*c] dgamma?:m:f32[c] dbeta?:m:f32[c] {_SIZES}"
dx_operands = f"{_NORM} sums:r:f32[2*c] dy:r:S{_X} dx:m:S{_X} {_SIZES} acc=flag"
running_operands = (
    "stat:r:f32[3*c] rm:r:f32[c] rv:r:f32[c] sm:m:f32[c] sv:m:f32[c] ctl:r:i64[64] "
    "c count=size momentum:f"
)
dx_eval_operands = f"{_NORM} dy:r:S{_X} dx:m:S{_X} {_SIZES} acc=flag"


def scalars():
    """Inline functions that several factories share: float64 of a count, square root."""
    import numpy as np

    from ..language.inlining import inline
    from ..language.mathf import sqrt
    from ..language.prim import to_float

    double, single = np.float64, np.float32

    @inline
    def real(count):
        return double(to_float(count >> 20)) * 1048576.0 + double(to_float(count & 0xFFFFF))

    @inline
    def inverse_root(variance, eps):
        return single(1.0 / sqrt(variance + double(eps)))

    return real, inverse_root


@kernel("bn_stats", stats_operands, check=CHECK)
def bn_stats(S):
    """Statistics of this microbatch: two passes, the second over squared differences."""
    from ..language.prim import FP32, div

    ld, st = S.ld, FP32.st
    real, inverse_root = scalars()

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            total, squares = 0.0, 0.0
            for b in range(k.n):
                for i in range(k.s):
                    total += ld(k.x, (b * k.c + ch) * k.s + i)
            mean = total / real(k.n * k.s)
            for b in range(k.n):
                for i in range(k.s):
                    d = ld(k.x, (b * k.c + ch) * k.s + i) - mean
                    squares += d * d
            variance = squares / real(k.n * k.s)
            st(k.stat, ch, mean)
            st(k.stat, k.c + ch, inverse_root(variance, k.eps))
            st(k.stat, 2 * k.c + ch, variance)

    return run


@kernel("bn_eval_stats", "rm:r:f32[c] rv:r:f32[c] stat:w:f32[3*c] c eps:f", check="c >= 0")
def bn_eval_stats():
    """stat from running mean and variance, for evaluation and frozen statistics."""
    from ..language.prim import FP32, div

    ld, st = FP32.ld, FP32.st
    _, inverse_root = scalars()

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            st(k.stat, ch, ld(k.rm, ch))
            st(k.stat, k.c + ch, inverse_root(ld(k.rv, ch), k.eps))
            st(k.stat, 2 * k.c + ch, ld(k.rv, ch))

    return run


@kernel("bn_running", running_operands, check="c >= 0")
def bn_running():
    """s = (1 - momentum) * r + momentum * batch; the variance is made unbiased over `count`.

    sm, sv are the staged statistics. The first microbatch of a minibatch reads the committed ones
    (rm, rv), the others what is staged; `stat_commit` writes rm and rv in the update.
    """
    from ..control import MICROBATCH
    from ..language.fused_activation import ONE
    from ..language.prim import FP32, div, ld_i64

    ld, st = FP32.ld, FP32.st
    real, _ = scalars()

    def run(thread, nthreads, k):
        first = ld_i64(k.ctl, MICROBATCH) == 0
        mean, variance = (k.rm, k.rv) if first else (k.sm, k.sv)
        unbias = real(k.count) / real(max(k.count - 1, 1))
        keep = ONE - k.momentum
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            st(k.sm, ch, keep * ld(mean, ch) + k.momentum * ld(k.stat, ch))
            st(k.sv, ch, keep * ld(variance, ch) + k.momentum * (ld(k.stat, 2 * k.c + ch) * unbias))

    return run


@kernel("stat_check", "s:r:f32[n] partials:m:f64[64] n", check="n >= 0")
def stat_check():
    """Add 0 to the partial sums of the gradient's squares, NaN where a staged statistic s [n] is
    not finite: `grad_finish` then skips the update. Fixed chunks, as in `grad_sumsq`."""
    from ..control import PARTIALS
    from ..language.prim import FP32, div, ld_f64, st_f64

    ld = FP32.ld

    def run(thread, nthreads, k):
        for chunk in range(
            div(PARTIALS * thread, nthreads), div(PARTIALS * (thread + 1), nthreads)
        ):
            total = ld_f64(k.partials, chunk)
            for i in range(div(k.n * chunk, PARTIALS), div(k.n * (chunk + 1), PARTIALS)):
                total += ld(k.s, i) - ld(k.s, i)
            st_f64(k.partials, chunk, total)

    return run


@kernel("stat_commit", "s:r:f32[n] r:m:f32[n] ctl:r:i64[64] n", check="n >= 0")
def stat_commit():
    """r = s: a staged statistic [n] becomes the running one, unless the update is skipped."""
    from ..control import SKIP
    from ..language.prim import FP32, div, ld_i64

    ld, st = FP32.ld, FP32.st

    def run(thread, nthreads, k):
        if ld_i64(k.ctl, SKIP) == 0:
            for i in range(div(k.n * thread, nthreads), div(k.n * (thread + 1), nthreads)):
                st(k.r, i, ld(k.s, i))

    return run


@kernel("bn_apply", apply_operands, check=CHECK)
def bn_apply(S):
    """y = act(z); y may be x."""
    from ..language.fused_activation import act_value, norm_line
    from ..language.number import fma
    from ..language.prim import div

    ld, st = S.ld, S.st

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            a, shift = norm_line(k, ch)
            for b in range(k.n):
                for i in range((b * k.c + ch) * k.s, (b * k.c + ch + 1) * k.s):
                    st(k.y, i, act_value(k.act, fma(ld(k.x, i), a, shift), k.lo, k.hi))

    return run


def sum_writer():
    """Inline function: a channel's two sums are stored, and added to dbeta and dgamma."""
    import numpy as np

    from ..language.inlining import inline
    from ..language.prim import FP32

    ldf, st, single = FP32.ld, FP32.st, np.float32

    @inline
    def keep(k, ch, total, along):
        st(k.sums, ch, total)
        st(k.sums, k.c + ch, along)
        if k.dbeta != 0:
            st(k.dbeta, ch, ldf(k.dbeta, ch) + single(total))
        if k.dgamma != 0:
            st(k.dgamma, ch, ldf(k.dgamma, ch) + single(along))

    return keep


@kernel("bn_reduce", reduce_operands, check=CHECK)
def bn_reduce(S):
    """sums = (sum of dz, sum of dz * xhat), dz = dy * act'(z); dgamma, dbeta are added to.

    xhat = (x - mean) * invstd, in float32.
    """
    from ..language.fused_activation import act_slope, norm_line
    from ..language.number import fma
    from ..language.prim import FP32, div

    ld, ldf, keep = S.ld, FP32.ld, sum_writer()

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            a, shift = norm_line(k, ch)
            mean, invstd = ldf(k.stat, ch), ldf(k.stat, k.c + ch)
            total, along = 0.0, 0.0
            for b in range(k.n):
                for i in range((b * k.c + ch) * k.s, (b * k.c + ch + 1) * k.s):
                    v = ld(k.x, i)
                    dz = ld(k.dy, i) * act_slope(k.act, fma(v, a, shift), k.lo, k.hi)
                    total += dz
                    along += dz * ((v - mean) * invstd)
            keep(k, ch, total, along)

    return run


@kernel("bn_dx", dx_operands, check=CHECK)
def bn_dx(S):
    """dx (+)= a * (dz - mean(dz) - xhat * mean(dz * xhat)); dx may be dy or x where acc = 0."""
    import numpy as np

    from ..language.fused_activation import act_slope, norm_line
    from ..language.number import fma
    from ..language.prim import FP32, div

    ld, st, ldf = S.ld, S.st, FP32.ld
    real, _ = scalars()
    single = np.float32

    def run(thread, nthreads, k):
        count = real(max(k.n * k.s, 1))
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            a, shift = norm_line(k, ch)
            mean, invstd = ldf(k.stat, ch), ldf(k.stat, k.c + ch)
            level = single(ldf(k.sums, ch) / count)
            tilt = single(ldf(k.sums, k.c + ch) / count)
            for b in range(k.n):
                for i in range((b * k.c + ch) * k.s, (b * k.c + ch + 1) * k.s):
                    v = ld(k.x, i)
                    dz = ld(k.dy, i) * act_slope(k.act, fma(v, a, shift), k.lo, k.hi)
                    d = a * (dz - level - (v - mean) * invstd * tilt)
                    st(k.dx, i, d + ld(k.dx, i) if k.acc != 0 else d)

    return run


@kernel("bn_dx_eval", dx_eval_operands, check=CHECK)
def bn_dx_eval(S):
    """dx (+)= a * dz for statistics that do not depend on x; dx may be dy or x where acc = 0."""
    from ..language.fused_activation import act_slope, norm_line
    from ..language.number import fma
    from ..language.prim import div

    ld, st = S.ld, S.st

    def run(thread, nthreads, k):
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            a, shift = norm_line(k, ch)
            for b in range(k.n):
                for i in range((b * k.c + ch) * k.s, (b * k.c + ch + 1) * k.s):
                    d = a * (ld(k.dy, i) * act_slope(k.act, fma(ld(k.x, i), a, shift), k.lo, k.hi))
                    st(k.dx, i, d + ld(k.dx, i) if k.acc != 0 else d)

    return run
