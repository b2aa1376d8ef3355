"""CTC: the probability of labels over all their alignments with time.

There is a blank before, between and after a sample's labels: place s of 2 * labels + 1 holds label
s // 2 if s is odd, otherwise the blank. alpha(t, s) is the logarithm of the probability of all
prefixes that are at place s at time t, beta that of all suffixes from there on; both include the
probability of that step itself. Logarithms are sums in float64 of terms in float32.
"""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ZERO, exp, log, log1p
from ..language.prim import div, ld_f64, ld_i32, mod, st_f64, to_real
from .samples import of_samples

NEVER = -np.inf


@inline
def _targets(args):
    return to_real(args.labels + args.first)


@inline
def _either(a, b):
    """log(e^a + e^b)."""
    high, low = (b, a) if a < b else (a, b)
    if low == NEVER:
        return high if high == high else low
    return high + np.float64(log1p(exp(np.float32(low - high))))


def _places(S):
    """Inline functions on a sample: its steps, its labels, and the label at a place and time."""
    ld = S.ld

    @inline
    def width(args):
        return args.labels + args.first

    @inline
    def steps_of(args, i):
        if args.first == 0:
            return args.steps
        return max(0, min(args.steps, ld_i32(args.t, i * width(args))))

    @inline
    def label(args, i, s):
        """The class at a place."""
        return (
            ld_i32(args.t, i * width(args) + args.first + div(s, 2))
            if mod(s, 2) == 1
            else args.blank
        )

    @inline
    def count_of(args, i):
        """Labels before the padding; -1 if one of them is no class, or the sample claims to have
        more steps than there are."""
        if args.first != 0 and ld_i32(args.t, i * width(args)) > args.steps:
            return -1
        for count in range(args.labels):
            class_ = ld_i32(args.t, i * width(args) + args.first + count)
            if class_ >= args.c:
                return -1
            if class_ < 0 or class_ == args.blank:
                return count
        return args.labels

    @inline
    def logsum(args, base):
        """Logarithm of the sum of exponentials of a step's logits."""
        top = ld(args.x, base)
        for j in range(1, args.c):
            value = ld(args.x, base + j)
            if value > top or value != value:
                top = value
        total = 0.0
        for j in range(args.c):
            total += np.float64(exp(ld(args.x, base + j) - top))
        return np.float64(top) + np.float64(log(np.float32(total)))

    return steps_of, label, count_of, logsum


def _forward(S):
    """ahead(args, i, steps, places, pitch) -> log likelihood: computes the rows of alpha, and keeps
    `pitch` of them in ws, one after the other (2: the last two)."""
    ld = S.ld
    _, label, _, logsum = _places(S)

    @inline
    def before(args, i, s, row):
        """Log-probability of all prefixes that can continue at s; row: alphas of the last step."""
        result = ld_f64(args.ws, row + s)
        if s > 0:
            result = _either(result, ld_f64(args.ws, row + s - 1))
        if s > 2 and mod(s, 2) == 1 and label(args, i, s) != label(args, i, s - 2):
            result = _either(result, ld_f64(args.ws, row + s - 2))
        return result

    @inline
    def ahead(args, i, steps, places, pitch):
        row = 0
        for t in range(steps):
            base = (i * args.steps + t) * args.c
            log_total, last = logsum(args, base), row
            row = mod(t, pitch) * places
            for s in range(places):
                result = (0.0 if s < 2 else NEVER) if t == 0 else before(args, i, s, last)
                score = np.float64(ld(args.x, base + label(args, i, s))) - log_total
                st_f64(args.ws, row + s, result + score)
        end = ld_f64(args.ws, row + places - 1)
        return _either(end, ld_f64(args.ws, row + places - 2)) if places > 1 else end

    return ahead


def _likelihood(S):
    """Inline (args, i, pitch) -> (steps, labels, places, log likelihood) of a sample; if a label is
    no class, 0 places and NaN."""
    steps_of, _, count_of, _ = _places(S)
    ahead = _forward(S)

    @inline
    def likelihood(args, i, pitch):
        steps, count = steps_of(args, i), count_of(args, i)
        if count < 0:
            return args.steps, 0, 0, np.nan
        places = 2 * count + 1
        result = 0.0 if count == 0 else NEVER
        if steps > 0:
            result = ahead(args, i, steps, places, pitch)
        return steps, count, places, result

    return likelihood


