"""Tile, DepthToSpace, SpaceToDepth, CumSum: views, copies and running sums."""

import numpy as np

from ..ir import Node
from . import samples
from .folding import sizes_of
from .integers import as_floats, as_integers, computed
from .movement import copy_of
from .onnx_ops import Fold, OnnxNode, images, onnx_rule
from .registry import Op, register
from .softmax import split_at
from .strides import permuted, prod


def _tiled(node, inputs):
    return np.tile(inputs[0], inputs[1].astype(np.int64))


def _tiled_size(node, inputs) -> int:
    return inputs[0].size * prod(sizes_of(node, inputs[1]))


@onnx_rule("Tile", moves=True, fold=Fold(_tiled, _tiled_size, lists=1))
def tile(context, node) -> None:
    """An expansion between two views; the gradient sums over repeats."""
    x, repeats = context.value(node, 0), context.ints(node, 1)
    if repeats is None or len(repeats) != len(x.shape) or min(repeats, default=1) < 1:
        raise node.fail(f"repeats {repeats}", f"{len(x.shape)} positive numbers")
    narrow: list[int] = []
    wide: list[int] = []
    for size, times in zip(x.shape, repeats, strict=True):
        if times > 1 and size > 1:
            narrow += [1]
            wide += [times]
        narrow += [size]
        wide += [size if size > 1 else times]
    shape = [size * times for size, times in zip(x.shape, repeats, strict=True)]
    if list(x.shape) == shape:
        context.bind(node, 0, x.name)
        return
    out = context.temporary(node, "repeated", wide, x.dtype)
    rows = context.reshaped(node, x, narrow)
    context.emit(node, "expand", [rows], [wide], outputs=[out], dtype=x.dtype)
    context.view(node, out, shape)


@onnx_rule("DepthToSpace", "SpaceToDepth", joined=images, moves=True)
def depth_space(context, node) -> None:
    """One permuted copy from channels to blocks of pixels, or back."""
    x, size = context.value(node, 0), int(node.attrs["blocksize"])
    if len(x.shape) != 4 or size < 1:
        raise node.fail(f"blocksize {size}, input shape {list(x.shape)}", "[n, c, h, w]")
    n, c, h, w = x.shape
    if node.op_type == "DepthToSpace":
        if c % (size * size):
            raise node.fail(f"{c} channels", f"a multiple of {size * size}")
        small = c // (size * size)
        if node.attrs.get("mode", "DCR") == "DCR":
            parts, perm = (n, size, size, small, h, w), (0, 3, 4, 1, 5, 2)
        else:
            parts, perm = (n, small, size, size, h, w), (0, 1, 4, 2, 5, 3)
        shape = (n, small, h * size, w * size)
    else:
        if h % size or w % size:
            raise node.fail(f"planes of {h} x {w}", f"multiples of {size}")
        columns = node.attrs.get("mode", "DCR") == "CRD"
        parts = (n, c, h // size, size, w // size, size)
        perm = (0, 1, 3, 5, 2, 4) if columns else (0, 3, 5, 1, 2, 4)
        shape = (n, c * size * size, h // size, w // size)
    copy_of(context, node, [x], shape, permuted(parts, perm)[1])


class CumSum(Op):
    """y = running sum of x along attrs['axis']; attrs exclusive, reverse."""

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        if dy and grads.needs(x):
            attrs = {**node.attrs, "reverse": 1 - node.attrs["reverse"]}
            grads.contribute(x, "cumsum", [dy], attrs)


def _axis(values, attrs) -> dict[str, int]:
    return split_at(values["y"].shape, attrs["axis"])


register(CumSum("cumsum", "x -> y", _axis, in_place=((0, 0),), samples=samples.over_axis))


def _summed(context, node: OnnxNode, rank: int) -> tuple[list[int], str]:
    return [node.axis(axis, rank) for axis in context.ints(node, 1) or []], "summed over"


def _running(node, inputs):
    data, axis = inputs[0], int(inputs[1].ravel()[0])
    turned = np.flip(data, axis) if node.attrs.get("reverse", 0) else data
    out = np.cumsum(turned, axis, dtype=data.dtype)
    out = out - turned if node.attrs.get("exclusive", 0) else out
    return np.flip(out, axis) if node.attrs.get("reverse", 0) else out


@onnx_rule("CumSum", joined=_summed, fold=Fold(_running, work=8))
def cumsum(context, node) -> None:
    x, axis = context.value(node, 0), context.ints(node, 1)
    if not axis:
        raise node.fail(f"axis {axis}", "a constant axis")
    attrs = {key: int(bool(node.attrs.get(key, 0))) for key in ("exclusive", "reverse")}
    attrs["axis"] = node.axis(axis[0], len(x.shape))
    if x.dtype == "f32":
        context.emit(node, "cumsum", [x], [x.shape], attrs)
        return
    sums = computed(context, node, "cumsum", [as_floats(context, node, x)], x.shape, attrs)
    as_integers(context, node, sums, 0)
