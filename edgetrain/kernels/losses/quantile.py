"""Pinball losses of several quantiles of one target."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO
from ..language.prim import FP32, div, ld_i64, to_float, to_real
from ..registry import kernel
from .elementwise import all_alike, weight_of_sample
from .sums import CHUNKS, COUNT, gradient_scale, put_weighted


@inline
def pinball(x, t, q):
    """max(q * d, (q - 1) * d) for d = t - x; NaN stays NaN."""
    d = t - x
    return (q - ONE) * d if d < ZERO else q * d


@inline
def pinball_slope(x, t, q):
    """1 - q above the target, -q below, 0 at the target, like torch's relu; NaN stays NaN."""
    d = x - t
    above = ONE - q if d > ZERO else d
    return -q if d < ZERO else above


def _register(name: str, said: str, operand: str, weight_of) -> None:
    def loss(S):
        ld, ld32 = S.ld, FP32.ld

        def run(thread, nthreads, args):
            valid = min(args.n, ld_i64(args.ctl, COUNT) * args.rows)
            last = div(CHUNKS * (thread + 1), nthreads)
            for chunk in range(div(CHUNKS * thread, nthreads), last):
                total = counted = weights = 0.0
                for i in range(
                    div(args.n * chunk, CHUNKS), min(div(args.n * (chunk + 1), CHUNKS), valid)
                ):
                    weight = weight_of(args, i)
                    if weight != ZERO:
                        of_sample = 0.0
                        for j in range(args.m):
                            of_sample += np.float64(
                                pinball(
                                    ld(args.x, i * args.m + j), ld32(args.t, i), ld32(args.q, j)
                                )
                            )
                        total += np.float64(weight) * (of_sample / to_real(args.m))
                        counted += 1.0
                        weights += np.float64(weight)
                put_weighted(args.partials, chunk, total, counted, 0.0, weights)

        return run

    def backward(S):
        ld, st, ld32 = S.ld, S.st, FP32.ld

        def run(thread, nthreads, args):
            valid = min(args.n, ld_i64(args.ctl, COUNT) * args.rows)
            scale = gradient_scale(args.ctl) / to_float(args.m)
            for i in range(div(args.n * thread, nthreads), div(args.n * (thread + 1), nthreads)):
                weight = weight_of(args, i) if i < valid else ZERO
                for j in range(args.m):
                    offset, d = i * args.m + j, ZERO
                    if weight != ZERO:
                        slope = pinball_slope(ld(args.x, offset), ld32(args.t, i), ld32(args.q, j))
                        d = weight * scale * slope
                    st(args.dx, offset, d + ld(args.dx, offset) if args.acc != 0 else d)

        return run

    loss.__doc__ = (
        f"Pinball loss of x [n, m] for quantiles q [m] of targets t [n], {said}averaged over m. "
        "Losses are float32, summed in float64 in the order of elements. partials as in wce_loss."
    )
    backward.__doc__ = (
        f"Gradient of {name}_loss times LOSS_SCALE / NOMINAL; 0 where masked. acc 1: added to "
        "dx; dx may be x."
    )
    loss.__module__ = backward.__module__ = __name__
    same = f"x:r:S[n*m] t:r:f32[n] q:r:f32[m] {operand}"
    kernel(
        f"{name}_loss",
        f"{same}partials:w:f64[256] ctl:r:i64[64] n m rows",
        check="min(n, m, rows) >= 1",
    )(loss)
    kernel(
        f"{name}_bwd",
        f"{same}dx:m:S[n*m] ctl:r:i64[64] n m rows acc=flag",
        check="min(n, m, rows) >= 1",
    )(backward)


_register("quantile", "", "", all_alike)
_register(
    "quantile_w", "weighted by sw [samples] >= 0, ", "sw:r:f32[(n+rows-1)//rows] ", weight_of_sample
)
