"""Losses computed element by element, built from a value and a slope."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO
from ..language.prim import FP32, div, ld_i64
from ..registry import kernel
from .sums import CHUNKS, COUNT, gradient_scale, put_chunk, put_weighted

_ld = FP32.ld


@inline
def never(x, t):
    """No prediction counts as correct."""
    return False


@inline
def _own(args):
    return args.p


@inline
def _two(args):
    return args.p, args.q


@inline
def _none(args):
    return ZERO


@inline
def all_alike(args, i):
    return ONE


@inline
def weight_of_sample(args, i):
    return _ld(args.sw, div(i, args.rows))


@inline
def put_alike(partials, chunk, total, counted, correct, weights):
    put_chunk(partials, chunk, total, counted, correct)


def elementwise(name: str, title: str, value, slope, is_correct=never, numbers=0) -> None:
    """Register a loss over n elements, `rows` per sample: `<name>_loss` and `<name>_bwd`, and with
    sample weights `<name>_w_loss` and `<name>_w_bwd`.

    Args:
      value, slope: inline functions of (x, t, p) in float32.
      numbers: how many parameters the loss has: with 0, p is 0; with 2, it is the pair (p, q).
    """
    register(name, title, value, slope, is_correct, numbers)
    weighted(name, title, value, slope, is_correct, numbers)


def weighted(name: str, title: str, value, slope, is_correct=never, numbers=0) -> None:
    """The part of `elementwise` with sample weights."""
    register(
        f"{name}_w",
        f"{title}, weighted by sw [samples] >= 0,",
        value,
        slope,
        is_correct,
        numbers,
        weighs=True,
    )


def register(
    name: str, title: str, value, slope, is_correct=never, numbers=0, *, weighs=False
) -> None:
    """Register one pair of kernels. A target of weight 0 does not count."""
    numbers_of, operand = ((_none, ""), (_own, " p:f"), (_two, " p:f q:f"))[numbers]
    weight_of, put = (weight_of_sample, put_weighted) if weighs else (all_alike, put_alike)
    samples, sums = ("sw:r:f32[(n+rows-1)//rows] ", 256) if weighs else ("", 192)

    def loss(S):
        ld, ld32 = S.ld, FP32.ld

        def run(thread, nthreads, args):
            valid = min(args.n, ld_i64(args.ctl, COUNT) * args.rows)
            last = div(CHUNKS * (thread + 1), nthreads)
            for chunk in range(div(CHUNKS * thread, nthreads), last):
                total = counted = correct = weights = 0.0
                for i in range(
                    div(args.n * chunk, CHUNKS), min(div(args.n * (chunk + 1), CHUNKS), valid)
                ):
                    weight = weight_of(args, i)
                    if weight != ZERO:
                        a, b = ld(args.x, i), ld32(args.t, i)
                        total += np.float64(weight) * np.float64(value(a, b, numbers_of(args)))
                        counted += 1.0
                        correct += 1.0 if is_correct(a, b) else 0.0
                        weights += np.float64(weight)
                put(args.partials, chunk, total, counted, correct, weights)

        return run

    def backward(S):
        ld, st, ld32 = S.ld, S.st, FP32.ld

        def run(thread, nthreads, args):
            valid = min(args.n, ld_i64(args.ctl, COUNT) * args.rows)
            scale = gradient_scale(args.ctl)
            for i in range(div(args.n * thread, nthreads), div(args.n * (thread + 1), nthreads)):
                weight, d = weight_of(args, i) if i < valid else ZERO, ZERO
                if weight != ZERO:
                    d = weight * scale * slope(ld(args.x, i), ld32(args.t, i), numbers_of(args))
                st(args.dx, i, d + ld(args.dx, i) if args.acc != 0 else d)

        return run

    loss.__doc__ = (
        f"{title} of x [n] and float32 targets t [n]. Losses are float32, summed in float64 in the "
        "order of elements; each element counts as one target. partials as in "
        f"{'wce' if weighs else 'ce'}_loss."
    )
    backward.__doc__ = (
        f"Gradient of {name}_loss times LOSS_SCALE / NOMINAL; 0 where masked. acc 1: added to "
        "dx; dx may be x."
    )
    loss.__module__ = backward.__module__ = value.__module__  # where this is called
    for part, factory, result, acc in (
        ("loss", loss, f"partials:w:f64[{sums}]", ""),
        ("bwd", backward, "dx:m:S[n]", " acc=flag"),
    ):
        operands = f"x:r:S[n] t:r:f32[n] {samples}{result} ctl:r:i64[64] n rows{operand}{acc}"
        kernel(f"{name}_{part}", operands, check="rows >= 1")(factory)
