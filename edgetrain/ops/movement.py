"""Views and copies: Reshape, Transpose, Slice, Concat, Split, Expand and similar ops.

A reshape is a view and costs nothing. Everything else uses the strided `copy` kernel; its gradient
is the same copy with source and destination exchanged.
"""

import numpy as np

from ..ir import Graph, Node
from . import samples
from .folding import axes_of, sizes_of
from .onnx_ops import Fold, onnx_rule
from .registry import Call, Op, register
from .storing import store_as
from .strides import contiguous, joined, merged, permuted, prod, spread
from .structure import Structure


class View(Op):
    """Another shape for the same bytes; removed before placement."""

    structure = Structure.VIEW

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        return []

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if dy and grads.needs(node.inputs[0]):
            grads.alias(node.inputs[0], dy)


class Copy(Op):
    """One or more strided copies y[yo + sum(i*ys)] = x[xo + sum(i*xs)] over `dims`.

    attrs: moves = tuple of (input index, xo, yo, dims, xs, ys); fill = value of elements no move
    writes, None if moves cover the output; shared = 1 if several moves read the same elements.
    """

    structure = Structure.WALK

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        acc = node.attrs.get("acc", 0)
        y, store = node.outputs[0], store_as(node, graph, graph.values[node.outputs[0]])
        calls = []
        fill = node.attrs.get("fill")
        if fill is not None and not acc:
            calls.append(Call("fill", {"y": y, "value": float(fill), "n": graph.values[y].size}))
        for source, xo, yo, dims, xs, ys in node.attrs["moves"]:
            dims, xs, ys = merged(dims, xs, ys)
            x = node.inputs[source]
            sizes = {"nx": graph.values[x].size, "ny": graph.values[y].size}
            walk = {"d": dims, "xs": xs, "ys": ys, "xo": xo, "yo": yo}
            calls.append(Call("copy", {"x": x, "y": y, "scale": 1.0} | store | walk | sizes))
        return calls

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if not dy:
            return
        for index, name in enumerate(node.inputs):
            if grads.needs(name):
                back = tuple(
                    (0, yo, xo, dims, ys, xs)
                    for source, xo, yo, dims, xs, ys in node.attrs["moves"]
                    if source == index
                )
                parts = [(move,) for move in back] if node.attrs.get("shared") else [back]
                for part in parts:
                    covered = sum(prod(move[3]) for move in part) == grads.value(name).size
                    attrs = {"moves": part, "fill": None if covered else 0.0}
                    grads.contribute(name, "copy", [dy], attrs)


class Expand(Op):
    """Broadcast to a larger shape; the gradient sums over broadcast dimensions."""

    structure = Structure.BROADCAST
    spreads = True

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if dy and grads.needs(node.inputs[0]):
            grads.contribute(node.inputs[0], "bgrad", [dy, "", ""], {"rule": "id"})


register(View("view", cost=0, samples=samples.unchanged, moves_only=True))
register(Copy("copy", cost=0, rounds=True, samples=samples.copied, moves_only=True))
_SPREAD = "x -> y", lambda v, _: spread(v["x"].shape, v["y"].shape)
register(Expand("expand", *_SPREAD, kernel="copy", samples=samples.linear, moves_only=True))
# A copy without gradient: for a shift that cancels out in exact arithmetic.
_BROADCAST = Structure.BROADCAST
register(
    Op(
        "detach", *_SPREAD, kernel="copy", cost=0, gradient="", samples=samples.linear,
        structure=_BROADCAST, moves_only=True,
    )
)  # fmt: skip


def copy_of(context, node, inputs, shape, moves, fill=None, outputs=None) -> None:
    """Emit one copy with the dtype of its first input."""
    dtype = inputs[0].dtype
    attrs = {"moves": tuple(moves), "fill": fill}
    context.emit(node, "copy", inputs, [shape], attrs, outputs=outputs, dtype=dtype)


@onnx_rule("Identity", moves=True, fold=Fold(lambda node, inputs: inputs[0], view=True))
def identity(context, node) -> None:
    value = context.value(node, 0)
    if node.function == "detach" and value.dtype == "f32":
        context.emit(node, "detach", [value], [value.shape])
    else:
        context.bind(node, 0, value.name)


def _copied(node, inputs) -> int:
    return 0 if inputs[0].flags.c_contiguous else inputs[0].size


def _reshaped(node, inputs):
    shape = [int(d) for d in inputs[1].ravel()]
    if not node.attrs.get("allowzero", 0):
        shape = [inputs[0].shape[k] if d == 0 else d for k, d in enumerate(shape)]
    return inputs[0].reshape(shape)


