"""Soft Dice loss: overlap of probabilities and masks, for each class of a sample."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO, exp, sigmoid
from ..language.prim import ld_f64, ld_i32, st_f64, to_real
from .samples import of_samples

SUMS = 3  # float64 of a class: sums of p * t, of p, of t; then the slopes where t is 1, and 0


def _places(S):
    """Inline functions for a position whose first element is `base` and whose classes are
    args.inner apart."""
    ld = S.ld

    @inline
    def crest(args, base):
        """The largest logit, and 1 / sum of exponentials relative to it."""
        top = ld(args.x, base)
        for j in range(1, args.c):
            value = ld(args.x, base + j * args.inner)
            if value > top or value != value:
                top = value
        total = 0.0
        for j in range(args.c):
            total += np.float64(exp(ld(args.x, base + j * args.inner) - top))
        return top, ONE / np.float32(total)

    @inline
    def probability(args, offset, top, share):
        x = ld(args.x, offset)
        return sigmoid(x) if args.own != 0 else exp(x - top) * share

    @inline
    def target_of(args, base, place, j):
        """Target of class j: 1 or 0; -1 if ignored."""
        target = ld_i32(args.t, base + j * args.inner if args.own != 0 else place)
        if target == args.ignore:
            return -1
        return (1 if target == 1 else 0) if args.own != 0 else (1 if target == j else 0)

    return crest, probability, target_of


def _sums(S):
    """add_up(args, i): store the sums of each class of sample i in ws."""
    crest, probability, target_of = _places(S)

    @inline
    def add(args, base, place, top, share):
        for j in range(args.c):
            hit = target_of(args, base, place, j)
            if hit >= 0:
                p = np.float64(probability(args, base + j * args.inner, top, share))
                offset = SUMS * j
                st_f64(args.ws, offset, ld_f64(args.ws, offset) + (p if hit == 1 else 0.0))
                st_f64(args.ws, offset + 1, ld_f64(args.ws, offset + 1) + p)
                st_f64(args.ws, offset + 2, ld_f64(args.ws, offset + 2) + to_real(hit))

    @inline
    def add_up(args, i):
        for word in range(SUMS * args.c):
            st_f64(args.ws, word, 0.0)
        for row in range(args.rows):
            for q in range(args.inner):
                place = (i * args.rows + row) * args.inner + q
                base = (i * args.rows + row) * args.c * args.inner + q
                top, share = ZERO, ONE
                if args.own == 0:
                    top, share = crest(args, base)
                add(args, base, place, top, share)

    return add_up


@inline
def _targets(args):
    return to_real(args.rows * args.inner * (args.c if args.own != 0 else 1))


@inline
def _ratio(args, j):
    """Overlap of class j, and 1 / its denominator; (1, 0) if the denominator is 0."""
    smooth = np.float64(args.p)
    above = 2.0 * ld_f64(args.ws, SUMS * j) + smooth
    below = ld_f64(args.ws, SUMS * j + 1) + ld_f64(args.ws, SUMS * j + 2) + smooth
    return (1.0, 0.0) if below == 0.0 else (above / below, 1.0 / below)


def _value(S):
    add_up = _sums(S)

    @inline
    def dice(args, i):
        add_up(args, i)
        lost = 0.0
        for j in range(args.c):
            overlap, _ = _ratio(args, j)
            lost += 1.0 - overlap
        return lost / to_real(args.c)

    return dice


def _gradient(S):
    ld, st, add_up = S.ld, S.st, _sums(S)
    crest, probability, target_of = _places(S)

    @inline
    def put(args, offset, d):
        st(args.dx, offset, d + ld(args.dx, offset) if args.acc != 0 else d)

    @inline
    def slopes(args, factor):
        """Store in ws, for each class, the slope by a probability whose target is 1, and one whose
        target is 0."""
        each = factor / to_real(args.c)
        for j in range(args.c):
            overlap, inverse = _ratio(args, j)
            st_f64(args.ws, SUMS * j, each * (overlap - 2.0) * inverse)
            st_f64(args.ws, SUMS * j + 1, each * overlap * inverse)

    @inline
    def slope(args, j, hit):
        return np.float32(ld_f64(args.ws, SUMS * j + 1 - hit)) if hit >= 0 else ZERO

    @inline
    def apart(args, base, place):
        for j in range(args.c):
            p = probability(args, base + j * args.inner, ZERO, ONE)
            d = slope(args, j, target_of(args, base, place, j)) * (p * (ONE - p))
            put(args, base + j * args.inner, d)

    @inline
    def together(args, base, place):
        top, share = crest(args, base)
        mean = 0.0
        for j in range(args.c):
            p = probability(args, base + j * args.inner, top, share)
            mean += np.float64(p * slope(args, j, target_of(args, base, place, j)))
        for j in range(args.c):
            p = probability(args, base + j * args.inner, top, share)
            d = p * (slope(args, j, target_of(args, base, place, j)) - np.float32(mean))
            put(args, base + j * args.inner, d)

    @inline
    def of_sample(args, i, factor):
        if factor == 0.0:
            size = args.rows * args.c * args.inner
            for e in range(size if args.acc == 0 else 0):
                st(args.dx, i * size + e, ZERO)
            return
        add_up(args, i)
        slopes(args, factor)
        for row in range(args.rows):
            for q in range(args.inner):
                place = (i * args.rows + row) * args.inner + q
                base = (i * args.rows + row) * args.c * args.inner + q
                if args.own != 0:
                    apart(args, base, place)
                else:
                    together(args, base, place)

    return of_sample


of_samples(
    "dice",
    "Dice loss of x [n, rows, c, inner], averaged over the c classes, with float64 sums over the "
    "rows * inner positions of a sample. own 0: softmax over c, class indices t [n, rows, inner]; "
    "own 1: sigmoid, t is 0 or 1 in x's shape. Targets equal to `ignore` are left out of the sums. "
    "p: smoothing term. Every element of t counts as one target. dx may be x",
    "x:r:S[n*rows*c*inner] t:r:i32[n*rows*inner*(1+own*(c-1))]",
    "rows c inner own=flag p:f ignore=compared",
    _value,
    _gradient,
    check="min(n, rows, c, inner) >= 1",
    count=_targets,
    scratch=("24*c", "24*c"),
)
