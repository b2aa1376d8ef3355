"""Naive convolutions in float64 numpy, one kernel tap at a time."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Conv:
    """Integers of a convolution, named as in the kernels."""

    n: int = 1
    c: int = 1
    h: int = 1
    wd: int = 1
    k: int = 1
    kh: int = 1
    kw: int = 1
    sh: int = 1
    sw: int = 1
    ph: int = 0
    pw: int = 0
    dh: int = 1
    dw: int = 1
    g: int = 1
    extra_h: int = 0  # bottom padding minus top padding
    extra_w: int = 0

    @property
    def oh(self) -> int:
        reach = self.h + 2 * self.ph + self.extra_h - (self.kh - 1) * self.dh - 1
        return reach // self.sh + 1

    @property
    def ow(self) -> int:
        reach = self.wd + 2 * self.pw + self.extra_w - (self.kw - 1) * self.dw - 1
        return reach // self.sw + 1

    @property
    def x_shape(self) -> tuple[int, ...]:
        return self.n, self.c, self.h, self.wd

    @property
    def w_shape(self) -> tuple[int, ...]:
        return self.k, self.c // self.g, self.kh, self.kw

    @property
    def y_shape(self) -> tuple[int, ...]:
        return self.n, self.k, self.oh, self.ow

    @property
    def integers(self) -> dict[str, int]:
        names = (*"nchkg", "wd", "kh", "kw", "oh", "ow", "sh", "sw", "ph", "pw", "dh", "dw")
        return {name: getattr(self, name) for name in names}


def _windows(p: Conv, padded: np.ndarray):
    """Yield (r, s, view [n, c, oh, ow]) for each kernel tap."""
    for r in range(p.kh):
        for s in range(p.kw):
            rows = slice(r * p.dh, r * p.dh + (p.oh - 1) * p.sh + 1, p.sh)
            columns = slice(s * p.dw, s * p.dw + (p.ow - 1) * p.sw + 1, p.sw)
            yield r, s, padded[:, :, rows, columns]


def _padded(p: Conv) -> np.ndarray:
    bottom = max(p.ph + p.extra_h, 0)
    right = max(p.pw + p.extra_w, 0)
    return np.zeros((p.n, p.c, p.ph + p.h + bottom, p.pw + p.wd + right))


def _inside(p: Conv, padded: np.ndarray) -> np.ndarray:
    return padded[:, :, p.ph : p.ph + p.h, p.pw : p.pw + p.wd]


def forward(p: Conv, a: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return y [n, k, oh, ow] for the input after its prologue."""
    padded = _padded(p)
    _inside(p, padded)[...] = a
    y = np.zeros((p.n, p.g, p.k // p.g, p.oh, p.ow))
    weight = w.astype(np.float64).reshape(p.g, p.k // p.g, p.c // p.g, p.kh, p.kw)
    for r, s, view in _windows(p, padded):
        grouped = view.reshape(p.n, p.g, p.c // p.g, p.oh, p.ow)
        y += np.einsum("ngcyx,gkc->ngkyx", grouped, weight[..., r, s])
    y = y.reshape(p.y_shape)
    return y if bias is None else y + bias[:, None, None]


def input_gradient(p: Conv, dy: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return dx [n, c, h, wd]."""
    padded = _padded(p)
    grouped = dy.astype(np.float64).reshape(p.n, p.g, p.k // p.g, p.oh, p.ow)
    weight = w.astype(np.float64).reshape(p.g, p.k // p.g, p.c // p.g, p.kh, p.kw)
    for r, s, view in _windows(p, padded):
        part = np.einsum("ngkyx,gkc->ngcyx", grouped, weight[..., r, s])
        view += part.reshape(view.shape)
    return _inside(p, padded)


def weight_gradient(p: Conv, a: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return dw [k, c/g, kh, kw] for the input after its prologue."""
    padded = _padded(p)
    _inside(p, padded)[...] = a
    grouped = dy.astype(np.float64).reshape(p.n, p.g, p.k // p.g, p.oh, p.ow)
    dw = np.zeros((p.g, p.k // p.g, p.c // p.g, p.kh, p.kw))
    for r, s, view in _windows(p, padded):
        part = view.reshape(p.n, p.g, p.c // p.g, p.oh, p.ow)
        dw[..., r, s] = np.einsum("ngcyx,ngkyx->gkc", part, grouped)
    return dw.reshape(p.w_shape)
