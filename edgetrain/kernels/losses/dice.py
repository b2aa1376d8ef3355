"""Soft Dice loss: overlap of probabilities and masks, of each class of a sample."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO, exp, sigmoid
from ..language.prim import ld_f64, ld_i32, st_f64, to_real
from .samples import of_samples

SUMS = 3  # float64 of a class: of p * t, of p, of t; then slope where t is 1, slope elsewhere


def _places(S):
    """Inline functions of a position's first element `base`, whose classes lie k.inner apart."""
    ld = S.ld

    @inline
    def crest(k, base):
        """The largest logit, and the sum of exponentials above it."""
        top = ld(k.x, base)
        for j in range(1, k.c):
            value = ld(k.x, base + j * k.inner)
            if value > top or value != value:
                top = value
        total = 0.0
        for j in range(k.c):
            total += np.float64(exp(ld(k.x, base + j * k.inner) - top))
        return top, ONE / np.float32(total)

    @inline
    def probability(k, offset, top, share):
        x = ld(k.x, offset)
        return sigmoid(x) if k.own != 0 else exp(x - top) * share

    @inline
    def target_of(k, base, place, j):
        """Target of class j: 1 or 0; -1: ignored."""
        target = ld_i32(k.t, base + j * k.inner if k.own != 0 else place)
        if target == k.ignore:
            return -1
        return (1 if target == 1 else 0) if k.own != 0 else (1 if target == j else 0)

    return crest, probability, target_of


def _sums(S):
    """add_up(k, i): the sums of each class of sample i, to ws."""
    crest, probability, target_of = _places(S)

    @inline
    def add(k, base, place, top, share):
        for j in range(k.c):
            hit = target_of(k, base, place, j)
            if hit >= 0:
                p = np.float64(probability(k, base + j * k.inner, top, share))
                offset = SUMS * j
                st_f64(k.ws, offset, ld_f64(k.ws, offset) + (p if hit == 1 else 0.0))
                st_f64(k.ws, offset + 1, ld_f64(k.ws, offset + 1) + p)
                st_f64(k.ws, offset + 2, ld_f64(k.ws, offset + 2) + to_real(hit))

    @inline
    def add_up(k, i):
        for word in range(SUMS * k.c):
            st_f64(k.ws, word, 0.0)
        for row in range(k.rows):
            for q in range(k.inner):
                place = (i * k.rows + row) * k.inner + q
                base = (i * k.rows + row) * k.c * k.inner + q
                top, share = ZERO, ONE
                if k.own == 0:
                    top, share = crest(k, base)
                add(k, base, place, top, share)

    return add_up


@inline
def _targets(k):
    return to_real(k.rows * k.inner * (k.c if k.own != 0 else 1))


@inline
def _ratio(k, j):
    """Overlap of class j, and 1 / its denominator; (1, 0) if the denominator is 0."""
    smooth = np.float64(k.p)
    above = 2.0 * ld_f64(k.ws, SUMS * j) + smooth
    below = ld_f64(k.ws, SUMS * j + 1) + ld_f64(k.ws, SUMS * j + 2) + smooth
    return (1.0, 0.0) if below == 0.0 else (above / below, 1.0 / below)


def _value(S):
    add_up = _sums(S)

    @inline
    def dice(k, i):
        add_up(k, i)
        lost = 0.0
        for j in range(k.c):
            overlap, _ = _ratio(k, j)
            lost += 1.0 - overlap
        return lost / to_real(k.c)

    return dice


def _gradient(S):
    ld, st, add_up = S.ld, S.st, _sums(S)
    crest, probability, target_of = _places(S)

    @inline
    def put(k, offset, d):
        st(k.dx, offset, d + ld(k.dx, offset) if k.acc != 0 else d)

    @inline
    def slopes(k, factor):
        """ws: of each class the slope by a probability whose target is 1, and is 0."""
        each = factor / to_real(k.c)
        for j in range(k.c):
            overlap, inverse = _ratio(k, j)
            st_f64(k.ws, SUMS * j, each * (overlap - 2.0) * inverse)
            st_f64(k.ws, SUMS * j + 1, each * overlap * inverse)

    @inline
    def slope(k, j, hit):
        return np.float32(ld_f64(k.ws, SUMS * j + 1 - hit)) if hit >= 0 else ZERO

    @inline
    def apart(k, base, place):
        for j in range(k.c):
            p = probability(k, base + j * k.inner, ZERO, ONE)
            d = slope(k, j, target_of(k, base, place, j)) * (p * (ONE - p))
            put(k, base + j * k.inner, d)

    @inline
    def together(k, base, place):
        top, share = crest(k, base)
        mean = 0.0
        for j in range(k.c):
            p = probability(k, base + j * k.inner, top, share)
            mean += np.float64(p * slope(k, j, target_of(k, base, place, j)))
        for j in range(k.c):
            p = probability(k, base + j * k.inner, top, share)
            d = p * (slope(k, j, target_of(k, base, place, j)) - np.float32(mean))
            put(k, base + j * k.inner, d)

    @inline
    def of_sample(k, i, factor):
        if factor == 0.0:
            size = k.rows * k.c * k.inner
            for e in range(size if k.acc == 0 else 0):
                st(k.dx, i * size + e, ZERO)
            return
        add_up(k, i)
        slopes(k, factor)
        for row in range(k.rows):
            for q in range(k.inner):
                place = (i * k.rows + row) * k.inner + q
                base = (i * k.rows + row) * k.c * k.inner + q
                if k.own != 0:
                    apart(k, base, place)
                else:
                    together(k, base, place)

    return of_sample


of_samples(
    "dice",
    "Dice loss of x [n, rows, c, inner], summed in float64 over the rows * inner positions of a "
    "sample, the mean over the c classes. own 0: softmax over c, class indices t [n, rows, inner]; "
    "own 1: sigmoid, t is 0 or 1 in x's shape. Targets equal to `ignore` count in no sum. p: what "
    "smooths. A sample counts as many targets as it has. dx may be x",
    "x:r:S[n*rows*c*inner] t:r:i32[n*rows*inner*(1+own*(c-1))]",
    "rows c inner own=flag p:f ignore=compared",
    _value,
    _gradient,
    check="min(n, rows, c, inner) >= 1",
    count=_targets,
    scratch=("24*c", "24*c"),
)
