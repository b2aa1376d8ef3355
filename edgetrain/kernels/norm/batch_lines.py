"""Batch normalisation element by element: bn_apply, bn_dx and bn_dx_eval (batch.py).

Each has one source for scalars and for vectors of 16, with the same bits.
"""

from typing import Any, NamedTuple

from ..registry import kernel
from .batch import CHECK, apply_operands, dx_eval_operands, dx_operands

# Declarations of both variants: (uses vectors, declaration).
BOTH = (
    (True, {"variant": "fast", "when": "lanes >= 4", "check": CHECK}),
    (False, {"check": CHECK}),
)


class Line(NamedTuple):
    """z = scale * x + shift; dx = scale * dz + tilt * (x - mean) + level.

    The mean is subtracted first: tilt * x and tilt * mean nearly cancel if the mean is large.
    """

    scale: Any
    shift: Any
    mean: Any
    level: Any
    tilt: Any


def _apply(vectors: bool):
    def factory(S):
        from ..language.elements import elements
        from ..language.fused_activation import act_value, norm_line
        from ..language.number import fma
        from ..language.prim import div

        width, load, load_first, store, spread = elements(S, vectors)

        def run(thread, nthreads, args):
            full = args.s & -width
            for ch in range(div(args.c * thread, nthreads), div(args.c * (thread + 1), nthreads)):
                line = norm_line(args, ch)
                a, shift = spread(line[0]), spread(line[1])
                for b in range(args.n):
                    row = (b * args.c + ch) * args.s
                    for i in range(row, row + full, width):
                        z = fma(load(args.x, i), a, shift)
                        store(args.y, i, act_value(args.act, z, args.lo, args.hi), width)
                    if full < args.s:
                        i, rest = row + full, args.s - full
                        z = fma(load_first(args.x, i, rest), a, shift)
                        store(args.y, i, act_value(args.act, z, args.lo, args.hi), rest)

        return run

    return factory


def _gradient(S, vectors: bool, batch: bool):
    """Inline (args, row, line): dx (+)= gradient for args.s elements from `row` on.

    Args:
      batch: the statistics are those of the batch, which depend on x.
    """
    from ..language.elements import elements
    from ..language.fused_activation import CLIP, NONE, RELU, act_slope
    from ..language.inlining import inline
    from ..language.number import fma

    width, load, load_first, store, _ = elements(S, vectors)

    @inline
    def step(v, d, act, to, args):
        dz = d * act_slope(act, fma(v, to.scale, to.shift), args.lo, args.hi)
        if batch:
            return fma(v - to.mean, to.tilt, fma(dz, to.scale, to.level))
        return to.scale * dz

    @inline
    def of_row(args, row, act, to):
        full = args.s & -width
        for i in range(row, row + full, width):
            d = step(load(args.x, i), load(args.dy, i), act, to, args)
            if args.acc != 0:
                d = d + load(args.dx, i)
            store(args.dx, i, d, width)
        if full < args.s:
            i, rest = row + full, args.s - full
            d = step(load_first(args.x, i, rest), load_first(args.dy, i, rest), act, to, args)
            if args.acc != 0:
                d = d + load_first(args.dx, i, rest)
            store(args.dx, i, d, rest)

    @inline
    def gradient(args, row, to):
        """With vectors, each usual activation has a loop without a choice of activation."""
        if vectors and args.act == RELU:
            of_row(args, row, RELU, to)
        elif vectors and args.act == CLIP:
            of_row(args, row, CLIP, to)
        elif vectors and args.act == NONE:
            of_row(args, row, NONE, to)
        else:
            of_row(args, row, args.act, to)

    return gradient


def _dx(vectors: bool):
    def factory(S):
        import numpy as np

        from ..language.elements import elements
        from ..language.fused_activation import norm_line
        from ..language.prim import FP32, div
        from .batch import scalars

        gradient, ldf, single = _gradient(S, vectors, True), FP32.ld, np.float32
        spread = elements(S, vectors).spread
        real, _ = scalars()

        def run(thread, nthreads, args):
            count = real(max(args.n * args.s, 1))
            for ch in range(div(args.c * thread, nthreads), div(args.c * (thread + 1), nthreads)):
                (scale, shift), invstd = norm_line(args, ch), ldf(args.stat, args.c + ch)
                tilt = -scale * (invstd * single(ldf(args.sums, args.c + ch) / count))
                level = -scale * single(ldf(args.sums, ch) / count)
                mean = spread(ldf(args.stat, ch))
                to = Line(spread(scale), spread(shift), mean, spread(level), spread(tilt))
                for b in range(args.n):
                    gradient(args, (b * args.c + ch) * args.s, to)

        return run

    return factory


def _dx_eval(vectors: bool):
    def factory(S):
        from ..language.elements import elements
        from ..language.fused_activation import ZERO, norm_line
        from ..language.prim import div

        gradient, spread = _gradient(S, vectors, False), elements(S, vectors).spread

        def run(thread, nthreads, args):
            for ch in range(div(args.c * thread, nthreads), div(args.c * (thread + 1), nthreads)):
                (scale, shift), zero = norm_line(args, ch), spread(ZERO)
                to = Line(spread(scale), spread(shift), zero, zero, zero)
                for b in range(args.n):
                    gradient(args, (b * args.c + ch) * args.s, to)

        return run

    return factory


for _vectors, _texts in BOTH:
    # y = act(z); y may be x.
    kernel("bn_apply", apply_operands, **_texts)(_apply(_vectors))
    # dx (+)= a * (dz - mean(dz) - xhat * mean(dz * xhat)); dx may be dy or x if acc = 0.
    # Revision 2: by two fused multiply-adds.
    kernel("bn_dx", dx_operands, revision="2", **_texts)(_dx(_vectors))
    # dx (+)= a * dz for statistics that do not depend on x; dx may be dy or x if acc = 0.
    kernel("bn_dx_eval", dx_eval_operands, **_texts)(_dx_eval(_vectors))
