"""Padding modes constant, reflect, edge and wrap. Saved: nothing."""

from collections.abc import Sequence
from typing import Any

from ..units.wording import counted
from . import samples
from .movement import copy_of
from .onnx_ops import onnx_rule
from .registry import Op, register
from .strides import MAX_DIMS, contiguous, prod

PAD_MODES = {"reflect": 0, "edge": 1, "wrap": 2}


def _pad_walk(values, attrs) -> dict[str, Any]:
    """Sizes of y (d) and x (e) as six dimensions, and the elements before x (p); batch first."""
    x, y = values["x"], values["y"]

    def six(numbers, neutral: int) -> list[int]:
        missing = [neutral] * (MAX_DIMS - len(numbers))
        return [*numbers[:1], *missing, *numbers[1:]]

    before = six(attrs["before"], 0)
    return {"d": six(y.shape, 1), "e": six(x.shape, 1), "p": before}


# y = x padded by reflection, edge or wrapping; attrs before, mode (PAD_MODES). dx (+)= dy,
# each element added to the element it came from.
def _padded(look: samples.Look) -> samples.State:
    def is_whole(axis: int) -> bool:
        return not look.node.attrs["before"][axis] and look.out()[axis] == look.shape(0)[axis]

    return samples.along_axis(look, is_whole)


register(Op("pad_mode", "x -> y", _pad_walk, cost=0, gradient="dy", samples=_padded))
register(Op("pad_mode_bwd", "dy -> dx", _pad_walk))


def _joined(context, node, rank: int) -> tuple[list[int], str]:
    pads, axes = context.ints(node, 1, "pads"), context.ints(node, 3)
    places = [node.axis(axis, rank) for axis in (range(rank) if axes is None else axes)]
    count = len(places)
    return [a for k, a in enumerate(places) if pads[k] or pads[k + count]], "padded or cropped"


@onnx_rule("Pad", settings=(2,), joined=_joined)
def pad(context, node) -> None:
    x = context.value(node, 0)
    rank = len(x.shape)
    pads = context.ints(node, 1, "pads")
    axes = [node.axis(a, rank) for a in (context.ints(node, 3) or range(rank))]
    mode = node.attrs.get("mode", "constant")
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    shape = [b + d + a for b, d, a in zip(before, x.shape, after, strict=True)]
    if not any(before) and not any(after):
        context.bind(node, 0, x.name)
    elif mode == "constant":
        value = node.attrs.get("value", 0.0)
        if context.has(node, 2):
            known = context.const(node, 2)
            if known is None:
                raise node.fail("the value is not constant", "a constant")
            value = float(known.ravel()[0])
        _pad_constant(context, node, x, shape, before, value)
    else:
        _pad_mode(context, node, x, shape, before, mode)


def _pad_mode(context, node, x, shape: Sequence[int], before, mode: str) -> None:
    if mode not in PAD_MODES or len(shape) > MAX_DIMS:
        raise node.fail(
            f"mode {mode!r} for {counted(len(shape), 'dimension')}",
            f"constant, {', '.join(PAD_MODES)}, and at most {MAX_DIMS} dimensions",
        )
    if mode == "wrap" and any(
        min(b, n - d - b) < 0 < max(b, n - d - b)
        for b, d, n in zip(before, x.shape, shape, strict=True)
    ):
        x, before = _cropped(context, node, x, shape, before)
    if mode == "reflect" and any(
        max(b, n - d - b) >= d for b, d, n in zip(before, x.shape, shape, strict=True)
    ):
        raise node.fail(
            f"reflection padding from {list(x.shape)} to {shape}", "pads smaller than the input"
        )
    attrs = {"mode": PAD_MODES[mode], "before": tuple(before)}
    context.emit(node, "pad_mode", [x], [shape], attrs)


def _cropped(context, node, x, shape: Sequence[int], before):
    """x cropped by negative counts, and the remaining counts before it: an axis wraps around
    after cropping."""
    start = [max(0, -b) for b in before]
    dims = [min(d, n - b) - s for d, n, b, s in zip(x.shape, shape, before, start, strict=True)]
    if min(dims) < 1:
        raise node.fail(f"pads leave {dims} of {list(x.shape)} to wrap", "a nonempty part")
    steps = contiguous(x.shape)
    offset = sum(s * k for s, k in zip(start, steps, strict=True))
    made = context.temporary(node, "crop", dims)
    attrs = {"moves": ((0, offset, 0, dims, steps, contiguous(dims)),), "fill": None, "shared": 1}
    context.emit(node, "copy", [x], [dims], attrs, outputs=[made])
    return context.named(made), [max(0, b) for b in before]


def _pad_constant(context, node, x, shape: Sequence[int], before, value: float) -> None:
    """Negative pads crop: only the overlap is copied."""
    start = [max(0, -b) for b in before]
    dims = [
        min(d - s, n - max(0, b)) for d, s, n, b in zip(x.shape, start, shape, before, strict=True)
    ]
    if min(dims) < 1:
        raise node.fail(f"pads that crop {list(x.shape)} to {shape}", "a nonempty part")
    xs, ys = contiguous(x.shape), contiguous(shape)
    xo = sum(s * k for s, k in zip(start, xs, strict=True))
    yo = sum(max(0, b) * k for b, k in zip(before, ys, strict=True))
    fill = value if prod(dims) < prod(shape) else None
    copy_of(context, node, [x], shape, [(0, xo, yo, dims, xs, ys)], fill)
