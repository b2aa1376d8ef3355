"""Defines every forward ir op in torch: one entry of RULES each.

Based on the documentation of ONNX and torch, not on the kernels, and differentiated only by
autograd, so that kernels and gradient rules are compared with an independent implementation.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.ir import Node, Value
from edgetrain.kernels.elementwise.formulas import ROWS
from edgetrain.kernels.elementwise.intrinsics import bound
from edgetrain.kernels.elementwise.pair_formulas import PAIRS

# (node, its inputs (None if absent), its declared outputs) -> output tensors
Rule = Callable[[Node, Sequence, Sequence[Value]], Tensor | tuple[Tensor, ...]]

RULES: dict[str, Rule] = {}

# Ops that update inputs in place instead of creating outputs: input indices, in the order of the
# rule's results.
MOVES: dict[str, tuple[int, ...]] = {"bn_running": (1, 2)}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: add a function to RULES for these ops."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


def is_integer(tensor: Tensor) -> bool:
    """Whether it holds indices or counts."""
    return not tensor.is_floating_point()


# Convolution and pooling. Geometry is planar: a 1-D tensor gets a height of one.


def _planar(x: Tensor) -> Tensor:
    return x.unsqueeze(2) if x.dim() == 3 else x


def _covered(node: Node, out: Value, kernel: Sequence[int]) -> list[int]:
    """Rows and columns from the start of the first window to the end of the last."""
    sizes = out.shape[2:] if len(out.shape) == 4 else (1, out.shape[2])
    return [
        (size - 1) * node.attrs[f"s{axis}"] + node.attrs.get(f"d{axis}", 1) * (taps - 1) + 1
        for axis, size, taps in zip("hw", sizes, kernel, strict=True)
    ]


def _fit(x: Tensor, before: Sequence[int], covered: Sequence[int], fill: float) -> Tensor:
    """`x` with `before` padding, then padded or cropped to `covered` rows and columns."""
    top, left = before
    bottom, right = (c - n - b for c, n, b in zip(covered, x.shape[2:], before, strict=True))
    return F.pad(x, [left, right, top, bottom], value=fill)


def _windows(node: Node, x: Tensor, out: Value, kernel: Sequence[int], fill: float) -> Tensor:
    return _fit(x, (node.attrs["ph"], node.attrs["pw"]), _covered(node, out, kernel), fill)


def _strides(node: Node) -> tuple[int, int]:
    return node.attrs["sh"], node.attrs["sw"]


@rule("conv")
def _conv(node, inputs, outs):
    x, w, bias = inputs[:3]
    x, w = _planar(x), _planar(w)
    x = _windows(node, x, outs[0], w.shape[2:], 0.0)
    dilation = node.attrs["dh"], node.attrs["dw"]
    y = F.conv2d(x, w, bias, _strides(node), 0, dilation, node.attrs["g"])
    return y.reshape(outs[0].shape)


@rule("conv_transpose")
def _conv_transpose(node, inputs, outs):
    x, w, bias = inputs
    dilation, before = (node.attrs["dh"], node.attrs["dw"]), (node.attrs["ph"], node.attrs["pw"])
    y = F.conv_transpose2d(
        _planar(x), _planar(w), None, _strides(node), 0, 0, node.attrs["g"], dilation
    )
    sizes = outs[0].shape[2:] if len(outs[0].shape) == 4 else (1, outs[0].shape[2])
    y = _fit(y, [-b for b in before], sizes, 0.0).reshape(outs[0].shape)
    return y if bias is None else y + _per_channel(bias, y)


@rule("maxpool")
def _maxpool(node, inputs, outs):
    kernel = node.attrs["kh"], node.attrs["kw"]
    x = _windows(node, _planar(inputs[0]), outs[0], kernel, float("-inf"))
    dilation = node.attrs["dh"], node.attrs["dw"]
    y, index = F.max_pool2d(x, kernel, _strides(node), 0, dilation, return_indices=True)
    return y.reshape(outs[0].shape), index.reshape(outs[1].shape)


@rule("avgpool")
def _avgpool(node, inputs, outs):
    """Mean over the elements that count: those of the input, and with include_pad the padding."""
    attrs, x = node.attrs, _planar(inputs[0])
    kernel, before = (attrs["kh"], attrs["kw"]), (attrs["ph"], attrs["pw"])
    counted = x.new_ones(1, 1, *x.shape[2:])
    if attrs["include_pad"]:
        counted = F.pad(counted, [attrs["pw"], attrs["pr"], attrs["ph"], attrs["pb"]], value=1.0)
        before = (0, 0)
    counted = _fit(counted, before, _covered(node, outs[0], kernel), 0.0)
    sums = F.avg_pool2d(_windows(node, x, outs[0], kernel, 0.0), kernel, _strides(node))
    return (sums / F.avg_pool2d(counted, kernel, _strides(node))).reshape(outs[0].shape)


@rule("lppool")
def _lppool(node, inputs, outs):
    """torch's norm of each window; its gradient is 0 at norm 0."""
    attrs, kernel = node.attrs, (node.attrs["kh"], node.attrs["kw"])
    x = _windows(node, _planar(inputs[0]), outs[0], kernel, 0.0)
    taps = F.unfold(x.flatten(0, 1)[:, None], kernel, (attrs["dh"], attrs["dw"]), 0, _strides(node))
    return torch.linalg.vector_norm(taps, attrs["p"], dim=1).reshape(outs[0].shape)


