"""Naive pooling in float64 numpy, one window at a time."""

import numpy as np


def _windows(n, c, h, wd, oh, ow, kh, kw, sh, sw, ph, pw, dh=1, dw=1):
    """Yield (oy, ox, [(position, iy, ix) inside the image])."""
    for oy in range(oh):
        for ox in range(ow):
            inside = []
            for r in range(kh):
                for s in range(kw):
                    iy, ix = oy * sh - ph + r * dh, ox * sw - pw + s * dw
                    if 0 <= iy < h and 0 <= ix < wd:
                        inside.append((r * kw + s, iy, ix))
            yield oy, ox, inside


def maximum(x, **sizes):
    """Return (y, idx) for x [n, c, h, wd]."""
    shape = (*x.shape[:2], sizes["oh"], sizes["ow"])
    y, idx = np.full(shape, -np.inf), np.zeros(shape, np.int64)
    for oy, ox, inside in _windows(**sizes):
        if inside:
            positions, rows, columns = map(np.array, zip(*inside, strict=True))
            values = x[:, :, rows, columns].astype(np.float64)
            last_nan = values.shape[2] - 1 - np.isnan(values)[:, :, ::-1].argmax(2)
            where = np.where(np.isnan(values).any(2), last_nan, values.argmax(2))
            y[:, :, oy, ox] = np.take_along_axis(values, where[:, :, None], 2)[:, :, 0]
            idx[:, :, oy, ox] = positions[where]
    return y, idx


def maximum_backward(idx, dy, **sizes):
    """Return dx [n, c, h, wd]."""
    dx = np.zeros((sizes["n"], sizes["c"], sizes["h"], sizes["wd"]))
    for oy, ox, inside in _windows(**sizes):
        for position, iy, ix in inside:
            dx[:, :, iy, ix] += np.where(idx[:, :, oy, ox] == position, dy[:, :, oy, ox], 0)
    return dx


def _divisor(o, size, kernel, stride, before, after, include_pad):
    covered = range(o * stride - before, min(o * stride - before + kernel, size + after))
    if not include_pad:
        covered = [i for i in covered if 0 <= i < size]
    return max(len(covered), 1)


def _divisors(oy, ox, pb, pr, include_pad, s):
    rows = _divisor(oy, s["h"], s["kh"], s["sh"], s["ph"], pb, include_pad)
    return rows * _divisor(ox, s["wd"], s["kw"], s["sw"], s["pw"], pr, include_pad)


def average(x, pb, pr, include_pad, **sizes):
    """Return y for x [n, c, h, wd]."""
    y = np.zeros((*x.shape[:2], sizes["oh"], sizes["ow"]))
    for oy, ox, inside in _windows(**sizes):
        for _, iy, ix in inside:
            y[:, :, oy, ox] += x[:, :, iy, ix]
        y[:, :, oy, ox] /= _divisors(oy, ox, pb, pr, include_pad, sizes)
    return y


def average_backward(dy, pb, pr, include_pad, **sizes):
    """Return dx [n, c, h, wd]."""
    dx = np.zeros((sizes["n"], sizes["c"], sizes["h"], sizes["wd"]))
    for oy, ox, inside in _windows(**sizes):
        for _, iy, ix in inside:
            share = dy[:, :, oy, ox] / _divisors(oy, ox, pb, pr, include_pad, sizes)
            dx[:, :, iy, ix] += share
    return dx


def norm(x, p, **sizes):
    """Return (sum |x|^p)^(1/p) of each window of x [n, c, h, wd]."""
    y = np.zeros((*x.shape[:2], sizes["oh"], sizes["ow"]))
    for oy, ox, inside in _windows(**sizes):
        for _, iy, ix in inside:
            y[:, :, oy, ox] += np.abs(x[:, :, iy, ix]) ** p
    return y ** (1 / p)


def norm_backward(x, y, dy, p, **sizes):
    """Return dx [n, c, h, wd]; windows of zeros contribute nothing."""
    dx = np.zeros(x.shape)
    for oy, ox, inside in _windows(**sizes):
        for _, iy, ix in inside:
            v, root = x[:, :, iy, ix], y[:, :, oy, ox]
            ratio = np.divide(np.abs(v), root, out=np.zeros(v.shape), where=root != 0)
            dx[:, :, iy, ix] += np.sign(v) * ratio ** (p - 1) * dy[:, :, oy, ox]
    return dx
