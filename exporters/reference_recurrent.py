"""Recurrences, step by step, and newer normalisations in torch: further entries of RULES."""

import torch
from torch import Tensor

from edgetrain.exporters.reference_ops import rule

# Group and RMS normalisation; their statistics, which only backward kernels read, stay zero.


@rule("group_norm")
def _group_norm(node, inputs, outs):
    x, gamma, beta = inputs
    groups = x.reshape(x.shape[0], node.attrs["groups"], -1)
    centred = groups - groups.mean(2, keepdim=True)
    scale = (groups.var(2, correction=0, keepdim=True) + node.attrs["eps"]).rsqrt()
    y = (centred * scale).reshape(x.shape)
    along = (1, -1, *[1] * (x.dim() - 2))
    y = y if gamma is None else y * gamma.reshape(along)
    y = y if beta is None else y + beta.reshape(along)
    return y, x.new_zeros(outs[1].shape)


@rule("rms_norm")
def _rms_norm(node, inputs, outs):
    x, gamma = inputs[:2]
    rows = x.reshape(-1, node.attrs["n"])
    y = rows * ((rows * rows).mean(1, keepdim=True) + node.attrs["eps"]).rsqrt()
    y = y if gamma is None else y * gamma.reshape(-1)
    return y.reshape(x.shape), x.new_zeros(outs[1].shape)


# Recurrences: x [t, b, i], w [d, gates * n, i], r [d, gates * n, n], bias [d, 2 * gates * n].

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@rule(*_GATES)
def _recurrent(node, inputs, outs):
    """ONNX's formulas; values that only kernels keep (gates, cells) are left at zero."""
    x, w, r, bias, lens, h0, c0, peep = inputs
    attrs = node.attrs
    d, b, n = attrs["d"], attrs["b"], attrs["n"]
    zeros = x.new_zeros(d, b, n)
    bias = x.new_zeros(d, 2 * _GATES[node.op] * n) if bias is None else bias
    peep = x.new_zeros(d, 3 * n) if peep is None else peep
    h0, c0 = (zeros if state is None else state for state in (h0, c0))
    steps, last, cells = [], [], []
    for k in range(d):
        backwards = attrs["back"] == 1 or k == 1
        weights = w[k], r[k], bias[k], peep[k]
        y, h, c = _direction(node, x, weights, h0[k], c0[k], lens, backwards)
        steps.append(y)
        last.append(h)
        cells.append(c)
    made = {"y": torch.stack(steps, 1), "yh": torch.stack(last), "yc": torch.stack(cells)}
    return tuple(
        made[key] if key in made else x.new_zeros(out.shape)
        for key, out in zip(attrs["made"], outs, strict=True)
    )


def _direction(node, x, weights, h, c, lens, backwards) -> tuple[Tensor, Tensor, Tensor]:
    """(states [t, b, n], last state, last cell); zeros after the end of a sequence."""
    cell = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}[node.op]
    count = x.shape[0]
    ys: list[Tensor] = [h] * count
    for t in reversed(range(count)) if backwards else range(count):
        new_h, new_c = cell(node, x[t], weights, h, c)
        if lens is None:
            ys[t], h, c = new_h, new_h, new_c
            continue
        alive = (lens > t)[:, None]
        ys[t] = torch.where(alive, new_h, torch.zeros_like(new_h))
        h, c = torch.where(alive, new_h, h), torch.where(alive, new_c, c)
    return torch.stack(ys), h, c


def _lstm(node, x, weights, h, c):
    """Gates in the order input, output, forget, cell; peepholes input, output, forget."""
    w, r, bias, peep = weights
    pi, po, pf = peep.chunk(3)
    wb, rb = bias.chunk(2)
    i, o, f, g = (x @ w.T + h @ r.T + wb + rb).chunk(4, 1)
    c_new = (f + pf * c).sigmoid() * c + (i + pi * c).sigmoid() * g.tanh()
    return (o + po * c_new).sigmoid() * c_new.tanh(), c_new


def _gru(node, x, weights, h, c):
    """Gates in the order update, reset, hidden."""
    w, r, bias, _ = weights
    wb, rb = bias.chunk(2)
    xz, xr, xh = (x @ w.T + wb).chunk(3, 1)
    rz, rr, rh = r.chunk(3)
    bz, br, bh = rb.chunk(3)
    update = (xz + h @ rz.T + bz).sigmoid()
    reset = (xr + h @ rr.T + br).sigmoid()
    if node.attrs["after"]:
        hidden = (xh + reset * (h @ rh.T + bh)).tanh()
    else:
        hidden = (xh + (reset * h) @ rh.T + bh).tanh()
    return (1 - update) * hidden + update * h, c


def _rnn(node, x, weights, h, c):
    w, r, bias, _ = weights
    wb, rb = bias.chunk(2)
    total = x @ w.T + h @ r.T + wb + rb
    return (total.relu() if node.attrs["relu"] else total.tanh()), c
