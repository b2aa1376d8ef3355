"""Triplet margin loss."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ZERO, sqrt
from .samples import of_samples

APART = 1e-6  # added to each difference, as in torch's pairwise_distance


def _distances(S):
    """distances(args, i): anchor to positive, anchor to negative, positive to negative."""
    ld = S.ld

    @inline
    def distances(args, i):
        near = far = other = 0.0
        for j in range(args.m):
            offset = 3 * i * args.m + j
            a, p = np.float64(ld(args.x, offset)), np.float64(ld(args.x, offset + args.m))
            n = np.float64(ld(args.x, offset + 2 * args.m))
            near += (a - p + APART) * (a - p + APART)
            far += (a - n + APART) * (a - n + APART)
            other += (p - n + APART) * (p - n + APART)
        return sqrt(near), sqrt(far), sqrt(other)

    return distances


def _value(S):
    distances = _distances(S)

    @inline
    def triplet(args, i):
        near, far, other = distances(args, i)
        if args.swap != 0 and other < far:
            far = other
        above = near - far + np.float64(args.p)
        return 0.0 if above < 0.0 else above  # NaN stays NaN

    return triplet


def _gradient(S):
    ld, st, distances = S.ld, S.st, _distances(S)

    @inline
    def put(args, offset, value):
        d = np.float32(value)
        st(args.dx, offset, d + ld(args.dx, offset) if args.acc != 0 else d)

    @inline
    def clear(args, i):
        for j in range(3 * args.m if args.acc == 0 else 0):
            st(args.dx, 3 * i * args.m + j, ZERO)

    @inline
    def by_length(factor, length):
        return 0.0 if length == 0.0 else factor / length

    @inline
    def slope(args, i, factor):
        if factor == 0.0:
            clear(args, i)
            return
        near, far, other = distances(args, i)
        swapped = args.swap != 0 and other < far
        if swapped:
            far = other
        if near - far + np.float64(args.p) <= 0.0:
            clear(args, i)
            return
        together, apart = by_length(factor, near), by_length(factor, far)
        for j in range(args.m):
            offset = 3 * i * args.m + j
            a, p = np.float64(ld(args.x, offset)), np.float64(ld(args.x, offset + args.m))
            n = np.float64(ld(args.x, offset + 2 * args.m))
            pull = together * (a - p + APART)
            push = apart * ((p if swapped else a) - n + APART)
            put(args, offset, pull if swapped else pull - push)
            put(args, offset + args.m, -pull - push if swapped else -pull)
            put(args, offset + 2 * args.m, push)

    return slope


of_samples(
    "triplet",
    "Triplet margin loss max(|a - p| - |a - n| + margin, 0) of the vectors a, p, n of x [n, 3, m], "
    "in float64; operand p is the margin. swap 1: |p - n| replaces |a - n| if it is smaller. t is "
    "not read",
    "x:r:S[3*n*m] t:r:f32[n]",
    "m swap=flag p:f",
    _value,
    _gradient,
    check="min(n, m) >= 1",
)
