"""The norm of all gradients, which decides whether an update is skipped, clipped and counted."""

import numpy as np

from .. import control
from ..language.divisor import divisor
from ..language.inlining import inline
from ..language.mathf import sqrt
from ..language.number import fma, to
from ..language.prim import div, ld_f64, ld_i64, st_f64, st_i64
from ..language.quad import first, fourth, none, second, third
from ..language.vector import loads
from ..registry import kernel, of_numbers

ZERO = np.float32(0)
CHUNKS = control.PARTIALS
SKIP, ADAM_T, TARGETS = control.SKIP, control.ADAM_T, control.TARGETS
LOSS_SCALE, NOMINAL = control.LOSS_SCALE, control.NOMINAL
GRAD_NORM, GRAD_FACTOR = control.GRAD_NORM, control.GRAD_FACTOR
BIAS1, BIAS2 = control.BIAS1, control.BIAS2
AT_ONCE = 8  # chunks that vectors sum together
CLIP_MARGIN = 1e-6  # as torch's clip_grad_norm_
_wide = to("float64")


def _four_sums(G, vectors: bool):
    """Inline functions on four float64 sums: () -> zeros, (sums, address, index) -> sums with the
    squares of four elements added, (sums) -> the four.

    The square of a float32 is exact in float64, so fma rounds like a multiplication and an
    addition.
    """
    ld = loads(G, width=4) if vectors else G.ld
    lanes = tuple(range(4))

    @inline
    def add_vector(sums, address, index):
        value = _wide(ld(address, index))
        return fma(value, value, sums)

    @inline
    def four(sums):
        return first(sums), second(sums), third(sums), fourth(sums)

    @inline
    def zeros():
        return 0.0, 0.0, 0.0, 0.0

    @inline
    def add_numbers(sums, address, index):
        values = tuple(np.float64(ld(address, index + i)) for i in lanes)
        return tuple(total + v * v for total, v in zip(sums, values, strict=True))

    @inline
    def same(sums):
        return sums

    return (none, add_vector, four) if vectors else (zeros, add_numbers, same)


def _squares(vectors: bool):
    """`grad_sumsq`: add the squares of g [n] to 64 partial sums of fixed chunks; first 1: overwrite
    them.

    A chunk has four sums in float64, each of every fourth element, added in order. Vectors process
    eight chunks at once: in a single chunk, each addition would wait for the previous one.
    """

    def factory(G):
        (zeros, add, four), ld = _four_sums(G, vectors), G.ld
        abreast = tuple(range(AT_ONCE))

        @inline
        def begin(args, chunk):
            return div(args.n * chunk, CHUNKS)

        @inline
        def finish(args, chunk, offset, sums):
            """Sum the rest of a chunk, from element `offset` on, and store the total."""
            end = begin(args, chunk + 1)
            while end - offset >= 4:
                sums = add(sums, args.g, offset)
                offset += 4
            s0, s1, s2, s3 = four(sums)
            for q in range(offset, end):
                value = np.float64(ld(args.g, q))
                s0 += value * value
            total = (s0 + s1) + (s2 + s3)
            st_f64(
                args.partials,
                chunk,
                total if args.first != 0 else total + ld_f64(args.partials, chunk),
            )

        def run(thread, nthreads, args):
            chunk, stop = div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)
            turns = div(div(args.n, CHUNKS), 4) * 4  # elements that every chunk has, whole fours
            while vectors and stop - chunk >= AT_ONCE:
                starts = tuple(begin(args, chunk + i) for i in abreast)
                sums = tuple(zeros() for i in abreast)
                for q in range(0, turns, 4):
                    sums = tuple(
                        add(total, args.g, start + q)
                        for total, start in zip(sums, starts, strict=True)
                    )
                for i, (total, start) in enumerate(zip(sums, starts, strict=True)):
                    finish(args, chunk + i, start + turns, total)
                chunk += AT_ONCE
            while chunk < stop:
                finish(args, chunk, begin(args, chunk), zeros())
                chunk += 1

        return run

    return factory


_SUMSQ = "g:r:G[n] partials:m:f64[64] n first=flag"
_WIDE = {"variant": "wide", "when": f"lanes > 1 and {of_numbers('G')}"}
kernel("grad_sumsq", _SUMSQ, **_WIDE)(_squares(True))
kernel("grad_sumsq", _SUMSQ, blocks="G")(_squares(False))


@kernel("grad_finish", "partials:r:f64[64] ctl:m:i64[64] max_norm:f c1:f c2:f")
def grad_finish():
    """Compute the gradient's norm, whether the update is skipped, and the multiplier of gradients.

    Gradients were accumulated times LOSS_SCALE / NOMINAL; their mean is over TARGETS, weighted by
    the targets' weights. GRAD_NORM is the norm of that mean, GRAD_FACTOR the multiplier that turns
    gradients into that mean, clipped to `max_norm` (0: no clipping). SKIP is set if the norm is not
    finite or nothing was counted; otherwise ADAM_T, BIAS1 and BIAS2 advance; c1, c2 are 1 - beta.
    Thread 0 does it.
    """

    @inline
    def advance(ctl, word, complement):
        # 1 - beta^t from 1 - beta^(t-1)
        before = ld_f64(ctl, word)
        st_f64(ctl, word, before + np.float64(complement) * (1.0 - before))

    def run(thread, nthreads, args):
        if thread == 0:
            total = 0.0
            for chunk in range(CHUNKS):
                total += ld_f64(args.partials, chunk)
            targets = ld_i64(args.ctl, TARGETS)
            factor = ld_f64(args.ctl, NOMINAL) / (divisor(args.ctl) * ld_f64(args.ctl, LOSS_SCALE))
            norm = sqrt(total) * factor
            finite = norm - norm == 0.0
            if args.max_norm > ZERO:
                factor *= min(1.0, np.float64(args.max_norm) / (norm + CLIP_MARGIN))
            st_f64(args.ctl, GRAD_NORM, norm)
            st_f64(args.ctl, GRAD_FACTOR, factor)
            st_i64(args.ctl, SKIP, 0 if finite and targets > 0 else 1)
            if finite and targets > 0:
                st_i64(args.ctl, ADAM_T, ld_i64(args.ctl, ADAM_T) + 1)
                advance(args.ctl, BIAS1, args.c1)
                advance(args.ctl, BIAS2, args.c2)

    return run
