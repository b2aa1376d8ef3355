"""Naive recurrences, one row and step at a time, in complex128 for complex-step derivatives."""

import numpy as np

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
TINY = 1e-40  # so small that the complex step adds no error


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _step(cell, x, h, c, r, bias, peep, after, relu):
    """Advance one row; x [slots * n] is the input's contribution. Return the new h and c."""
    n, gates = len(h), GATES[cell]
    of_x = x[: gates * n] + bias[: gates * n]
    of_h = r @ h + bias[gates * n :]
    if cell == "rnn":
        total = of_x + of_h
        return (np.where(total.real < 0, 0, total) if relu else np.tanh(total)), c
    if cell == "lstm":
        i, o, f, g = np.split(of_x + of_h, 4)
        pi, po, pf = np.split(peep, 3)
        new = _sigmoid(f + pf * c) * c + _sigmoid(i + pi * c) * np.tanh(g)
        return _sigmoid(o + po * new) * np.tanh(new), new
    xz, xr, xn = np.split(of_x, 3)
    hz, hr, hn = np.split(of_h, 3)
    z, reset = _sigmoid(xz + hz), _sigmoid(xr + hr)
    q = reset * hn if after else r[2 * n :] @ (reset * h) + bias[5 * n :]
    return (1 - z) * np.tanh(xn + q) + z * h, c


def forward(cell, gates, r, bias, peep, h0, c0, lens, back, after=0, relu=0):
    """Return y [t, d, b, n] and the last h and c [d, b, n] from gates [d, t, b, slots * n]."""
    d, t, b, _ = gates.shape
    n = r.shape[-1]
    y = np.zeros((t, d, b, n), np.complex128)
    h, c = h0.astype(np.complex128), c0.astype(np.complex128)
    for side in range(d):
        for row in range(b):
            times = range(int(lens[row]))
            for now in times[::-1] if back == 1 or side == 1 else times:
                h[side, row], c[side, row] = _step(
                    cell, gates[side, now, row], h[side, row], c[side, row], r[side], bias[side],
                    peep[side], after, relu,
                )  # fmt: skip
                y[now, side, row] = h[side, row]
    return y, h, c


def loss(operands: dict, slopes, **options) -> np.ndarray:
    """Return the dot product of y, last h and last c with `slopes`."""
    made = forward(**operands, **options)
    return sum(np.sum(part * slope) for part, slope in zip(made, slopes, strict=True))


def gradient(name: str, operands: dict, slopes, **options) -> np.ndarray:
    """Return the derivative of `loss` with respect to every element of an operand."""
    array = operands[name]
    out = np.zeros(array.shape)
    for index in np.ndindex(array.shape):
        moved = array.astype(np.complex128)
        moved[index] += TINY * 1j
        out[index] = loss({**operands, name: moved}, slopes, **options).imag / TINY
    return out


def slope(name: str, direction: np.ndarray, operands: dict, slopes, **options) -> float:
    """Return the derivative of `loss` along a direction of an operand."""
    moved = operands[name] + TINY * 1j * direction
    return loss({**operands, name: moved}, slopes, **options).imag / TINY
