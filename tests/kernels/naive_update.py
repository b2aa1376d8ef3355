"""Naive optimizers in float64, element by element, as in their papers."""

import numpy as np


def sgd(w, g, v, *, lr, mu, wd, dampening, nesterov, first):
    """Return new weights and momentum."""
    g = g + wd * w
    v = g if first else mu * v + (1 - dampening) * g
    return w - lr * (g + mu * v if nesterov else v), v


def adam(w, g, m, v, *, lr, b1, b2, eps, wd, decoupled, t):
    """Return new weights, first and second moment of update t = 1, 2, ..."""
    if decoupled:
        w = w * (1 - lr * wd)
    else:
        g = g + wd * w
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    root = np.sqrt(v / (1 - b2**t))
    return w - lr * (m / (1 - b1**t)) / (root + eps), m, v


def rmsprop(w, g, v, m, mean, *, lr, alpha, eps, wd, mu):
    """Return new weights, mean square, momentum, mean gradient; `mean` None means not centered."""
    g = g + wd * w
    v = alpha * v + (1 - alpha) * g * g
    spread = np.sqrt(v)
    if mean is not None:
        mean = alpha * mean + (1 - alpha) * g
        spread = np.sqrt(np.maximum(v - mean**2, 0))
    m = mu * m + g / (spread + eps)
    return w - lr * m, v, m, mean


def adagrad(w, g, v, *, lr, decay, eps, wd, t):
    """Return new weights and sum of squares."""
    g = g + wd * w
    v = v + g * g
    return w - lr / (1 + (t - 1) * decay) * g / (np.sqrt(v) + eps), v


def lion(w, g, m, *, lr, b1, b2, wd):
    """Return new weights and momentum."""
    step = np.sign(b1 * m + (1 - b1) * g)
    return w - lr * (step + wd * w), b2 * m + (1 - b2) * g


def adafactor(w, g, v, *, lr, power, eps, least, most, wd, t):
    """Return new weights and moments: (rows, columns) of w [count, rows, cols], or per element."""
    share, squares = t**power, g * g
    if isinstance(v, tuple):
        means = squares.mean(2, keepdims=True), squares.mean(1, keepdims=True)
        v = tuple(a + (b - a) * share for a, b in zip(v, means, strict=True))
        moment = v[0] * v[1] / np.maximum(v[0].mean(1, keepdims=True), eps)
    else:
        v = moment = v + (squares - v) * share
    step = g / np.maximum(np.sqrt(moment), eps)
    size = min(lr, 1 / np.sqrt(t)) * max(least, np.sqrt((w**2).mean()))
    return w * (1 - lr * wd) - size / max(1, np.sqrt((step**2).mean()) / most) * step, v
