"""Losses and gradients in float64; sums over unmasked targets."""

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
    """As cross_entropy with weights cw [n] of the classes; the second is the sum of weights."""
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
    """Value and slope."""
    d = x - t
    value = np.where(np.abs(d) < delta, d * d / 2, delta * (np.abs(d) - delta / 2))
    return value, np.clip(d, -delta, delta)


def quantiles(x, t, levels):
    """x [n, m], t [n] -> the mean pinball loss of each target, and its slopes [n, m]."""
    d = t[:, None] - x
    value = np.maximum(levels * d, (levels - 1) * d).mean(1)
    return value, np.where(d > 0, -levels, np.where(d < 0, 1 - levels, 0)) / len(levels)


def focal(x, t, alpha, gamma):
    """Value and slope."""
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


def bce_pos(x, t, weight):
    """Value and slope."""
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
    """x [rows, n] of all classes -> top, sum above it, own logit, weighted sum, first place."""
    x = x.astype(np.float64)
    rows = np.arange(len(x))
    own = np.where(t >= 0, x[rows, np.maximum(t, 0)], 0.0)
    total = np.exp(x - x.max(1, keepdims=True)).sum(1)
    every = (x * cw).sum(1) if smoothing else np.zeros(len(x))
    return np.stack([x.max(1), total, own, every, x.argmax(1)], 1)


def best(x, count):
    """x [rows, n] -> classes of the `count` largest, by falling logits, -1 where there are none."""
    order = np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :count]
    return np.pad(order, ((0, 0), (0, count - order.shape[1])), constant_values=-1)
