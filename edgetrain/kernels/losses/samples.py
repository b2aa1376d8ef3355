"""Losses of whole samples, built from a value and a gradient."""

import numpy as np

from ..language.inlining import inline
from ..language.prim import FP32, div, ld_i64
from ..registry import kernel
from .sums import CHUNKS, COUNT, gradient_scale, put_chunk, put_weighted

_ld = FP32.ld


@inline
def once(args):
    """A sample counts as one target."""
    return 1.0


@inline
def _alike(args, i):
    return 1.0


@inline
def _own(args, i):
    return np.float64(_ld(args.sw, i))


@inline
def _put_alike(partials, chunk, total, counted, weights):
    put_chunk(partials, chunk, total, counted, 0.0)


@inline
def _put_weighted(partials, chunk, total, counted, weights):
    put_weighted(partials, chunk, total, counted, 0.0, weights)


def of_samples(
    name: str, title: str, operands: str, numbers: str, value, gradient, *, check: str,
    count=once, work: str = "", scratch: tuple[str, str] = ("", ""), backward_of=None,
) -> None:  # fmt: skip
    """Register a loss with one value for each of n samples: `<name>_loss` and `<name>_bwd`, and
    with sample weights `<name>_w_loss` and `<name>_w_bwd`. A sample of weight 0 does not count.

    Args:
      operands: read by both kernels; x is declared as `x:r:S[..]`, with as many elements as dx.
      numbers: integers and floats besides n.
      value: storage -> inline function (args, i): the loss of sample i, float64.
      gradient: storage -> inline function (args, i, factor): writes the gradient of sample i times
        a float64 to args.dx, or adds it if args.acc; for a factor of 0 it writes zeros, whatever x
        holds.
      count: inline function (args): how many targets a sample counts as, float64.
      scratch: bytes of each thread's args.ws in the loss kernel and in the gradient kernel.
    """
    for weighs in (False, True):
        suffix, said, samples = (
            ("_w", " Weighted by sw [n] >= 0.", " sw:r:f32[n]") if weighs else ("", "", "")
        )
        loss, backward = _pair(value, gradient, count, weighs, backward_of)
        loss.__doc__ = (
            f"{title}.{said} partials: float64 sums in the order of samples, laid out as in "
            f"{'wce' if weighs else 'ce'}_loss."
        )
        backward.__doc__ = (
            f"Gradient of {name}{suffix}_loss times LOSS_SCALE / NOMINAL; 0 where masked or of "
            "weight 0. acc 1: added to dx."
        )
        loss.__module__ = backward.__module__ = value.__module__  # where this is called
        elements = operands.split("]", 1)[0].split("[", 1)[1]
        for part, factory, result, acc, room in (
            ("loss", loss, f"partials:w:f64[{256 if weighs else 192}]", "", scratch[0]),
            ("bwd", backward, f"dx:m:S[{elements}]", " acc=flag", scratch[1]),
        ):
            given = f"{operands}{samples} {result} ctl:r:i64[64] n {numbers}{acc}"
            given += f" ws:t[{room}]" if room else ""
            kernel(f"{name}{suffix}_{part}", given, check=check, work=work)(factory)


def _pair(value, gradient, count, weighs: bool, backward_of=None):
    weight_of, put = (_own, _put_weighted) if weighs else (_alike, _put_alike)

    def loss(S):
        value_of = value(S)

        def run(thread, nthreads, args):
            valid, each = min(args.n, ld_i64(args.ctl, COUNT)), count(args)
            for chunk in range(
                div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)
            ):
                total = counted = weights = 0.0
                for i in range(
                    div(args.n * chunk, CHUNKS), min(div(args.n * (chunk + 1), CHUNKS), valid)
                ):
                    weight = each * weight_of(args, i)
                    if weight != 0.0:
                        total += weight * value_of(args, i)
                        counted += each
                        weights += weight
                put(args.partials, chunk, total, counted, weights)

        return run

    def backward(S):
        gradient_of = gradient(S)

        def run(thread, nthreads, args):
            valid = min(args.n, ld_i64(args.ctl, COUNT))
            scale = np.float64(gradient_scale(args.ctl)) * count(args)
            for i in range(div(args.n * thread, nthreads), div(args.n * (thread + 1), nthreads)):
                gradient_of(args, i, scale * weight_of(args, i) if i < valid else 0.0)

        return run

    return loss, backward if backward_of is None else backward_of(weight_of)
