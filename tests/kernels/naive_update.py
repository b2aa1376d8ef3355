"""Optimizers in float64, element by element as their papers have them."""

import numpy as np


def sgd(w, g, v, *, lr, mu, wd, dampening, nesterov, first):
    """New weights and momentum."""
    g = g + wd * w
    v = g if first else mu * v + (1 - dampening) * g
    return w - lr * (g + mu * v if nesterov else v), v


def adam(w, g, m, v, *, lr, b1, b2, eps, wd, decoupled, t):
    """New weights, first and second moment of update t = 1, 2, ..."""
    if decoupled:
        w = w * (1 - lr * wd)
    else:
        g = g + wd * w
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    root = np.sqrt(v / (1 - b2**t))
    return w - lr * (m / (1 - b1**t)) / (root + eps), m, v