@rule("matmul")
def _matmul(node, inputs, outs):
    a, b = inputs[:2]
    a = a.transpose(-2, -1) if node.attrs.get("ta") else a
    b = b.transpose(-2, -1) if node.attrs.get("tb") else b
    y = node.attrs.get("alpha", 1.0) * (a @ b)
    return y if len(inputs) < 3 or inputs[2] is None else y + inputs[2]


# Normalisation.


def _per_channel(vector: Tensor, x: Tensor) -> Tensor:
    return vector.reshape(1, -1, *[1] * (x.dim() - 2))


@rule("bn_stats")
def _bn_stats(node, inputs, outs):
    (x,) = inputs
    rows = x.transpose(0, 1).reshape(x.shape[1], -1)
    variance = rows.var(1, correction=0)
    return torch.stack([rows.mean(1), (variance + node.attrs["eps"]).rsqrt(), variance])


@rule("bn_eval_stats")
def _bn_eval_stats(node, inputs, outs):
    mean, variance = inputs
    return torch.stack([mean, (variance + node.attrs["eps"]).rsqrt(), variance])


@rule("bn_running")
def _bn_running(node, inputs, outs):
    """Like torch, uses the unbiased variance for the running one."""
    stat, mean, variance = inputs
    momentum, count = node.attrs["momentum"], node.attrs["count"]
    unbiased = stat[2] * (count / max(1, count - 1))
    return (1 - momentum) * mean + momentum * stat[0], (
        1 - momentum
    ) * variance + momentum * unbiased


@rule("bn_apply")
def _bn_apply(node, inputs, outs):
    x, stat, gamma, beta = inputs
    y = (x - _per_channel(stat[0], x)) * _per_channel(stat[1], x)
    y = y if gamma is None else y * _per_channel(gamma, x)
    return y if beta is None else y + _per_channel(beta, x)


@rule("layer_norm")
def _layer_norm(node, inputs, outs):
    x, gamma, beta = inputs
    rows = x.reshape(-1, node.attrs["n"])
    mean, variance = rows.mean(1), rows.var(1, correction=0)
    scale = (variance + node.attrs["eps"]).rsqrt()
    y = (rows - mean[:, None]) * scale[:, None]
    y = y if gamma is None else y * gamma.reshape(-1)
    y = y if beta is None else y + beta.reshape(-1)
    return y.reshape(x.shape), torch.stack([mean, scale])


@rule("softmax")
def _softmax(node, inputs, outs):
    return inputs[0].softmax(node.attrs["axis"])


@rule("log_softmax")
def _log_softmax(node, inputs, outs):
    return inputs[0].log_softmax(node.attrs["axis"])


