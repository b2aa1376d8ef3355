"""Naive losses and gradients in float64; sums cover unmasked targets only."""

import itertools

import numpy as np


def cross_entropy(x, t, smoothing, ignore, samples, rows):
    """x [outer, n, inner], t [outer, inner] -> loss sum, targets, correct, gradient of the sum."""
    x = x.astype(np.float64)
    outer, n, _ = x.shape
    valid = (t != ignore) & (np.arange(outer)[:, None] // rows < samples)
    with np.errstate(invalid="ignore"):
        shifted = x - x.max(1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    classes = np.arange(n)[None, :, None]
    wanted = (classes == t[:, None, :]) * (1 - smoothing) + smoothing / n
    losses = -(wanted * log_p).sum(1)
    gradient = (np.exp(log_p) - wanted) * valid[:, None, :]
    correct = (x.argmax(1) == t) & valid
    return losses[valid].sum(), valid.sum(), correct.sum(), gradient


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def weighted_cross_entropy(x, t, cw, smoothing, ignore, samples, rows):
    """Like cross_entropy with class weights cw [n]; the second result is the sum of weights."""
    x, cw = x.astype(np.float64), cw.astype(np.float64)
    outer, n, _ = x.shape
    valid = (t != ignore) & (np.arange(outer)[:, None] // rows < samples)
    shifted = x - x.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    hot = np.arange(n)[None, :, None] == t[:, None, :]
    wanted = (hot * (1 - smoothing) + smoothing / n) * cw[None, :, None]
    gradient = (np.exp(log_p) * wanted.sum(1, keepdims=True) - wanted) * valid[:, None, :]
    weights = (hot * cw[None, :, None]).sum(1)[valid].sum()
    correct = ((x.argmax(1) == t) & valid).sum()
    return -(wanted * log_p).sum(1)[valid].sum(), weights, correct, gradient


def huber(x, t, delta):
    """Return value and slope."""
    d = x - t
    value = np.where(np.abs(d) < delta, d * d / 2, delta * (np.abs(d) - delta / 2))
    return value, np.clip(d, -delta, delta)


def quantiles(x, t, levels):
    """x [n, m], t [n] -> the mean pinball loss of each target, and its slopes [n, m]."""
    d = t[:, None] - x
    value = np.maximum(levels * d, (levels - 1) * d).mean(1)
    return value, np.where(d > 0, -levels, np.where(d < 0, 1 - levels, 0)) / len(levels)


def focal(x, t, alpha, gamma):
    """Return value and slope."""
    p = _sigmoid(x)
    share, missed = alpha * t + (1 - alpha) * (1 - t), p * (1 - t) + (1 - p) * t
    bce = -(t * np.log(p) + (1 - t) * np.log(1 - p))
    slope = (
        missed**gamma * (p - t) - gamma * missed ** (gamma - 1) * (2 * t - 1) * p * (1 - p) * bce
    )
    return share * missed**gamma * bce, share * slope


def cosine(x, t):
    """x, t [n, m] -> the distance of each vector, and its slopes [n, m]."""
    both = np.linalg.norm(x, axis=1) * np.linalg.norm(t, axis=1)
    cosine = (x * t).sum(1) / both
    slopes = cosine[:, None] * x / (x * x).sum(1)[:, None] - t / both[:, None]
    return 1 - cosine, slopes


def triplets(x, margin, swap):
    """x [n, 3, m] -> the loss of each triplet, and its slopes [n, 3, m]."""
    value, slopes = np.zeros(len(x)), np.zeros_like(x)
    for i, (a, p, n) in enumerate(x):
        near, far, other = a - p + 1e-6, a - n + 1e-6, p - n + 1e-6
        sizes = [np.linalg.norm(d) for d in (near, far, other)]
        swapped = swap and sizes[2] < sizes[1]
        value[i] = max(0, sizes[0] - sizes[2 if swapped else 1] + margin)
        if value[i] > 0:
            pull, push = near / sizes[0], (other if swapped else far) / sizes[2 if swapped else 1]
            slopes[i] = [pull, -pull, push]
            slopes[i, 1 if swapped else 0] -= push
    return value, slopes


def pairs(x, weights, temperature, every):
    """x [n, 2, m] -> the loss of each pair, and the slopes [n, 2, m] of their weighted sum."""
    n, _, m = x.shape
    z = x.reshape(2 * n, m)
    length = np.linalg.norm(z, axis=1, keepdims=True)
    unit, side = z / length, np.arange(2 * n) % 2
    scores = unit @ unit.T / temperature
    allowed = ~np.eye(2 * n, dtype=bool) & (every | (side[:, None] != side))
    shares = np.where(allowed, np.exp(scores), 0)
    sums = shares.sum(1, keepdims=True)
    partner = np.eye(2 * n)[np.arange(2 * n) ^ 1]
    each = np.log(sums[:, 0]) - (scores * partner).sum(1)
    slope = (shares / sums - partner) * np.repeat(weights, 2)[:, None] / 2
    along = (slope + slope.T) @ unit / temperature
    slopes = (along - (along * unit).sum(1, keepdims=True) * unit) / length
    return each.reshape(n, 2).mean(1), slopes.reshape(x.shape)


def dice(x, t, smooth, ignore, own):
    """x [n, c, inner]; t [n, inner], or x's shape if `own` -> each loss, slopes in x's shape."""
    counts = (t != ignore).astype(np.float64)
    if own:
        p, mask = _sigmoid(x), (t == 1) * counts
    else:
        e = np.exp(x - x.max(1, keepdims=True))
        p, counts = e / e.sum(1, keepdims=True), counts[:, None]
        mask = (t[:, None] == np.arange(x.shape[1])[:, None]) * counts
    above = 2 * (p * mask).sum(2, keepdims=True) + smooth
    below = (p * counts).sum(2, keepdims=True) + mask.sum(2, keepdims=True) + smooth
    by_p = counts * (above / below - 2 * mask) / below / x.shape[1]
    slopes = by_p * p * (1 - p) if own else p * (by_p - (p * by_p).sum(1, keepdims=True))
    return (1 - above / below).mean((1, 2)), slopes


def ctc(x, labels, blank):
    """Loss and slopes for the logits x [steps, c] of one sample, enumerating every path."""
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    whole, shares = 0.0, np.zeros_like(p)
    for path in itertools.product(range(p.shape[1]), repeat=len(p)):
        said = [c for k, c in enumerate(path) if c != blank and (k == 0 or path[k - 1] != c)]
        if said == list(labels):
            own = np.prod(p[np.arange(len(p)), path])
            whole += own
            shares[np.arange(len(p)), path] += own
    return (-np.log(whole), p - shares / whole) if whole else (np.inf, np.full_like(p, np.nan))


def bce_pos(x, t, weight):
    """Return value and slope."""
    p = _sigmoid(x)
    return -(weight * t * np.log(p) + (1 - t) * np.log(1 - p)), (1 - t) * p - weight * t * (1 - p)


ELEMENTWISE = {
    "mse": (lambda x, t: (x - t) ** 2, lambda x, t: 2 * (x - t), None),
    "l1": (lambda x, t: np.abs(x - t), lambda x, t: np.sign(x - t), None),
    "bce": (
        lambda x, t: np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x))),
        lambda x, t: _sigmoid(x) - t,
        lambda x, t: (x > 0) == (t > 0.5),
    ),
}


def elementwise(name, x, t, samples, rows):
    """x, t [n] -> loss sum, targets, correct, gradient of the sum."""
    value, slope, is_correct = ELEMENTWISE[name]
    x, t = x.astype(np.float64), t.astype(np.float64)
    valid = np.arange(x.size) < samples * rows
    correct = (is_correct(x, t) & valid).sum() if is_correct else 0
    return value(x, t)[valid].sum(), valid.sum(), correct, slope(x, t) * valid


def slices(x, t, cw, smoothing):
    """x [rows, n] of all classes -> max, sum of exponentials, own logit, weighted sum, argmax."""
    x = x.astype(np.float64)
    rows = np.arange(len(x))
    own = np.where(t >= 0, x[rows, np.maximum(t, 0)], 0.0)
    total = np.exp(x - x.max(1, keepdims=True)).sum(1)
    every = (x * cw).sum(1) if smoothing else np.zeros(len(x))
    return np.stack([x.max(1), total, own, every, x.argmax(1)], 1)


def best(x, count):
    """x [rows, n] -> classes of the `count` largest logits, largest first, padded with -1."""
    order = np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :count]
    return np.pad(order, ((0, 0), (0, count - order.shape[1])), constant_values=-1)
