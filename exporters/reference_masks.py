"""Masks, selections, products and running sums in torch: further entries of RULES."""

import torch

from edgetrain.exporters.reference_ops import MOVES, RULES, rule

__all__ = ["MOVES", "RULES"]

_COMPARE = {
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "equal": torch.eq,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
}


@rule(*_COMPARE)
def _compare(node, inputs, outs):
    return _COMPARE[node.op](*inputs).long()


@rule("truth")
def _truth(node, inputs, outs):
    return ((inputs[0] != 0) == bool(node.attrs["want"])).long()


@rule("where")
def _where(node, inputs, outs):
    mask, a, b = inputs
    return torch.where(mask != 0, a, b)


@rule("detach")
def _detach(node, inputs, outs):
    return inputs[0].detach()


@rule("mod")
def _mod(node, inputs, outs):
    return torch.remainder(*inputs)


@rule("fmod")
def _fmod(node, inputs, outs):
    return torch.fmod(*inputs)


@rule("reduce_prod")
def _reduce_prod(node, inputs, outs):
    y = inputs[0]
    for axis in node.attrs["axes"]:
        y = y.prod(axis, keepdim=True)
    return y.reshape(outs[0].shape)


@rule("reduce_norm", "reduce_l1")
def _reduce_norm(node, inputs, outs):
    x, axes = inputs[0], tuple(node.attrs["axes"])
    y = torch.linalg.vector_norm(x, node.attrs.get("p", 1.0), dim=axes) if axes else x.abs()
    return y.reshape(outs[0].shape)


@rule("reduce_sumsq", "reduce_logsum", "reduce_logsumexp")
def _reduce_function(node, inputs, outs):
    x, axes = inputs[0], tuple(node.attrs["axes"])
    if node.op == "reduce_logsumexp":
        return (torch.logsumexp(x, axes) if axes else x).reshape(outs[0].shape)
    x = x.square() if node.op == "reduce_sumsq" else x
    y = x.sum(axes) if axes else x
    return (y.log() if node.op == "reduce_logsum" else y).reshape(outs[0].shape)


@rule("cumsum")
def _cumsum(node, inputs, outs):
    """Exclusive: the sum without the element itself."""
    x, axis = inputs[0], node.attrs["axis"]
    turned = x.flip(axis) if node.attrs["reverse"] else x
    y = turned.cumsum(axis) - (turned if node.attrs["exclusive"] else 0)
    return y.flip(axis) if node.attrs["reverse"] else y


@rule("scatter")
def _scatter(node, inputs, outs):
    """Add rows to zeros along axis 1; rows with an index out of range are left out."""
    u, index = inputs
    _, rows, _ = outs[0].shape
    index = index.reshape(-1).long()
    inside = (index >= -rows) & (index < rows)
    y = torch.zeros(outs[0].shape, dtype=u.dtype, device=u.device)
    return y.index_add(1, index[inside] % rows, u[:, inside])


@rule("topk")
def _topk(node, inputs, outs):
    """Of equal elements, the first comes first, or the last."""
    x, axis = inputs[0].double(), node.attrs["axis"]
    turned = x if node.attrs["first"] else x.flip(axis)
    index = torch.sort(turned, dim=axis, descending=not node.attrs["reverse"], stable=True)[1]
    index = index if node.attrs["first"] else x.shape[axis] - 1 - index
    return index.narrow(axis, 0, outs[0].shape[axis])


@rule("pick")
def _pick(node, inputs, outs):
    x, index = inputs
    return x.gather(node.attrs["axis"], index.long())