@onnx_rule("Reshape", moves=True, reshapes=True, sizes=(1,), fold=Fold(_reshaped, _copied, lists=1))
def reshape(context, node) -> None:
    x = context.value(node, 0)
    shape = context.ints(node, 1, "shape")
    if not node.attrs.get("allowzero", 0):
        shape = [x.shape[k] if d == 0 and k < len(x.shape) else d for k, d in enumerate(shape)]
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise node.fail(f"shape {shape}", "sizes of at least 0 and at most one -1")
    if -1 in shape:
        rest = prod([d for d in shape if d != -1])
        if rest <= 0 or x.size % rest:
            raise node.fail(f"shape {list(x.shape)} changed to {shape}", f"{x.size} elements")
        shape[shape.index(-1)] = x.size // rest
    context.view(node, x.name, shape)


def _flattened(node, inputs):
    x = inputs[0]
    return x.reshape(prod(x.shape[: node.attrs.get("axis", 1)]), -1)


@onnx_rule("Flatten", moves=True, reshapes=True, fold=Fold(_flattened, _copied))
def flatten(context, node) -> None:
    x = context.value(node, 0)
    rank, axis = len(x.shape), node.attrs.get("axis", 1)
    axis = rank if axis == rank else node.axis(axis, rank)
    context.view(node, x.name, [prod(x.shape[:axis]), prod(x.shape[axis:])])


def _squeezed(node, inputs):
    axes = axes_of(node, inputs)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


@onnx_rule("Squeeze", moves=True, reshapes=True, fold=Fold(_squeezed, lists=1, view=True))
def squeeze(context, node) -> None:
    x = context.value(node, 0)
    axes = context.ints(node, 1, "axes")
    rank = len(x.shape)
    chosen = [k for k, d in enumerate(x.shape) if d == 1] if axes is None else axes
    chosen = [node.axis(a, rank) for a in chosen]
    if any(x.shape[a] != 1 for a in chosen):
        raise node.fail(f"axes {chosen} to remove from shape {list(x.shape)}", "axes of size 1")
    context.view(node, x.name, [d for k, d in enumerate(x.shape) if k not in chosen])


def _unsqueezed(node, inputs):
    axes = axes_of(node, inputs) or []
    rank = inputs[0].ndim + len(axes)
    return np.expand_dims(inputs[0], tuple(a % rank for a in axes))


@onnx_rule("Unsqueeze", moves=True, reshapes=True, fold=Fold(_unsqueezed, lists=1, view=True))
def unsqueeze(context, node) -> None:
    x = context.value(node, 0)
    axes = context.ints(node, 1, "axes") or []
    rank = len(x.shape) + len(axes)
    chosen, rest = {node.axis(a, rank) for a in axes}, iter(x.shape)
    if len(chosen) < len(axes):
        raise node.fail(f"axes {axes}", "different axes")
    context.view(node, x.name, [1 if k in chosen else next(rest) for k in range(rank)])


def _permuted(node, inputs):
    return np.transpose(inputs[0], node.attrs.get("perm"))


@onnx_rule("Transpose", moves=True, fold=Fold(_permuted, view=True))
def transpose(context, node) -> None:
    x = context.value(node, 0)
    rank = len(x.shape)
    perm = [node.axis(p, rank) for p in node.attrs.get("perm", range(rank)[::-1])]
    if sorted(perm) != list(range(rank)):
        raise node.fail(f"perm {perm}", f"a permutation of {rank} axes")
    shape = [x.shape[p] for p in perm]
    kept = [p for p in perm if x.shape[p] != 1]
    if kept == sorted(kept):
        context.view(node, x.name, shape)
        return
    copy_of(context, node, [x], *permuted(x.shape, perm))


def _sliced(node, inputs):
    data = inputs[0]
    if "starts" in node.attrs:
        starts, ends = node.attrs["starts"], node.attrs["ends"]
        axes, steps = node.attrs.get("axes"), None
    else:
        starts, ends = inputs[1].tolist(), inputs[2].tolist()
        axes = inputs[3].tolist() if len(inputs) > 3 and inputs[3] is not None else None
        steps = inputs[4].tolist() if len(inputs) > 4 and inputs[4] is not None else None
    where = [slice(None)] * data.ndim
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = int(axes[k]) if axes is not None else k
        step = int(steps[k]) if steps is not None else 1
        bound = None if step < 0 and end < -data.shape[axis] else int(end)
        where[axis] = slice(int(start), bound, step)
    return data[tuple(where)]


