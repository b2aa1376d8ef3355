"""Naive batch normalisation and activations in float64 numpy."""

import numpy as np


def act(code: int, z: np.ndarray, lo: float = 0.0, hi: float = 0.0) -> np.ndarray:
    """Apply the activation with this code (kernels/language/fused_activation.py)."""
    z = np.asarray(z, np.float64)
    sigmoid = 1 / (1 + np.exp(-z))
    return [
        z,
        np.maximum(z, 0),
        np.minimum(np.maximum(z, lo), hi),
        z * np.clip(z / 6 + 0.5, 0, 1),
        sigmoid,
        z * sigmoid,
        np.where(z > 0, z, z * lo),
    ][code]


def slope(code: int, z: np.ndarray, lo: float = 0.0, hi: float = 0.0) -> np.ndarray:
    """Return the derivative of `act` at z."""
    z = np.asarray(z, np.float64)
    s = 1 / (1 + np.exp(-z))
    return [
        np.ones_like(z),
        np.where(z <= 0, 0.0, 1.0),
        np.where((z <= lo) | (z >= hi), 0.0, 1.0),
        np.where(z <= -3, 0.0, np.where(z >= 3, 1.0, z / 3 + 0.5)),
        s * (1 - s),
        s * (1 + z * (1 - s)),
        np.where(z > 0, 1.0, lo),
    ][code]


def stats(x: np.ndarray, eps: float) -> np.ndarray:
    """Return [3, c]: mean, 1/sqrt(var + eps) and biased variance of x [n, c, s]."""
    x = x.astype(np.float64)
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    return np.stack([mean, 1 / np.sqrt(variance + eps), variance])


def normalised(x, stat, gamma, beta):
    """Normalise x [n, c, s]; gamma and beta may be None."""
    scale = stat[1] * (1.0 if gamma is None else gamma)
    shift = (0.0 if beta is None else beta) - stat[0] * scale
    return x.astype(np.float64) * scale[:, None] + shift[:, None]


def backward(x, stat, gamma, beta, dy, code=0, lo=0.0, hi=0.0):
    """Return (sums [2, c], dx with batch statistics, dx with frozen statistics)."""
    dz = dy.astype(np.float64) * slope(code, normalised(x, stat, gamma, beta), lo, hi)
    xhat = (x.astype(np.float64) - stat[0][:, None]) * stat[1][:, None]
    sums = np.stack([dz.sum((0, 2)), (dz * xhat).sum((0, 2))])
    count = x.shape[0] * x.shape[2]
    scale = (stat[1] * (1.0 if gamma is None else gamma))[:, None]
    centred = dz - sums[0][:, None] / count - xhat * (sums[1][:, None] / count)
    return sums, scale * centred, scale * dz