def _value(S):
    likelihood = _likelihood(S)

    @inline
    def ctc(args, i):
        _, count, _, result = likelihood(args, i, 2)
        if result == NEVER and args.zero != 0:
            return 0.0
        return -result / to_real(max(count, 1)) if args.mean != 0 else -result

    return ctc


def _gradient(S):
    ld, st, likelihood = S.ld, S.st, _likelihood(S)
    _, label, _, logsum = _places(S)

    @inline
    def clear(args, base, number):
        for j in range(args.c if args.acc == 0 else 0):
            st(args.dx, base + j, number)

    @inline
    def onward(args, i, s, places, row):
        """Log-probability of all suffixes that can follow place s; row: betas of the next step."""
        result = ld_f64(args.ws, row + s)
        if s + 1 < places:
            result = _either(result, ld_f64(args.ws, row + s + 1))
        if s + 2 < places and mod(s, 2) == 1 and label(args, i, s) != label(args, i, s + 2):
            result = _either(result, ld_f64(args.ws, row + s + 2))
        return result

    @inline
    def step_back(args, i, t, end, places, result, factor):
        """Compute beta of a step, and dx of its logits: softmax minus the share of each class."""
        base, beta = (i * args.steps + t) * args.c, args.steps * (2 * args.labels + 1)
        shares = beta + 2 * (2 * args.labels + 1)
        row, behind = beta + mod(t, 2) * places, beta + mod(t + 1, 2) * places
        log_total = logsum(args, base)
        for j in range(args.c):
            st_f64(args.ws, shares + j, 0.0)
        for s in range(places):
            ends = 0.0 if s >= places - 2 else NEVER
            later = ends if end else onward(args, i, s, places, behind)
            label_ = label(args, i, s)
            score = np.float64(ld(args.x, base + label_)) - log_total
            st_f64(args.ws, row + s, later + score)
            here = exp(np.float32(ld_f64(args.ws, t * places + s) + later - result))
            st_f64(args.ws, shares + label_, ld_f64(args.ws, shares + label_) + np.float64(here))
        for j in range(args.c):
            p = np.float64(exp(np.float32(np.float64(ld(args.x, base + j)) - log_total)))
            d = np.float32(factor * (p - ld_f64(args.ws, shares + j)))
            st(args.dx, base + j, d + ld(args.dx, base + j) if args.acc != 0 else d)

    @inline
    def of_sample(args, i, factor):
        steps = count = 0
        places, result = 1, 0.0
        if factor != 0.0:
            steps, count, places, result = likelihood(args, i, args.steps)
            if result == NEVER:
                steps = steps if args.zero == 0 else 0
            if args.mean != 0:
                factor = factor / to_real(max(count, 1))
            if places == 0:  # nothing was computed
                factor = np.nan
        for t in range(args.steps):
            if t >= steps:
                clear(args, (i * args.steps + t) * args.c, ZERO)
        for back in range(steps):
            step_back(args, i, steps - 1 - back, back == 0, places, result, factor)

    return of_sample


of_samples(
    "ctc",
    "CTC loss of logits x [n, steps, c] with labels t [n, first + labels]. A sample's labels end "
    "before the first one that is the blank or negative; one that is no class makes the loss NaN. "
    "first 1: each row of t begins with the sample's number of steps. mean 1: divided by the "
    "number of labels, at least 1. zero 1: the loss is 0 if no alignment is possible. A sample "
    "counts as first + labels targets. dx may be x",
    "x:r:S[n*steps*c] t:r:i32[n*(labels+first)]",
    "steps=size c labels=size first=flag blank=size mean=flag zero=flag",
    _value,
    _gradient,
    check="min(n, steps, c, labels) >= 1;blank < c",
    count=_targets,
    scratch=("16*(2*labels+1)", "8*((steps+2)*(2*labels+1)+c)"),
    work="n*steps*(2*labels+1+c)*3*nthreads",
)