@rule("lrn")
def _lrn(node, inputs, outs):
    """ONNX's window: with an even size, the longer half is after the channel."""
    (x,), attrs = inputs, node.attrs
    size = attrs["size"]
    squares = F.pad((x * x).reshape(*x.shape[:2], -1), [0, 0, (size - 1) // 2, size // 2])
    sums = squares.unfold(1, size, 1).sum(-1).reshape(x.shape)
    return x / (attrs["bias"] + attrs["alpha"] / size * sums) ** attrs["beta"]


def _root(x: Tensor) -> Tensor:
    """Square root with gradient 0 at 0, like torch's own standard deviation and norm."""
    return torch.where(x == 0, torch.zeros_like(x), torch.where(x == 0, 1.0, x).sqrt())


# Elementwise. a and b are the node's attributes. Torch's own functions if it has them;
# else the formula of the op's row with torch's intrinsics, differentiated by autograd.


UNARY: Mapping[str, Callable[[Tensor, float, float], Tensor]] = {
    "relu": lambda x, a, b: F.relu(x),
    "leaky_relu": lambda x, a, b: F.leaky_relu(x, a),
    "hardswish": lambda x, a, b: F.hardswish(x),
    "hardsigmoid": lambda x, a, b: (a * x + b).clamp(0.0, 1.0),
    "sigmoid": lambda x, a, b: x.sigmoid(),
    "tanh": lambda x, a, b: x.tanh(),
    "exp": lambda x, a, b: x.exp(),
    "log": lambda x, a, b: x.log(),
    "sqrt": lambda x, a, b: _root(x),
    "neg": lambda x, a, b: -x,
    "abs": lambda x, a, b: x.abs(),
    "reciprocal": lambda x, a, b: x.reciprocal(),
    "erf": lambda x, a, b: x.erf(),
    "elu": lambda x, a, b: F.elu(x, a),
    "selu": lambda x, a, b: F.selu(x),
    "softplus": lambda x, a, b: torch.logaddexp(x, torch.zeros_like(x)),
    "softsign": lambda x, a, b: F.softsign(x),
    "mish": lambda x, a, b: F.mish(x),
    "silu": lambda x, a, b: F.silu(x),
    "sin": lambda x, a, b: x.sin(),
    "cos": lambda x, a, b: x.cos(),
    "tan": lambda x, a, b: x.tan(),
    "asin": lambda x, a, b: x.asin(),
    "acos": lambda x, a, b: x.acos(),
    "atan": lambda x, a, b: x.atan(),
    "sinh": lambda x, a, b: x.sinh(),
    "cosh": lambda x, a, b: x.cosh(),
    "asinh": lambda x, a, b: x.asinh(),
    "acosh": lambda x, a, b: x.acosh(),
    "atanh": lambda x, a, b: x.atanh(),
    "floor": lambda x, a, b: x.floor(),
    "ceil": lambda x, a, b: x.ceil(),
    "round": lambda x, a, b: x.round(),
    "sign": lambda x, a, b: x.sign(),
    "clip": lambda x, a, b: F.hardtanh(x, a, b),
    "clamp": lambda x, a, b: x.clamp(a, b),
    "gelu": lambda x, a, b: F.gelu(x),
    "gelu_tanh": lambda x, a, b: F.gelu(x, approximate="tanh"),
    "fake_quantize": lambda x, a, b: _fake_quantize(x, a, b),
    "round_through": lambda x, a, b: x + (x.round() - x).detach(),
}


def _fake_quantize(x: Tensor, scale: float, zero: float) -> Tensor:
    """Fake quantisation. Torch's own always divides in float32, which resolves ties differently."""
    steps = (x / scale).round().detach() + zero
    inside = x * ((steps >= 0) & (steps <= 255))
    return inside + ((steps.clamp(0, 255) - zero) * scale - inside).detach()


def _where(condition: Tensor, yes: Tensor | float, no: Tensor | float) -> Tensor:
    """torch.where for tensors or numbers; two numbers take the condition's device."""
    whole = torch.get_default_dtype()
    parts = [x if isinstance(x, Tensor) else torch.tensor(x, dtype=whole) for x in (yes, no)]
    return torch.where(condition, parts[0], parts[1])


def _sign(x: Tensor) -> Tensor:
    return torch.copysign(torch.ones_like(x), x.detach())


def _size(x: Tensor | float) -> Tensor | float:
    """abs with the sign's slope at 0: torch's has slope 0 there, as would odd functions made of
    it."""
    return x * _sign(x) if isinstance(x, Tensor) else abs(x)


INTRINSICS: Mapping[str, Callable] = {
    "atan": torch.atan,
    "ceil": torch.ceil,
    "copysign": lambda size, sign: _size(size) * _sign(sign),
    "cosine": torch.cos,
    "erf": torch.erf,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "fabs": _size,
    "floor": torch.floor,
    "fma": lambda a, b, c: a * b + c,
    "log": torch.log,
    "log1p": torch.log1p,
    "rint": torch.round,
    "sigmoid": torch.sigmoid,
    "sine": torch.sin,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
    "where": _where,
}


def _with_builtins(function: Callable) -> Callable:
    """Add the builtins that some torch operators look up in their caller."""
    function.__globals__["__builtins__"] = __builtins__  # type: ignore[attr-defined]
    return function


def _unary(node, inputs, outs):
    row, x = ROWS[node.op], inputs[0]
    own: Callable = UNARY.get(node.op) or bound(row.value, INTRINSICS, made=_with_builtins)
    slope = node.attrs.get("a", 0.0), node.attrs.get("b", 0.0)
    if row.vjp is not None:
        return own(x, *slope)
    return torch.where(torch.zeros_like(x, dtype=torch.bool), x, own(x.detach(), *slope))


RULES.update(dict.fromkeys(ROWS, _unary))


def _div(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc" if is_integer(a) and is_integer(b) else None)


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": _div,
    "pow": torch.pow,
    "min": torch.minimum,
    "max": torch.maximum,
}
for _name, _pair in PAIRS.items():
    BINARY.setdefault(_name, bound(_pair.value, INTRINSICS, made=_with_builtins))
for _name, _function in BINARY.items():
    RULES[_name] = lambda node, inputs, outs: BINARY[node.op](*inputs)


@rule("dropout")
def _dropout(node, inputs, outs):
    """Off, because the two random streams can't be compared."""
    return inputs[0]


# Movement.


@rule("view")
def _view(node, inputs, outs):
    return inputs[0].reshape(outs[0].shape)


@rule("expand")
def _expand(node, inputs, outs):
    return inputs[0].expand(outs[0].shape)


@rule("copy")
def _copy(node, inputs, outs):
    """y[yo + i.ys] = x[xo + i.xs] for every index i below dims, for each move."""
    whole = outs[0].dtype != "f32"
    size = outs[0].size
    first = inputs[0]
    kind = torch.int64 if whole else _float_of(inputs)
    y = torch.full((size,), node.attrs.get("fill") or 0, dtype=kind, device=first.device)
    for source, xo, yo, dims, xs, ys in node.attrs["moves"]:
        picked = inputs[source].reshape(-1)[_walk(xo, dims, xs, first.device)].to(kind)
        y = y.index_put((_walk(yo, dims, ys, first.device),), picked)
    return y.reshape(outs[0].shape)


def _float_of(inputs: Sequence[Tensor]) -> torch.dtype:
    return next((x.dtype for x in inputs if not is_integer(x)), torch.get_default_dtype())


def _walk(offset: int, dims: Sequence[int], strides: Sequence[int], device) -> Tensor:
    """Flat indices of a strided traversal, in its order."""
    index = torch.tensor([offset], device=device)
    for size, stride in zip(dims, strides, strict=True):
        steps = torch.arange(size, device=device) * stride
        index = (index[:, None] + steps).reshape(-1)
    return index


@rule("pad_mode")
def _pad_mode(node, inputs, outs):
    """Like numpy's reflect, edge and wrap, axis by axis."""
    (x,) = inputs
    mode = ("reflect", "edge", "wrap")[node.attrs["mode"]]
    for axis, (before, count) in enumerate(zip(node.attrs["before"], outs[0].shape, strict=True)):
        size = x.shape[axis]
        pads = before, count - size - before
        padded = [max(0, p) for p in pads]
        places = np.pad(np.arange(size), padded, mode)  # type: ignore[call-overload]
        kept = places[max(0, -before) :][:count]
        x = x.index_select(axis, torch.tensor(kept, device=x.device))
    return x


@rule("resample")
def _resample(node, inputs, outs):
    """Rows and columns are weighted sums; the importer provides the tables of weights."""
    x, rows, cols = inputs[:3]
    attrs = node.attrs
    y = x.reshape(attrs["outer"], attrs["h"], attrs["wd"])
    if rows is not None:
        y = _weights(rows, attrs["oh"], attrs["h"], y) @ y
    if cols is not None:
        y = y @ _weights(cols, attrs["ow"], attrs["wd"], y).T
    return y.reshape(outs[0].shape)


def _weights(table: Tensor, count: int, size: int, like: Tensor) -> Tensor:
    """A table (count + 1 starts, indices, bits of float32 weights) as a matrix [count, size]."""
    bits = table.to(torch.int32)
    starts, rest = bits[: count + 1].long(), bits[count + 1 :]
    indices, weights = rest.chunk(2)
    owner = torch.repeat_interleave(torch.arange(count, device=table.device), starts.diff())
    matrix = torch.zeros(count, size, dtype=like.dtype, device=table.device)
    values = weights.contiguous().view(torch.float32).to(like.dtype)
    return matrix.index_put((owner, indices.long()), values, accumulate=True)


@rule("gather")
def _gather(node, inputs, outs):
    x, index = inputs
    axis = node.attrs["axis"]
    flat = index.reshape(-1).long() % x.shape[axis]
    return x.index_select(axis, flat).reshape(outs[0].shape)


# Reductions.

_REDUCE: Mapping[str, Callable[..., Tensor]] = {
    "reduce_sum": torch.sum,
    "reduce_mean": torch.mean,
    "reduce_max": torch.amax,
    "reduce_min": torch.amin,
}


@rule(*_REDUCE)
def _reduce(node, inputs, outs):
    axes = tuple(node.attrs["axes"])
    y = _REDUCE[node.op](inputs[0], dim=axes) if axes else inputs[0]
    return y.reshape(outs[0].shape)