@onnx_rule("Slice", moves=True, fold=Fold(_sliced, lists=1, view=True))
def slice_(context, node) -> None:
    x = context.value(node, 0)
    starts, ends = context.ints(node, 1, "starts"), context.ints(node, 2, "ends")
    axes = context.ints(node, 3, "axes")
    steps = context.ints(node, 4) or [1] * len(starts)
    rank = len(x.shape)
    axes = range(len(starts)) if axes is None else axes
    axes = [node.axis(a, rank) for a in axes]
    shape, offset, strides = list(x.shape), 0, contiguous(x.shape)
    steps_of = list(strides)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = x.shape[axis]
        if step == 0:
            raise node.fail("a step of 0", "a nonzero step")
        stop = None if step < 0 and end < -size else end
        picked = range(size)[slice(start, stop, step)]
        shape[axis] = len(picked)
        offset += (picked[0] if picked else 0) * strides[axis]
        steps_of[axis] = strides[axis] * step
    if shape == list(x.shape) and steps_of == strides:
        context.bind(node, 0, x.name)
        return
    copy_of(context, node, [x], shape, [(0, offset, 0, shape, steps_of, contiguous(shape))])


def _split(node, inputs):
    axis = node.attrs.get("axis", 0)
    sizes = node.attrs.get("split")
    if len(inputs) > 1 and inputs[1] is not None:
        sizes = inputs[1].tolist()
    size, parts = inputs[0].shape[axis], len(node.outputs)
    if sizes is None:
        step = -(-size // parts)
        sizes = [step] * (size // step) + ([size % step] if size % step else [])
    return np.split(inputs[0], np.cumsum(sizes)[:-1].astype(int), axis=axis)


@onnx_rule("Split", moves=True, fold=Fold(_split, lists=1, view=True))
def split(context, node) -> None:
    x = context.value(node, 0)
    axis = node.axis(node.attrs.get("axis", 0), len(x.shape))
    sizes = context.ints(node, 1, "split")
    if sizes is None:
        step = -(-x.shape[axis] // len(node.outputs))
        sizes = [min(step, x.shape[axis] - k * step) for k in range(len(node.outputs))]
    if sum(sizes) != x.shape[axis] or len(sizes) != len(node.outputs):
        raise node.fail(
            f"parts {sizes} of an axis of size {x.shape[axis]}", "parts that add up to it"
        )
    strides, start = contiguous(x.shape), 0
    for size, output in zip(sizes, node.outputs, strict=True):
        shape = [size if k == axis else d for k, d in enumerate(x.shape)]
        if output:
            move = (0, start * strides[axis], 0, shape, strides, contiguous(shape))
            copy_of(context, node, [x], shape, [move], outputs=[output])
        start += size


def _concatenated(node, inputs):
    return np.concatenate(inputs, axis=node.attrs["axis"])


def _sizes(node, inputs) -> int:
    return sum(x.size for x in inputs)


@onnx_rule("Concat", moves=True, variadic=True, fold=Fold(_concatenated, _sizes))
def concat(context, node) -> None:
    parts = [context.value(node, k) for k in range(len(node.inputs))]
    axis = node.axis(node.attrs["axis"], len(parts[0].shape))
    for part in parts[1:]:
        if len(part.shape) != len(parts[0].shape) or any(
            a != b
            for k, (a, b) in enumerate(zip(part.shape, parts[0].shape, strict=True))
            if k != axis
        ):
            raise node.fail(
                f"shapes {[list(p.shape) for p in parts]}", f"equal sizes except along axis {axis}"
            )
    if len(parts) == 1:
        context.bind(node, 0, parts[0].name)
        return
    copy_of(context, node, parts, *joined([part.shape for part in parts], axis))


def _target(node, inputs) -> tuple[int, ...]:
    return sizes_of(node, np.broadcast_shapes(inputs[0].shape, sizes_of(node, inputs[1])))


def _expanded(node, inputs):
    return np.broadcast_to(inputs[0], _target(node, inputs)).copy()


def _expanded_size(node, inputs) -> int:
    return prod(_target(node, inputs))


@onnx_rule("Expand", moves=True, sizes=(1,), fold=Fold(_expanded, _expanded_size, lists=1))
def expand(context, node) -> None:
    x = context.value(node, 0)
    target = context.ints(node, 1)
    shape = np.broadcast_shapes(x.shape, tuple(target))
    if tuple(shape) == x.shape:
        context.bind(node, 0, x.name)
    elif prod(shape) == x.size:
        context.view(node, x.name, shape)
    else:
        context.emit(node, "expand", [x], [shape], dtype=x.dtype)
