"""InfoNCE: each vector must find its partner among the vectors of the minibatch.

Vectors 2 * i + side belong to sample i. An anchor's candidates are the vectors of the other side,
or with `every` all but itself; its score with a candidate is their cosine over the temperature p.
"""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ZERO, exp, log, sqrt
from ..language.prim import div, ld_f64, ld_i64, st_f64
from .samples import of_samples
from .sums import COUNT, gradient_scale

SHORTEST = 1e-12  # least length, as in torch's normalize


@inline
def _inverse(squares):
    length = sqrt(squares)
    return 1.0 / (SHORTEST if length < SHORTEST else length)


def _measures(S):
    """(inverse(args, v), cosine(args, v, u, inverse_length)): 1 / length and cosine."""
    ld = S.ld

    @inline
    def inverse(args, v):
        squares = 0.0
        for j in range(args.m):
            a = np.float64(ld(args.x, v * args.m + j))
            squares += a * a
        return _inverse(squares)

    @inline
    def cosine(args, v, u, inverse_length):
        product = squares = 0.0
        for j in range(args.m):
            a, b = np.float64(ld(args.x, v * args.m + j)), np.float64(ld(args.x, u * args.m + j))
            product += a * b
            squares += b * b
        return product * inverse_length * _inverse(squares)

    return inverse, cosine


def _logsums(S):
    """logsum(args, v, own): the logarithm of the sum of exponentials of v's scores, and its
    partner's score."""
    _, cosine = _measures(S)

    @inline
    def logsum(args, v, inverse_length):
        valid, partner = min(args.n, ld_i64(args.ctl, COUNT)), v + 1 - 2 * (v & 1)
        top, total, hit = -np.inf, 0.0, 0.0
        step = 1 if args.every != 0 else 2
        for u in range(0 if args.every != 0 else partner & 1, 2 * valid, step):
            if u != v:
                score = cosine(args, v, u, inverse_length) / np.float64(args.p)
                if u == partner:
                    hit = score
                if score > top:
                    total = total * np.float64(exp(np.float32(top - score))) + 1.0
                    top = score
                else:
                    total += np.float64(exp(np.float32(score - top)))
        return top + np.float64(log(np.float32(total))), hit

    return logsum


def _value(S):
    inverse, _ = _measures(S)
    logsum = _logsums(S)

    @inline
    def info_nce(args, i):
        both = 0.0
        for v in range(2 * i, 2 * i + 2):
            log_total, hit = logsum(args, v, inverse(args, v))
            both += log_total - hit
        return 0.5 * both

    return info_nce


def _backward_of(weight_of):
    def backward(S):
        st, ld = S.st, S.ld
        inverse, cosine = _measures(S)
        logsum = _logsums(S)

        @inline
        def survey(args, valid):
            """Store in ws, for each valid vector, the logarithm of its sum and 1 / its length."""
            for v in range(2 * valid):
                inverse_length = inverse(args, v)
                log_total, _ = logsum(args, v, inverse_length)
                st_f64(args.ws, 2 * v, log_total)
                st_f64(args.ws, 2 * v + 1, inverse_length)

        @inline
        def pull(args, v, u, cos, scale):
            """The slope of anchor v's loss with respect to its score with u."""
            share = exp(np.float32(cos / np.float64(args.p) - ld_f64(args.ws, 2 * v)))
            hit = 1.0 if u == v + 1 - 2 * (v & 1) else 0.0
            return scale * weight_of(args, div(v, 2)) * (np.float64(share) - hit)

        @inline
        def gradient(args, v, valid, scale):
            """dx of a vector from its own loss and the others', less the part along the vector."""
            row, inverse_length, along = 4 * args.n, ld_f64(args.ws, 2 * v + 1), 0.0
            for j in range(args.m):
                st_f64(args.ws, row + j, 0.0)
            step = 1 if args.every != 0 else 2
            for u in range(0 if args.every != 0 else 1 - (v & 1), 2 * valid, step):
                if u != v:
                    cos = cosine(args, v, u, inverse_length)
                    by = pull(args, v, u, cos, scale) + pull(args, u, v, cos, scale)
                    along += by * cos
                    by = by * ld_f64(args.ws, 2 * u + 1)
                    for j in range(args.m):
                        b = np.float64(ld(args.x, u * args.m + j))
                        st_f64(args.ws, row + j, ld_f64(args.ws, row + j) + by * b)
            for j in range(args.m):
                offset = v * args.m + j
                a = np.float64(ld(args.x, offset))
                d = np.float32(
                    inverse_length * (ld_f64(args.ws, row + j) - along * inverse_length * a)
                )
                st(args.dx, offset, d + ld(args.dx, offset) if args.acc != 0 else d)

        def run(thread, nthreads, args):
            valid = min(args.n, ld_i64(args.ctl, COUNT))
            scale = 0.5 * np.float64(gradient_scale(args.ctl)) / np.float64(args.p)
            survey(args, valid)
            for v in range(
                div(2 * args.n * thread, nthreads), div(2 * args.n * (thread + 1), nthreads)
            ):
                if v < 2 * valid:
                    gradient(args, v, valid, scale)
                else:
                    for j in range(args.m if args.acc == 0 else 0):
                        st(args.dx, v * args.m + j, ZERO)

        return run

    return backward


of_samples(
    "info_nce",
    "InfoNCE of the pairs x [n, 2, m] in float64: the mean over a pair's two anchors. The batch is "
    "the first COUNT pairs. every 1: the other vectors of the same side are negatives too. p: "
    "temperature. t is not read; dx must not be x",
    "x:r:S[2*n*m] t:r:f32[n]", "m every=flag p:f", _value, None, check="min(n, m) >= 1",
    scratch=("", "8*(4*n+m)"), work="4*n*n*m*nthreads", backward_of=_backward_of,
)  # fmt: skip
