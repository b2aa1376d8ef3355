"""A row for each op: how a random graph gets a node of it, with rare attributes and operands.

Every ONNX op that `edgetrain ops` lists has one, or tests/fuzz/test_graphs.py fails.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .graph_builder import BATCH, CLASSES, Growing, Unfit, Value


@dataclass(frozen=True)
class Row:
    """`add` puts a node into a graph; the op is one of these opsets."""

    op: str
    add: Callable[[Growing], object]
    since: int = 7
    until: int = 99


ROWS: dict[str, Row] = {}


def row(*ops: str, since: int = 7, until: int = 99):
    """Register a function of (graph, op)."""

    def known(add: Callable[[Growing, str], object]):
        for op in ops:
            ROWS[op] = Row(op, lambda g, op=op: add(g, op), since, until)
        return add

    return known


# Functions of one number: op -> (where it is smooth, attributes, first opset).
_UNARY: dict[str, tuple[str, tuple[str, ...], int]] = {
    "Abs": ("any", (), 7), "Acos": ("unit", (), 7), "Acosh": ("above 1", (), 9),
    "Asin": ("unit", (), 7), "Asinh": ("any", (), 9), "Atan": ("any", (), 7),
    "Atanh": ("unit", (), 9), "Ceil": ("any", (), 7), "Celu": ("any", ("alpha",), 12),
    "Cos": ("any", (), 7), "Cosh": ("bounded", (), 9), "Elu": ("any", ("alpha",), 7),
    "Erf": ("any", (), 9), "Exp": ("bounded", (), 7), "Floor": ("any", (), 7),
    "HardSigmoid": ("any", ("alpha", "beta"), 7), "HardSwish": ("any", (), 14),
    "Identity": ("any", (), 7), "LeakyRelu": ("any", ("alpha",), 7), "Log": ("positive", (), 7),
    "Mish": ("any", (), 18), "Neg": ("any", (), 7), "Reciprocal": ("positive", (), 7),
    "Relu": ("any", (), 7), "Round": ("any", (), 11), "Selu": ("any", ("alpha", "gamma"), 7),
    "Shrink": ("any", ("lambd", "bias"), 9), "Sigmoid": ("any", (), 7),
    "Sign": ("any", (), 9), "Sin": ("any", (), 7),
    "Sinh": ("bounded", (), 9), "Softplus": ("any", (), 7), "Softsign": ("any", (), 7),
    "Sqrt": ("positive", (), 7), "Swish": ("any", ("alpha",), 24), "Tan": ("unit", (), 7),
    "Tanh": ("any", (), 7), "ThresholdedRelu": ("any", ("alpha",), 10),
}  # fmt: skip


def _unary(g: Growing, op: str) -> None:
    domain, names, _ = _UNARY[op]
    attrs = {n: float(g.draw.uniform(0.2, 1.5)) for n in names if g.chance(0.7)}
    g.node(op, [g.within(g.pick(), domain).name], **attrs)


for _op, (_, _, _since) in _UNARY.items():
    ROWS[_op] = Row(_op, lambda g, op=_op: _unary(g, op), _since)


@row("Gelu", since=20)
def _gelu(g: Growing, op: str) -> None:
    g.node(op, [g.pick().name], approximate=g.one(["none", "tanh"]))


@row("Clip", since=11)
def _clip(g: Growing, op: str) -> None:
    low, high = (g.constant(v, np.float32) if g.chance(0.7) else "" for v in (-0.4, 0.5))
    g.node(op, [g.pick().name, low, high] if high else [g.pick().name, *([low] if low else [])])


def _partner(g: Growing, x: Value, low: float | None = None) -> str:
    """Another operand: of the pool, or a weight that is broadcast one way or the other."""
    like = [v for v in g.pool if v.kind == "f" and v.shape == x.shape]
    if low is None and like and g.chance(0.4):
        return g.one(like).name
    shape = [1, *(size if g.chance(0.6) else 1 for size in x.shape[1:])]
    while shape and shape[0] == 1 and g.chance(0.5):
        shape = shape[1:]
    if g.chance(0.1) and len(x.shape) > 2:  # the weight has the wider axes
        at = int(g.draw.integers(1, len(x.shape)))
        if x.shape[at] == 1 and len(shape) >= len(x.shape) - at:
            shape[at - len(x.shape)] = g.size(3)
    return g.parameter(shape, low)


@row("Add", "Sub", "Mul")
def _arithmetic(g: Growing, op: str) -> None:
    x = g.pick()
    operands = [x.name, _partner(g, x)]
    g.node(op, operands[::-1] if g.chance(0.5) else operands)


@row("Div")
def _divide(g: Growing, op: str) -> None:
    x = g.pick()
    if g.chance(0.3):
        g.node(op, [_partner(g, x), g.within(x, "positive").name])
    else:
        g.node(op, [x.name, _partner(g, x, 0.4)])


@row("Pow")
def _power(g: Growing, op: str) -> None:
    x = g.within(g.pick(), "positive")
    number = g.one([2.0, 3.0, 0.5, -1.0, 1.0, 0.0, 1.7])
    power = g.constant(number, np.float32) if g.chance(0.6) else g.parameter(x.shape[-1:])
    g.node(op, [x.name, power])


@row("Min", "Max", "Mean", "Sum", since=8)
def _several(g: Growing, op: str) -> None:
    x = g.pick()
    g.node(op, [x.name, *(_partner(g, x) for _ in range(int(g.draw.integers(0, 3))))])


@row("Mod", since=10)
def _mod(g: Growing, op: str) -> None:
    g.node(op, [g.pick().name, g.constant(1.7, np.float32)], fmod=1)


@row("PRelu", since=9)
def _prelu(g: Growing, op: str) -> None:
    x = g.pick()
    shape = g.one([(), (1,), x.shape[1:], (x.shape[1], *[1] * (len(x.shape) - 2))])
    g.node(op, [x.name, g.parameter(shape)])


# Truth values.


@row("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", since=12)
def _compare(g: Growing, op: str) -> None:
    x = g.pick()
    g.node(op, [x.name, _partner(g, x)])


@row("And", "Or", "Xor")
def _logic(g: Growing, op: str) -> None:
    x = g.pick("b")
    g.node(op, [x.name, g.one([v for v in g.pool if v.kind == "b" and v.shape == x.shape]).name])


@row("Not")
def _not(g: Growing, op: str) -> None:
    g.node(op, [g.pick("b").name])


@row("IsInf", "IsNaN", since=13)
def _not_finite(g: Growing, op: str) -> None:
    g.node(op, [g.pick().name])


@row("Where", since=9)
def _where(g: Growing, op: str) -> None:
    mask = g.pick("b")
    like = [v for v in g.pool if v.kind == "f" and v.shape == mask.shape]
    x = g.one(like).name if like else g.parameter([1, *mask.shape[1:]])
    other = g.constant(-0.5, np.float32) if g.chance(0.3) else g.parameter(mask.shape[-1:])
    g.node(op, [mask.name, *([x, other] if g.chance(0.5) else [other, x])])


@row("Cast", since=9)
def _cast(g: Growing, op: str) -> None:
    if g.labels and g.chance(0.4):
        number = g.node(op, [g.labels.name], to=1)
        _with_axes(g, "Unsqueeze", number, [1])
    elif g.chance(0.7):
        g.node(op, [g.pick("b").name], to=1)
    else:
        half = g.node(op, [g.pick().name], to=1)
        g.node(op, [half.name], to=1)


@row("CastLike", since=15)
def _cast_like(g: Growing, op: str) -> None:
    g.node(op, [g.pick("b").name, g.constant(1.0, np.float32)])


@row("Trilu", since=14)
def _trilu(g: Growing, op: str) -> None:
    x = g.pick(ranks=(3, 4))
    offset = [g.constant(int(g.draw.integers(-2, 3)))] if g.chance(0.5) else []
    g.node(op, [x.name, *offset], upper=int(g.chance(0.5)))


# Movement.


@row("Reshape", since=14)
def _reshape(g: Growing, op: str) -> None:
    x = g.pick()
    whole, parts = math.prod(x.shape[1:]), []
    while whole > 1 and len(parts) < 3:
        part = g.one([d for d in range(1, whole + 1) if whole % d == 0])
        parts.append(part)
        whole //= part
    g.node(op, [x.name, g.constant([g.one([0, -1]), *parts, whole][:6])])


@row("Flatten")
def _flatten(g: Growing, op: str) -> None:
    g.node(op, [g.pick().name], axis=g.one([1]))


@row("Transpose")
def _transpose(g: Growing, op: str) -> None:
    x = g.pick()
    g.node(op, [x.name], perm=[0, *(1 + g.draw.permutation(len(x.shape) - 1)).tolist()])


@row("Squeeze", "Unsqueeze")
def _squeeze(g: Growing, op: str) -> None:
    x = g.pick(ranks=(2, 3, 4))
    if op == "Unsqueeze" or 1 not in x.shape[1:] or len(x.shape) < 3:
        axis = int(g.draw.integers(1, len(x.shape) + 1))
        x = _with_axes(g, "Unsqueeze", x, [axis])
    if op == "Squeeze":
        _with_axes(g, op, x, [x.shape.index(1, 1)])


def _with_axes(g: Growing, op: str, x: Value, axes: list[int], since: int = 13, **attrs) -> Value:
    """`axes` is an operand from this opset on."""
    if g.opset >= since:
        return g.node(op, [x.name, g.constant(axes)], **attrs)
    if op in ("Squeeze", "Unsqueeze") and g.opset < 11:
        axes = [a for a in axes if a >= 0] or [1]
    return g.node(op, [x.name], axes=axes, **attrs)


@row("Concat")
def _concat(g: Growing, op: str) -> None:
    x = g.pick()
    axis = g.axis(x)
    at = axis % len(x.shape)
    rest = [*x.shape[:at], *x.shape[at + 1 :]]
    fit = [v for v in g.pool if v.kind == "f" and len(v.shape) == len(x.shape)]
    fit = [v for v in fit if [*v.shape[:at], *v.shape[at + 1 :]] == rest]
    g.node(op, [g.one(fit).name for _ in range(int(g.draw.integers(1, 4)))], axis=axis)


@row("Split", since=13)
def _split(g: Growing, op: str) -> None:
    x = g.pick()
    axis = g.axis(x)
    size = x.shape[axis]
    cut = int(g.draw.integers(1, size + 1))
    if cut == size:
        raise Unfit
    g.several(op, [x.name, g.constant([cut, size - cut])], 2, axis=axis)


@row("Slice", since=10)
def _slice(g: Growing, op: str) -> None:
    x = g.pick()
    if g.chance(0.15):
        return _nothing(g, x)
    axes = g.axes(x)
    starts, ends, steps = [], [], []
    for axis in axes:
        size, step = x.shape[axis], g.one([1, 1, 2, -1, -2])
        first = int(g.draw.integers(0, size))
        starts.append(first if step > 0 else g.one([-1, size - 1, 99]))
        ends.append(g.one([size, 2**31, first + 1]) if step > 0 else g.one([-(2**31), -size - 1]))
        steps.append(step)
    g.node(op, [x.name, *(g.constant(v) for v in (starts, ends, axes, steps))])


def _nothing(g: Growing, x: Value) -> None:
    """A value without elements, and what still comes of it."""
    axis = g.axis(x)
    at = axis % len(x.shape)
    none = g.node("Slice", [x.name, *(g.constant([v]) for v in (1, 1, axis))])
    way = g.one(["join", "sum", "product", "work"])
    if way == "work":
        none = g.node(g.one(["Relu", "Tanh", "Neg"]), [none.name])
    if way in ("join", "work"):
        g.node("Concat", [x.name, none.name] if g.chance(0.5) else [none.name, x.name], axis=axis)
    elif way == "sum":
        total = _with_axes(g, "ReduceSum", none, [axis], keepdims=1)
        g.node("Add", [x.name, total.name])
    else:
        order = [0, *(k for k in range(1, len(x.shape)) if k != at), at]
        turned = none if at == len(x.shape) - 1 else g.node("Transpose", [none.name], perm=order)
        g.node("MatMul", [turned.name, g.parameter([0, g.size()])])


@row("Expand", since=8)
def _expand(g: Growing, op: str) -> None:
    x = g.pick(ranks=(2, 3, 4))
    shape = [size if size > 1 else g.one([1, 3]) for size in x.shape[1:]]
    g.node(op, [x.name, g.constant([1, *shape])])


@row("Tile")
def _tile(g: Growing, op: str) -> None:
    x = g.pick(ranks=(2, 3))
    g.node(op, [x.name, g.constant([1, *(g.one([1, 2, 3]) for _ in x.shape[1:])])])


@row("DepthToSpace", "SpaceToDepth", since=11)
def _blocks(g: Growing, op: str) -> None:
    deep = op == "DepthToSpace"
    x = g.shaped([4 * g.size(2), g.size(3), g.size(3)] if deep else [g.size(3), 4, 2])
    g.node(op, [x.name], blocksize=2, **({"mode": g.one(["DCR", "CRD"])} if deep else {}))


@row("CumSum", since=11)
def _cumsum(g: Growing, op: str) -> None:
    x = g.pick()
    attrs = {"exclusive": int(g.chance(0.5)), "reverse": int(g.chance(0.5))}
    g.node(op, [x.name, g.constant(g.axis(x))], **attrs)


@row("Pad", since=13)
def _pad(g: Growing, op: str) -> None:
    x = g.pick(ranks=(2, 3, 4))
    mode = g.one(["constant", "edge", "reflect", *(["wrap"] if g.opset >= 19 else [])])
    counts = [[0, *(int(g.draw.integers(-1, 3)) for _ in x.shape[1:])] for _ in range(2)]
    for k, size in enumerate(x.shape):
        for side in counts:
            side[k] = min(side[k], size - 1 if mode != "constant" else 2)
            side[k] = max(side[k], 0) if size < 4 or mode == "wrap" else side[k]
    value = [g.constant(0.7, np.float32)] if mode == "constant" and g.chance(0.5) else []
    g.node(op, [x.name, g.constant([*counts[0], *counts[1]]), *value], mode=mode)


def _off_zero(g: Growing, spectrum: Value) -> None:
    """Replace a spectrum in the pool by one without exact zeros and ties.

    The imaginary parts that are 0 for a real signal are +-1e-8 in a runtime with rounded sines, so
    comparisons with 0 depart. Its bins k and n - k are equal but for rounding, so places of maxima
    depart.
    """
    size = math.prod(spectrum.shape[1:])
    apart = (0.05 + 0.01 * np.arange(size)).reshape(spectrum.shape[1:])
    g.node("Add", [spectrum.name, g.constant(apart, np.float32)])
    g.pool = [value for value in g.pool if value.name != spectrum.name]


@row("DFT", since=17)
def _dft(g: Growing, op: str) -> None:
    parts, axis, attrs = g.one([1, 2]), g.one([1, 2]), {"inverse": int(g.chance(0.4))}
    x = g.shaped([g.one([1, 3, 4]), g.one([2, 5]), parts])
    if parts == 1 and not attrs["inverse"]:
        attrs["onesided"] = int(g.chance(0.5))
    length = g.constant(g.one([2, 3, 6])) if g.chance(0.4) else ""
    if g.opset < 20:
        spectrum = g.node(op, [x.name, *([length] if length else [])], axis=axis, **attrs)
    else:
        spectrum = g.node(op, [x.name, length, g.constant(axis)], **attrs)
    _off_zero(g, spectrum)


@row("STFT", since=17)
def _stft(g: Growing, op: str) -> None:
    parts, length = g.one([1, 2]), g.one([1, 4, 5])
    x = g.shaped([length + g.one([0, 1, 7]), parts])
    window = g.constant(g.draw.uniform(0.2, 1, length), np.float32) if g.chance(0.6) else ""
    size = [g.constant(length)] if not window or g.chance(0.3) else []
    half = int(parts == 1 and g.chance(0.6))
    _off_zero(g, g.node(op, [x.name, g.constant(g.one([1, 3])), window, *size], onesided=half))


@row("GridSample", since=16)
def _grid_sample(g: Growing, op: str) -> None:
    axes = 2 if g.opset < 20 or g.chance(0.7) else 3
    x = g.shaped([g.one([1, 3]), *(g.one([1, 2, 4]) for _ in range(axes))])
    grid = g.shaped([*(g.one([1, 2, 3]) for _ in range(axes)), axes])
    modes = ["linear", "nearest", "cubic"] if axes == 2 else ["linear", "nearest"]
    mode = g.one(["bilinear", "nearest", "bicubic"] if g.opset < 20 else modes)
    padding = g.one(["zeros", "border", "reflection"])
    corners = int(g.chance(0.5))
    g.node(op, [x.name, grid.name], mode=mode, padding_mode=padding, align_corners=corners)


@row("Col2Im", since=18)
def _col2im(g: Growing, op: str) -> None:
    image, block, strides, dilations, pads = (
        [g.one(some) for _ in range(2)] for some in ((1, 3, 5), (1, 2), (1, 2), (1, 2), (0, 1))
    )
    room = [image[k] + 2 * pads[k] - dilations[k] * (block[k] - 1) - 1 for k in range(2)]
    counts = [space // stride + 1 for space, stride in zip(room, strides, strict=True)]
    if min(room) < 0:
        raise Unfit
    x = g.shaped([g.one([1, 2]) * math.prod(block), math.prod(counts)])
    g.node(
        op, [x.name, g.constant(image), g.constant(block)],
        strides=strides, dilations=dilations, pads=[*pads, *pads],
    )  # fmt: skip


# Gather, scatter, sort.


@row("Gather")
def _gather(g: Growing, op: str) -> None:
    if g.labels and g.chance(0.5):
        rows = g.parameter([CLASSES, *(g.size() for _ in range(g.one([1, 2])))])
        g.node(op, [rows, g.labels.name], axis=0)
        return
    x = g.pick()
    axis = g.axis(x)
    shape = g.one([(), (1,), (3,), (2, 2)])
    g.node(op, [x.name, g.constant(g.draw.integers(0, x.shape[axis], shape))], axis=axis)


@row("GatherElements", since=13)
def _gather_elements(g: Growing, op: str) -> None:
    x = g.pick(ranks=(2, 3, 4))
    axis = g.axis(x)
    w = g.parameter([1, *x.shape[1:]])
    wide = g.node("Add", [x.name, w])
    picked = g.several("TopK", [wide.name, g.constant([1])], 2, axis=axis)[1]
    g.node(op, [x.name, picked.name], axis=axis)


@row("GatherND", since=12)
def _gather_nd(g: Growing, op: str) -> None:
    x = g.pick(ranks=(3, 4))
    places = g.draw.integers(0, x.shape[1:3], (3, 2))[:, : g.one([1, 2])]
    turned = g.node("Transpose", [x.name], perm=[1, 2, 0, *range(3, len(x.shape))])
    found = g.node(op, [turned.name, g.constant(places)])
    rank = len(found.shape)
    at = 1 if places.shape[1] == 2 else 2
    g.node("Transpose", [found.name], perm=[at, *(k for k in range(rank) if k != at)])


@row("ScatterElements", since=16)
def _scatter_elements(g: Growing, op: str) -> None:
    x = g.pick(ranks=(2, 3))
    axis = g.axis(x)
    g.is_whole = True
    count = int(g.draw.integers(1, x.shape[axis] + 1))
    shape = list(x.shape)
    shape[axis] = count
    places = np.broadcast_to(
        g.draw.permutation(x.shape[axis])[:count].reshape(
            [-1 if k == axis % len(shape) else 1 for k in range(len(shape))]
        ),
        shape,
    )
    base = g.parameter([1, *shape[1:]])
    updates = g.node("Expand", [base, g.constant(shape)])
    g.node(
        op, [x.name, g.constant(places), updates.name], axis=axis, reduction=g.one(["none", "add"])
    )


@row("ScatterND", since=16)
def _scatter_nd(g: Growing, op: str) -> None:
    x = g.pick(ranks=(2, 3))
    g.is_whole = True
    turned = g.node("Transpose", [x.name], perm=[1, 0, *range(2, len(x.shape))])
    count = int(g.draw.integers(1, x.shape[1] + 1))
    places = g.draw.permutation(x.shape[1])[:count].reshape(-1, 1)
    base = g.parameter([count, 1, *x.shape[2:]])
    updates = g.node("Expand", [base, g.constant([count, *x.shape[:1], *x.shape[2:]])])
    operands = [turned.name, g.constant(places), updates.name]
    made = g.node(op, operands, reduction=g.one(["none", "add"]))
    g.node("Transpose", [made.name], perm=[1, 0, *range(2, len(x.shape))])


@row("TopK", since=11)
def _topk(g: Growing, op: str) -> None:
    x = g.pick()
    axis = g.axis(x)
    count = g.constant([int(g.draw.integers(1, x.shape[axis] + 1))])
    g.several(op, [x.name, count], 2, axis=axis, largest=int(g.chance(0.5)))


@row("ArgMax", "ArgMin", since=13)
def _arg(g: Growing, op: str) -> None:
    x = g.pick(ranks=(3, 4))
    attrs = {"keepdims": int(g.chance(0.5)), "select_last_index": int(g.chance(0.3))}
    found = g.node(op, [x.name], axis=g.axis(x), **attrs)
    g.node("Cast", [found.name], to=1)


@row("OneHot", since=11)
def _one_hot(g: Growing, op: str) -> None:
    """Of labels, or of the places of maxima; among few classes some are out of range."""
    places = g.labels if g.labels and g.chance(0.5) else None
    if places is None:
        x = g.pick(ranks=(3, 4))
        places = g.node("ArgMax", [x.name], axis=g.draw.integers(1, len(x.shape)), keepdims=0)
    depth = int(g.draw.integers(1, 6))
    sides = g.parameter([2]) if g.chance(0.7) else g.constant([-0.5, 1.5], np.float32)
    rank = len(places.shape)
    axis = int(g.draw.integers(1, rank + 1)) if g.chance(0.5) else -1
    g.node(op, [places.name, g.constant(depth), sides], axis=axis)


@row("Hardmax", since=13)
def _hardmax(g: Growing, op: str) -> None:
    x = g.pick()
    g.node(op, [x.name], axis=g.axis(x))


@row("LpNormalization")
def _lp_normalization(g: Growing, op: str) -> None:
    x = g.pick()
    p = g.one([1, 2])
    g.node(op, [g.within(x, "positive").name if p == 2 else x.name], axis=g.axis(x), p=p)


@row("ReverseSequence", since=10)
def _reverse_sequence(g: Growing, op: str) -> None:
    x = g.pick(ranks=(3, 4))
    time = int(g.draw.integers(1, len(x.shape)))
    line = g.node("Flatten", [x.name], axis=1)
    if line.shape[1] > x.shape[time]:
        line = g.node("Slice", [line.name, *(g.constant([n]) for n in (0, x.shape[time], 1))])
    lengths = g.node("ArgMax", [line.name], axis=1, keepdims=0)  # 0 to one less than all
    g.node(op, [x.name, lengths.name], time_axis=time, batch_axis=0)


@row("RotaryEmbedding", since=23)
def _rotary_embedding(g: Growing, op: str) -> None:
    heads, steps, half = g.one([1, 2]), g.one([1, 3]), g.one([1, 2])
    turned = g.chance(0.5)
    channels = 2 * half + (g.one([1, 2, 4]) if turned else 0)
    attrs = {"interleaved": int(g.chance(0.5))}
    if turned:
        attrs["rotary_embedding_dim"] = 2 * half
    if g.chance(0.5):
        x = g.shaped([heads, steps, channels])
    else:
        x = g.shaped([steps, heads * channels])
        attrs["num_heads"] = heads
    tables = [g.parameter([4, half]) for _ in range(2)]
    seats = g.node("ArgMax", [g.shaped([steps, 4]).name], axis=2, keepdims=0)
    g.node(op, [x.name, *tables, seats.name], **attrs)


# Reductions.


@row("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare",
     "ReduceLogSumExp", "ReduceProd", "ReduceLogSum", since=13)  # fmt: skip
def _reduce(g: Growing, op: str) -> None:
    domain = {"ReduceLogSum": "positive", "ReduceProd": "positive", "ReduceL2": "positive"}
    x = g.within(g.pick(ranks=(2, 3, 4)), domain.get(op, "any"))
    if op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceSum") and g.chance(0.4):
        x = g.zeroed(x)
    axes, keep = g.axes(x), int(len(x.shape) - 1 > 1 and g.chance(0.5))
    if not keep and len(axes) == len(x.shape) - 1:
        keep = 1
    _with_axes(g, op, x, axes, 13 if op == "ReduceSum" else 18, keepdims=keep)


@row("Softmax", "LogSoftmax", since=13)
def _softmax(g: Growing, op: str) -> None:
    x = g.pick()
    g.node(op, [x.name], axis=g.axis(x))


# Products.


@row("MatMul", since=9)
def _matmul(g: Growing, op: str) -> None:
    x = g.pick()
    if len(x.shape) > 2 and g.chance(0.3):
        turned = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
        g.node(op, [x.name, g.node("Transpose", [x.name], perm=turned).name])
    else:
        many = [1] * (len(x.shape) - 2) if g.chance(0.2) else []
        g.node(op, [x.name, g.parameter([*many, x.shape[-1], g.size()])])


@row("Gemm", since=11)
def _gemm(g: Growing, op: str) -> None:
    x = g.pick(ranks=(2,))
    wide, turned = g.size(), int(g.chance(0.5))
    w = g.parameter([wide, x.shape[1]] if turned else [x.shape[1], wide])
    bias = [g.parameter(g.one([[wide], [1], [1, wide], [1, 1]]))] if g.chance(0.7) else []
    attrs = {n: float(g.draw.uniform(0.3, 1.4)) for n in ("alpha", "beta") if g.chance(0.4)}
    g.node(op, [x.name, w, *bias], transB=turned, **attrs)


@row("Einsum", since=12)
def _einsum(g: Growing, op: str) -> None:
    x = g.pick(ranks=(3,))
    a, b = x.shape[1:]
    equation, shapes = g.one([
        ("nab,bc->nac", [[b, 3]]), ("nab,ab->n" + "a", [[a, b]]), ("nab->nba", []),
        ("nab,ca->nbc", [[2, a]]), ("nab->na", []), ("nab,b->na", [[b]]),
        ("n...b,bc->n...c", [[b, 2]]), ("nab,bc,cd->nad", [[b, 2], [2, 3]]),
    ])  # fmt: skip
    g.node(op, [x.name, *(g.parameter(shape) for shape in shapes)], equation=equation)


def _window(g: Growing, spatial: list[int]) -> dict:
    """Kernel, strides, padding, dilation, or auto_pad, so that something is left."""
    kernel = [int(g.draw.integers(1, min(3, size) + 1)) for size in spatial]
    attrs: dict = {"kernel_shape": kernel}
    if g.chance(0.5):
        attrs["strides"] = [g.one([1, 2, 3]) for _ in spatial]
    if g.chance(0.2):
        attrs["auto_pad"] = g.one(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif g.chance(0.6):
        pads = [int(g.draw.integers(0, k)) for k in [*kernel, *kernel]]
        attrs["pads"] = pads
    return attrs


@row("Conv", since=11)
def _conv(g: Growing, op: str) -> None:
    dims = g.one([1, 2, 2, 3])
    groups, spatial = g.one([1, 1, 2]), [int(g.draw.integers(2, 7)) for _ in range(dims)]
    each, out = g.size(2), g.size(3) * groups
    x = g.shaped([each * groups, *spatial])
    attrs = _window(g, spatial)
    if "auto_pad" not in attrs and g.chance(0.3):
        attrs["dilations"] = [
            2 if 2 * (k - 1) < s else 1 for k, s in zip(attrs["kernel_shape"], spatial, strict=True)
        ]
    bias = [g.parameter([out])] if g.chance(0.6) else []
    w = g.parameter([out, each, *attrs["kernel_shape"]])
    g.node(op, [x.name, w, *bias], group=groups, **attrs)


@row("ConvTranspose", since=11)
def _conv_transpose(g: Growing, op: str) -> None:
    dims, groups = g.one([1, 2, 3]), g.one([1, 1, 2])
    spatial = [int(g.draw.integers(1, 4)) for _ in range(dims)]
    each, out = g.size(2), g.size(2)
    x = g.shaped([each * groups, *spatial])
    kernel = [int(g.draw.integers(1, 4)) for _ in spatial]
    attrs: dict = {"strides": [g.one([1, 2]) for _ in spatial], "group": groups}
    if g.chance(0.4):
        attrs["output_padding"] = [s - 1 for s in attrs["strides"]]
    if g.chance(0.3):
        attrs["dilations"] = [g.one([1, 2]) for _ in spatial]
    bias = [g.parameter([out * groups])] if g.chance(0.5) else []
    w = g.parameter([each * groups, out, *kernel])
    g.node(op, [x.name, w, *bias], kernel_shape=kernel, **attrs)


@row("MaxPool", "AveragePool", "LpPool", since=11)
def _pool(g: Growing, op: str) -> None:
    spatial = [int(g.draw.integers(2, 7)) for _ in range(g.one([1, 2, 2, 3][: 3 + (op[0] != "L")]))]
    x = g.shaped([g.size(3), *spatial])
    attrs = _window(g, spatial)
    if "auto_pad" in attrs:  # no two runtimes agree on pads below zero
        steps = zip(attrs.get("strides", attrs["kernel_shape"]), attrs["kernel_shape"], strict=True)
        attrs["strides"] = [min(pair) for pair in steps]
    if op == "AveragePool" and g.chance(0.5):
        attrs["count_include_pad"] = 1
    if op != "LpPool" and "auto_pad" not in attrs and g.chance(0.3):
        attrs["ceil_mode"] = 1
    if op == "LpPool":
        attrs["p"] = g.one([1, 2, 3])
        x = g.within(x, "positive") if g.chance(0.5) else g.zeroed(x)
    g.node(op, [x.name], **attrs)


@row("GlobalLpPool", until=21)
@row("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(g: Growing, op: str) -> None:
    x = g.pick(ranks=(3, 4, 5))
    x = g.zeroed(x) if g.chance(0.4) else g.within(x, "positive")
    g.node(op, [x.name], **({"p": g.one([1, 2, 3])} if op == "GlobalLpPool" else {}))


# Norms.


@row("BatchNormalization", since=9)
def _batch_norm(g: Growing, op: str) -> None:
    x = g.pick()
    many = [x.shape[1]]
    operands = [g.parameter(many), g.parameter(many), g.buffer(many), g.buffer(many, 0.5)]
    g.node(op, [x.name, *operands], epsilon=g.one([1e-5, 1e-3]), momentum=g.one([0.9, 0.7]))


@row("LayerNormalization", since=17)
@row("RMSNormalization", since=23)
def _layer_norm(g: Growing, op: str) -> None:
    x = g.pick()
    axis = g.axis(x)
    shape = x.shape[axis:] if axis < 0 else x.shape[axis:]
    bias = [g.parameter(shape)] if op == "LayerNormalization" and g.chance(0.7) else []
    g.node(op, [x.name, g.parameter(shape), *bias], axis=axis, epsilon=g.one([1e-3, 1e-2]))


@row("InstanceNormalization")
def _instance_norm(g: Growing, op: str) -> None:
    x = g.shaped([g.size(3), *[int(g.draw.integers(2, 5)) for _ in range(g.one([1, 2]))]])
    many = [x.shape[1]]
    g.node(op, [x.name, g.parameter(many), g.parameter(many)], epsilon=1e-2)


@row("GroupNormalization", since=21)
def _group_norm(g: Growing, op: str) -> None:
    groups = g.one([1, 2])
    x = g.shaped([groups * g.size(2), g.size(4), 3])
    many = [x.shape[1]]
    operands = [x.name, g.parameter(many), g.parameter(many)]
    g.node(op, operands, num_groups=groups, epsilon=1e-2)


@row("LRN")
def _lrn(g: Growing, op: str) -> None:
    g.node(op, [g.pick(ranks=(4,)).name], size=g.one([1, 3, 5]), alpha=0.1, bias=1.2)


@row("Dropout", since=13)
def _dropout(g: Growing, op: str) -> None:
    g.node(op, [g.pick().name, g.constant(0.3, np.float32), g.constant(True, bool)])


# Resizing.


@row("Resize", since=13)
def _resize(g: Growing, op: str) -> None:
    x = g.shaped([g.size(2), g.size(5), g.size(4)])
    mode = g.one(["nearest", "linear", "cubic"])
    attrs = {"mode": mode, "coordinate_transformation_mode": g.one(
        ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])}  # fmt: skip
    if mode == "nearest":
        attrs["nearest_mode"] = g.one(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
        attrs["coordinate_transformation_mode"] = g.one(["asymmetric", "half_pixel"])
    if g.chance(0.5):
        scales = [1, 1, g.one([0.5, 1, 2]), g.one([1, 2, 3])]
        g.node(op, [x.name, "", g.constant(scales, np.float32)], **attrs)
    else:
        g.is_whole = True
        sizes = g.constant([BATCH, x.shape[1], g.size(6), g.size(6)])
        g.node(op, [x.name, "", "", sizes], **attrs)


@row("Upsample", since=9, until=9)
def _upsample(g: Growing, op: str) -> None:
    x = g.shaped([g.size(2), g.size(3), g.size(3)])
    g.node(op, [x.name, g.constant([1, 1, 2, 3], np.float32)], mode=g.one(["nearest", "linear"]))


# Sequences.


@row("LSTM", "GRU", "RNN", since=14)
def _recurrent(g: Growing, op: str) -> None:
    steps, wide, hidden = g.size(4), g.size(3), g.size(3)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x = g.node("Transpose", [g.shaped([steps, wide]).name], perm=[1, 0, 2])
    direction = g.one(["forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    w = g.parameter([ways, gates * hidden, wide])
    r = g.parameter([ways, gates * hidden, hidden])
    bias = [g.parameter([ways, 2 * gates * hidden])] if g.chance(0.6) else []
    attrs = {"linear_before_reset": 1} if op == "GRU" and g.chance(0.5) else {}
    out = g.several(op, [x.name, w, r, *bias], 2, hidden_size=hidden, direction=direction, **attrs)
    if g.chance(0.5):
        g.node("Transpose", [out[0].name], perm=[2, 0, 1, 3])
    else:
        g.node("Transpose", [out[1].name], perm=[1, 0, 2])


@row("Attention", since=23)
def _attention(g: Growing, op: str) -> None:
    heads, length, wide = g.one([1, 2]), g.size(4), g.size(3)
    q, k, v = (g.shaped([heads, length, wide]) for _ in range(3))
    attrs = {"is_causal": 1} if g.chance(0.4) else {}
    if g.chance(0.4):
        attrs["scale"] = 0.7
    g.node(op, [q.name, k.name, v.name], **attrs)


# 8 bits.


@row("QuantizeLinear", "DequantizeLinear", since=13)
def _quantise(g: Growing, op: str) -> None:
    x, dtype = g.pick(), g.one([np.uint8, np.int8])
    grid = [g.constant(0.05, np.float32), g.constant(3, dtype)]
    name, out = g.name(), g.name("q")
    g.known[name] = g.known[x.name]
    whole = g.node("QuantizeLinear", [x.name, *grid])
    del name, out
    g.node("DequantizeLinear", [whole.name, *grid])


# Random numbers, branches, losses: what they give is checked by itself.


@row("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli",
     since=15, until=21)  # fmt: skip
def _random(g: Growing, op: str) -> None:
    x = g.pick()
    if op in ("RandomNormal", "RandomUniform"):
        g.is_whole = True
        noise = g.node(op, [], shape=list(x.shape[1:]))
    elif op == "Bernoulli":
        noise = g.node(op, [g.node("Sigmoid", [x.name]).name])
    else:
        noise = g.node(op, [x.name])
    g.node("Add", [x.name, noise.name])


@row("If", since=13)
def _if(g: Growing, op: str) -> None:
    """A condition that is constant; the branches read the graph around them."""
    from onnx import TensorProto, helper

    x = g.pick()
    branches = {
        f"{side}_branch": helper.make_graph(
            [helper.make_node(inner, [x.name], [f"{side}_{g.name()}"])], side, [],
            [helper.make_tensor_value_info(f"{side}_{g.name()}", TensorProto.FLOAT, x.shape)],
        )
        for side, inner in (("then", "Tanh"), ("else", "Neg"))
    }  # fmt: skip
    g.node(op, [g.constant(g.chance(0.5), bool)], **branches)


@row("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", since=13)
def _loss(g: Growing, op: str) -> None:
    """Of each sample, so that the batch stays."""
    x = g.shaped([CLASSES])
    places = (g.labels or g.node("ArgMax", [g.shaped([2]).name], axis=1, keepdims=0)).name
    if op == "NegativeLogLikelihoodLoss":
        x = g.node("LogSoftmax", [x.name], axis=1)
    each = g.node(op, [x.name, places], reduction="none")
    _with_axes(g, "Unsqueeze", each, [1])
