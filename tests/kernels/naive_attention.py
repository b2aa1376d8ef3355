"""Naive twin of kernels/attention: computes the whole score matrix in float64."""

import numpy as np


def weights(q, k, bias, mask, band, scale, keep, how, fill):
    """Return (softmax of the scores [z1, z2, m, n], mask of the scores that have a gradient).

    Args:
      k: expanded to every query head.
      band: (kind, first, before, after, low).
    """
    m, n = q.shape[2], k.shape[2]
    s = scale * (q @ np.swapaxes(k, 2, 3))
    free = np.ones(s.shape, bool)
    kind, first, before, after, low = band
    ahead = np.arange(n) - np.arange(m)[:, None]
    beyond = (ahead < -before) | (ahead > after)

    def hide(s, free, where, kind, number):
        if kind == 1:
            return np.where(where, s + number, s), free
        return np.where(where, number, s), free & ~where if kind == 2 else free

    if bias is not None:
        s = s + bias
    if kind and first:
        s, free = hide(s, free, beyond, kind, low)
    if mask is not None:
        s, free = hide(s, free, np.broadcast_to((mask != 0) != keep, s.shape), how, fill)
    if kind and not first:
        s, free = hide(s, free, beyond, kind, low)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(3, keepdims=True))
        return e / e.sum(3, keepdims=True), free


def gradients(q, k, v, dy, w, free, scale, kept):
    """Return dq, dk, dv; k, v and their gradients are expanded to every query head.

    Args:
      kept: dropout mask, scaled.
    """
    dv = np.swapaxes(w * kept, 2, 3) @ dy
    dw = (dy @ np.swapaxes(v, 2, 3)) * kept
    ds = np.where(free, w * (dw - (w * dw).sum(3, keepdims=True)) * scale, 0)
    return ds @ k, np.swapaxes(ds, 2, 3) @ q, dv
