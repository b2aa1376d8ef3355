"""Naive twins of norm/layer.py: x is [n, c, s] in float64, statistics per group of channels."""

import numpy as np


def _grouped(x, groups):
    n, c, s = x.shape
    return x.reshape(n, groups, -1)


def statistics(x, groups, eps, centre):
    """Return mean and 1/sqrt(power + eps), each [n, groups, 1]."""
    rows = _grouped(x, groups)
    mean = rows.mean(axis=2, keepdims=True) * centre
    power = ((rows - mean) ** 2).mean(axis=2, keepdims=True)
    return mean, 1 / np.sqrt(power + eps)


def _hat(x, groups, eps, centre):
    mean, inverse = statistics(x, groups, eps, centre)
    return ((_grouped(x, groups) - mean) * inverse).reshape(x.shape)


def forward(x, gamma, beta, groups, eps, centre):
    return _hat(x, groups, eps, centre) * gamma[:, None] + beta[:, None]


def dx(x, gamma, dy, groups, eps, centre):
    inverse = statistics(x, groups, eps, centre)[1]
    hat = _grouped(_hat(x, groups, eps, centre), groups)
    dz = _grouped(dy * gamma[:, None], groups)
    a = dz.mean(axis=2, keepdims=True) * centre
    b = (dz * hat).mean(axis=2, keepdims=True)
    return (inverse * (dz - a - hat * b)).reshape(x.shape)


def dparam(x, dy, groups, eps, centre):
    return (dy * _hat(x, groups, eps, centre)).sum(axis=(0, 2)), dy.sum(axis=(0, 2))
