"""CTC: the probability of labels over all their alignments with time.

Between, before and after a sample's labels lies the blank: place s of 2 * labels + 1 holds label
s // 2 where s is odd. alpha(t, s) is the logarithm of the probability of all beginnings that are at
place s at time t, beta of all ends from there on; both have the probability of that step itself.
Logarithms are sums in float64 of terms in float32.
"""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ZERO, exp, log, log1p
from ..language.prim import div, ld_f64, ld_i32, mod, st_f64, to_real
from .samples import of_samples

NEVER = -np.inf


@inline
def _targets(k):
    return to_real(k.labels + k.first)


@inline
def _either(a, b):
    """log(e^a + e^b)."""
    high, low = (b, a) if a < b else (a, b)
    if low == NEVER:
        return high if high == high else low
    return high + np.float64(log1p(exp(np.float32(low - high))))


def _places(S):
    """Inline functions of a sample: what its targets hold, and what is at a place and time."""
    ld = S.ld

    @inline
    def width(k):
        return k.labels + k.first

    @inline
    def steps_of(k, i):
        if k.first == 0:
            return k.steps
        return max(0, min(k.steps, ld_i32(k.t, i * width(k))))

    @inline
    def label(k, i, s):
        """The class at a place."""
        return ld_i32(k.t, i * width(k) + k.first + div(s, 2)) if mod(s, 2) == 1 else k.blank

    @inline
    def count_of(k, i):
        """Labels before the padding."""
        for count in range(k.labels):
            own = ld_i32(k.t, i * width(k) + k.first + count)
            if own < 0 or own >= k.c or own == k.blank:
                return count
        return k.labels

    @inline
    def logsum(k, base):
        """Of the exponentials of a step's logits."""
        top = ld(k.x, base)
        for j in range(1, k.c):
            value = ld(k.x, base + j)
            if value > top or value != value:
                top = value
        total = 0.0
        for j in range(k.c):
            total += np.float64(exp(ld(k.x, base + j) - top))
        return np.float64(top) + np.float64(log(np.float32(total)))

    return steps_of, label, count_of, logsum


def _forward(S):
    """ahead(k, i, steps, places, pitch): the rows of alpha, `pitch` of them in ws one after the
    other (2: the last two); the log likelihood."""
    ld = S.ld
    _, label, _, logsum = _places(S)

    @inline
    def before(k, i, s, row):
        """Log-probability of all prefixes that can continue at s; row: alphas of the last step."""
        result = ld_f64(k.ws, row + s)
        if s > 0:
            result = _either(result, ld_f64(k.ws, row + s - 1))
        if s > 2 and mod(s, 2) == 1 and label(k, i, s) != label(k, i, s - 2):
            result = _either(result, ld_f64(k.ws, row + s - 2))
        return result

    @inline
    def ahead(k, i, steps, places, pitch):
        row = 0
        for t in range(steps):
            base = (i * k.steps + t) * k.c
            whole, last = logsum(k, base), row
            row = mod(t, pitch) * places
            for s in range(places):
                result = (0.0 if s < 2 else NEVER) if t == 0 else before(k, i, s, last)
                own = np.float64(ld(k.x, base + label(k, i, s))) - whole
                st_f64(k.ws, row + s, result + own)
        end = ld_f64(k.ws, row + places - 1)
        return _either(end, ld_f64(k.ws, row + places - 2)) if places > 1 else end

    return ahead


def _likelihood(S):
    """(steps, labels, places, log likelihood) of a sample."""
    steps_of, _, count_of, _ = _places(S)
    ahead = _forward(S)

    @inline
    def likelihood(k, i, pitch):
        steps, count = steps_of(k, i), count_of(k, i)
        places = 2 * count + 1
        result = 0.0 if count == 0 else NEVER
        if steps > 0:
            result = ahead(k, i, steps, places, pitch)
        return steps, count, places, result

    return likelihood


def _value(S):
    likelihood = _likelihood(S)

    @inline
    def ctc(k, i):
        _, count, _, result = likelihood(k, i, 2)
        if result == NEVER and k.zero != 0:
            return 0.0
        return -result / to_real(max(count, 1)) if k.mean != 0 else -result

    return ctc


def _gradient(S):
    ld, st, likelihood = S.ld, S.st, _likelihood(S)
    _, label, _, logsum = _places(S)

    @inline
    def clear(k, base, number):
        for j in range(k.c if k.acc == 0 else 0):
            st(k.dx, base + j, number)

    @inline
    def onward(k, i, s, places, row):
        """Of all ends that place s may go on to; row: beta of the step behind."""
        result = ld_f64(k.ws, row + s)
        if s + 1 < places:
            result = _either(result, ld_f64(k.ws, row + s + 1))
        if s + 2 < places and mod(s, 2) == 1 and label(k, i, s) != label(k, i, s + 2):
            result = _either(result, ld_f64(k.ws, row + s + 2))
        return result

    @inline
    def step_back(k, i, t, end, places, result, factor):
        """Beta of a step, and dx of its logits: softmax less the share of each class."""
        base, beta = (i * k.steps + t) * k.c, k.steps * (2 * k.labels + 1)
        shares = beta + 2 * (2 * k.labels + 1)
        row, behind = beta + mod(t, 2) * places, beta + mod(t + 1, 2) * places
        whole = logsum(k, base)
        for j in range(k.c):
            st_f64(k.ws, shares + j, 0.0)
        for s in range(places):
            ends = 0.0 if s >= places - 2 else NEVER
            later = ends if end else onward(k, i, s, places, behind)
            at = label(k, i, s)
            own = np.float64(ld(k.x, base + at)) - whole
            st_f64(k.ws, row + s, later + own)
            here = exp(np.float32(ld_f64(k.ws, t * places + s) + later - result))
            st_f64(k.ws, shares + at, ld_f64(k.ws, shares + at) + np.float64(here))
        for j in range(k.c):
            p = np.float64(exp(np.float32(np.float64(ld(k.x, base + j)) - whole)))
            d = np.float32(factor * (p - ld_f64(k.ws, shares + j)))
            st(k.dx, base + j, d + ld(k.dx, base + j) if k.acc != 0 else d)

    @inline
    def of_sample(k, i, factor):
        steps = count = 0
        places, result = 1, 0.0
        if factor != 0.0:
            steps, count, places, result = likelihood(k, i, k.steps)
            if result == NEVER:
                steps = steps if k.zero == 0 else 0
            if k.mean != 0:
                factor = factor / to_real(max(count, 1))
        for t in range(k.steps):
            if t >= steps:
                clear(k, (i * k.steps + t) * k.c, ZERO)
        for back in range(steps):
            step_back(k, i, steps - 1 - back, back == 0, places, result, factor)

    return of_sample


of_samples(
    "ctc",
    "CTC loss of logits x [n, steps, c] with labels t [n, first + labels], which end before the "
    "first that is no class or the blank. first 1: the first number of each row is the sample's "
    "steps. mean 1: divided by its labels, at least 1; zero 1: what is impossible counts as 0. A "
    "sample counts as first + labels targets. dx may be x",
    "x:r:S[n*steps*c] t:r:i32[n*(labels+first)]",
    "steps=size c labels=size first=flag blank=size mean=flag zero=flag",
    _value,
    _gradient,
    check="min(n, steps, c, labels) >= 1;blank < c",
    count=_targets,
    scratch=("16*(2*labels+1)", "8*((steps+2)*(2*labels+1)+c)"),
    work="n*steps*(2*labels+1+c)*3*nthreads",
)
