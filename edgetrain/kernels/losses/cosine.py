"""Cosine distance of vectors."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ZERO, sqrt
from ..language.prim import FP32, div, ld_i64, to_real
from ..registry import kernel
from .elementwise import all_alike, put_alike, weight_of_sample
from .sums import CHUNKS, COUNT, gradient_scale, put_weighted

SHORTEST = 1e-8  # least length, as in torch's cosine_similarity


@inline
def _length(squares):
    length = sqrt(squares)
    return SHORTEST if length < SHORTEST else length


def _register(name: str, said: str, operand: str, count: int, weight_of, put) -> None:
    def sums(S):
        ld, ld32 = S.ld, FP32.ld

        @inline
        def of_vector(args, i):
            product = squares = others = 0.0
            for j in range(args.m):
                a = np.float64(ld(args.x, i * args.m + j))
                b = np.float64(ld32(args.t, i * args.m + j))
                product += a * b
                squares += a * a
                others += b * b
            return product, squares, others

        return of_vector

    def loss(S):
        of_vector = sums(S)

        def run(thread, nthreads, args):
            valid = min(args.n, ld_i64(args.ctl, COUNT) * args.rows)
            last = div(CHUNKS * (thread + 1), nthreads)
            for chunk in range(div(CHUNKS * thread, nthreads), last):
                total = counted = weights = 0.0
                for i in range(
                    div(args.n * chunk, CHUNKS), min(div(args.n * (chunk + 1), CHUNKS), valid)
                ):
                    weight = np.float64(weight_of(args, i))
                    if weight != 0.0:
                        product, squares, others = of_vector(args, i)
                        distance = 1.0 - product / (_length(squares) * _length(others))
                        total += weight * distance * to_real(args.m)
                        counted += to_real(args.m)
                        weights += weight * to_real(args.m)
                put(args.partials, chunk, total, counted, 0.0, weights)

        return run

    def backward(S):
        ld, st, ld32, of_vector = S.ld, S.st, FP32.ld, sums(S)

        def run(thread, nthreads, args):
            valid = min(args.n, ld_i64(args.ctl, COUNT) * args.rows)
            scale = np.float64(gradient_scale(args.ctl)) * to_real(args.m)
            for i in range(div(args.n * thread, nthreads), div(args.n * (thread + 1), nthreads)):
                weight = weight_of(args, i) if i < valid else ZERO
                product, squares, others = of_vector(args, i)
                length = _length(squares)
                both = length * _length(others)
                along = product / (both * squares) if length > SHORTEST else 0.0
                factor = scale * np.float64(weight)
                for j in range(args.m):
                    offset, d = i * args.m + j, ZERO
                    if weight != ZERO:
                        x, t = np.float64(ld(args.x, offset)), np.float64(ld32(args.t, offset))
                        d = np.float32(factor * (along * x - t / both))
                    st(args.dx, offset, d + ld(args.dx, offset) if args.acc != 0 else d)

        return run

    loss.__doc__ = (
        f"1 - cosine similarity of each row of x [n, m] and of t [n, m], {said}in float64. A row "
        "counts as m targets, each with that loss. partials as in ce_loss; with weights, as in "
        "wce_loss."
    )
    backward.__doc__ = (
        f"Gradient of {name}_loss times LOSS_SCALE / NOMINAL; 0 where masked. acc 1: added to "
        "dx; dx may be x."
    )
    loss.__module__ = backward.__module__ = __name__
    same = f"x:r:S[n*m] t:r:f32[n*m] {operand}"
    check = "min(n, m, rows) >= 1"
    partials = f"partials:w:f64[{count}] ctl:r:i64[64] n m rows"
    kernel(f"{name}_loss", same + partials, check=check)(loss)
    kernel(f"{name}_bwd", f"{same}dx:m:S[n*m] ctl:r:i64[64] n m rows acc=flag", check=check)(
        backward
    )


_register("cosine", "", "", 192, all_alike, put_alike)
_register(
    "cosine_w",
    "weighted by sw [samples] >= 0, ",
    "sw:r:f32[(n+rows-1)//rows] ",
    256,
    weight_of_sample,
    put_weighted,
)
