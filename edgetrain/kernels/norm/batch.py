"""Batch normalisation over [n, c, s] (s = pixels of a channel), contiguous, fused with `act`.

`stat` is float32[3*c]: mean, 1/sqrt(var + eps), biased variance of each channel. gamma and beta may
be absent (1 and 0). All kernels compute z = fma(x, a, b) as defined in
language/fused_activation.py. Threads split the channels. Elementwise kernels are in batch_lines.py.
Sums (scalar in batch_sums.py, vectors in batch_fast.py) run over 16 float32 partial sums (pixel
modulo 16) for at most 1024 pixels of a map, whose float64 total is added image by image: an order
that depends on the shape alone, with the same bits for both.
"""

from ..registry import kernel

_X = "[n*c*s]"
_NORM = f"x:r:S{_X} stat:r:f32[3*c] gamma?:r:f32[c] beta?:r:f32[c]"
_SIZES = "n c s act=activation lo:f hi:f"
CHECK = "min(n, c, s) > 0"
BLOCK = 1024  # pixels between two additions to a float64 sum

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
    """Inline functions that several factories share: a count as float64; inverse deviation."""
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


@kernel("bn_eval_stats", "rm:r:f32[c] rv:r:f32[c] stat:w:f32[3*c] c eps:f", check="c >= 0")
def bn_eval_stats():
    """stat from running mean and variance, for evaluation and frozen statistics."""
    from ..language.prim import FP32, div

    ld, st = FP32.ld, FP32.st
    _, inverse_root = scalars()

    def run(thread, nthreads, args):
        for ch in range(div(args.c * thread, nthreads), div(args.c * (thread + 1), nthreads)):
            st(args.stat, ch, ld(args.rm, ch))
            st(args.stat, args.c + ch, inverse_root(ld(args.rv, ch), args.eps))
            st(args.stat, 2 * args.c + ch, ld(args.rv, ch))

    return run


@kernel("bn_running", running_operands, check="c >= 0")
def bn_running():
    """s = (1 - momentum) * r + momentum * batch; the variance is made unbiased over `count`.

    sm, sv are the staged statistics. The first microbatch of a minibatch reads the committed ones
    (rm, rv), the others read the staged ones; `stat_commit` writes rm and rv during the update.
    """
    from ..control import MICROBATCH
    from ..language.fused_activation import ONE
    from ..language.prim import FP32, div, ld_i64

    ld, st = FP32.ld, FP32.st
    real, _ = scalars()

    def run(thread, nthreads, args):
        first = ld_i64(args.ctl, MICROBATCH) == 0
        mean, variance = (args.rm, args.rv) if first else (args.sm, args.sv)
        unbias = real(args.count) / real(max(args.count - 1, 1))
        keep = ONE - args.momentum
        for ch in range(div(args.c * thread, nthreads), div(args.c * (thread + 1), nthreads)):
            st(args.sm, ch, keep * ld(mean, ch) + args.momentum * ld(args.stat, ch))
            st(
                args.sv,
                ch,
                keep * ld(variance, ch) + args.momentum * (ld(args.stat, 2 * args.c + ch) * unbias),
            )

    return run


@kernel("stat_check", "s:r:f32[n] partials:m:f64[64] n", check="n >= 0")
def stat_check():
    """Add 0 to the partial sums of squared gradients, or NaN if a staged statistic s [n] is not
    finite, so that `grad_finish` skips the update. Fixed chunks, as in `grad_sumsq`."""
    from ..control import PARTIALS
    from ..language.prim import FP32, div, ld_f64, st_f64

    ld = FP32.ld

    def run(thread, nthreads, args):
        for chunk in range(
            div(PARTIALS * thread, nthreads), div(PARTIALS * (thread + 1), nthreads)
        ):
            total = ld_f64(args.partials, chunk)
            for i in range(div(args.n * chunk, PARTIALS), div(args.n * (chunk + 1), PARTIALS)):
                total += ld(args.s, i) - ld(args.s, i)
            st_f64(args.partials, chunk, total)

    return run


@kernel("stat_commit", "s:r:f32[n] r:m:f32[n] ctl:r:i64[64] n", check="n >= 0")
def stat_commit():
    """r = s: a staged statistic [n] becomes the running one, unless the update is skipped."""
    from ..control import SKIP
    from ..language.prim import FP32, div, ld_i64

    ld, st = FP32.ld, FP32.st

    def run(thread, nthreads, args):
        if ld_i64(args.ctl, SKIP) == 0:
            for i in range(div(args.n * thread, nthreads), div(args.n * (thread + 1), nthreads)):
                st(args.r, i, ld(args.s, i))

    return run


def sum_writer():
    """Inline (args, channel, sum of dz, sum of dz * (x - mean)): store `sums`, and add them to
    dbeta and dgamma."""
    import numpy as np

    from ..language.inlining import inline
    from ..language.prim import FP32

    ldf, st, single = FP32.ld, FP32.st, np.float32

    @inline
    def keep(args, ch, total, centred):
        along = centred * np.float64(ldf(args.stat, args.c + ch))
        st(args.sums, ch, total)
        st(args.sums, args.c + ch, along)
        if args.dbeta != 0:
            st(args.dbeta, ch, ldf(args.dbeta, ch) + single(total))
        if args.dgamma != 0:
            st(args.dgamma, ch, ldf(args.dgamma, ch) + single(along))

    return keep
