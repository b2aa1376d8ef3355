"""Naive twins of the reductions: numpy in float64 over axes."""

import numpy as np

REDUCE = {
    "sum": np.sum,
    "mean": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "sumsq": lambda x, axis: np.sum(x * x, axis=axis),
    "l1": lambda x, axis: np.sum(np.abs(x), axis=axis),
}


def extreme_bwd(x, y, dy, axes):
    """Share dy equally among the elements equal to y (y and dy keep the reduced axes as size 1)."""
    tie = x == y
    return np.where(tie, dy / tie.sum(axis=axes, keepdims=True), 0.0)


def norm(x, axes, p):
    """Return (sum |x|^p)^(1/p) over axes, kept as size 1."""
    return (np.abs(x) ** p).sum(axis=axes, keepdims=True) ** (1 / p)


def norm_slope(x, y, p):
    """Return the slope of each element; 0 where the norm is 0."""
    ratio = np.divide(np.abs(x), y, out=np.zeros(x.shape), where=y != 0)
    return np.sign(x) * ratio ** (p - 1)


# name -> (value over axes kept as size 1, slope of each element)
FUNCTIONS = {
    "logsum": (
        lambda x, axes, p: np.log(x.sum(axis=axes, keepdims=True)),
        lambda x, y, p: np.exp(-y) + 0 * x,
    ),
    "logsumexp": (
        lambda x, axes, p: np.log(np.exp(x).sum(axis=axes, keepdims=True)),
        lambda x, y, p: np.exp(x - y),
    ),
    "norm": (norm, norm_slope),
    "l1": (lambda x, axes, p: norm(x, axes, 1), lambda x, y, p: np.sign(x)),
    "sumsq": (lambda x, axes, p: (x * x).sum(axis=axes, keepdims=True), lambda x, y, p: 2 * x),
}
