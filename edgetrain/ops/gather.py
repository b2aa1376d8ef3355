"""Gather by integer indices (embeddings): rows of x along an axis. Saved: the indices."""

import numpy as np

from ..ir import Graph, Node
from .movement import copy_of
from .registry import Call, Op, onnx_rule, register
from .storing import store_as
from .strides import contiguous, prod


def _sizes(x, index, axis: int) -> dict[str, int]:
    return {
        "outer": prod(x.shape[:axis]),
        "axis": x.shape[axis],
        "inner": prod(x.shape[axis + 1 :]),
        "count": index.size,
    }


class Gather(Op):
    """y = x taken at idx along attrs['axis']."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, index = (graph.values[n] for n in node.inputs)
        args = {"x": x.name, "idx": index.name, "y": node.outputs[0]}
        return [Call("gather", {**args, **_sizes(x, index, node.attrs["axis"])})]

    def vjp(self, grads, node: Node) -> None:
        dy, (x, index) = grads.of(node.outputs[0]), node.inputs
        if dy and grads.needs(x):
            grads.contribute(x, "gather_bwd", [dy, index], dict(node.attrs))

    def flops(self, node: Node, graph: Graph) -> int:
        return 0


class GatherBackward(Op):
    """dx (+)= rows of dy added where they came from."""

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dy, index = (graph.values[n] for n in node.inputs[:2])
        dx = graph.values[node.outputs[0]]
        args: dict = {"idx": index.name, "dy": dy.name, "dx": dx.name}
        store = store_as(node, graph, dx)
        args |= {name: store[name] for name in ("ctl", "key", "sr")}
        args |= {"padding": -1} | _sizes(dx, index, node.attrs["axis"])
        clear = Call("fill", {"y": dx.name, "value": 0.0, "n": dx.size})
        return [*([] if node.attrs["acc"] else [clear]), Call("gather_bwd", args)]

    def flops(self, node: Node, graph: Graph) -> int:
        return graph.values[node.inputs[0]].size


register(Gather("gather"))
register(GatherBackward("gather_bwd"))


@onnx_rule("Gather", weights=(0,))
def gather(context, node) -> None:
    x = context.value(node, 0)
    axis = node.axis(node.attrs.get("axis", 0), len(x.shape))
    index = context.const(node, 1)
    if index is None:
        indices = context.value(node, 1)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        context.emit(node, "gather", [x, indices], [shape], {"axis": axis}, dtype=x.dtype)
        return
    size = x.shape[axis]
    context.room(node, index.size, weight=8)
    if index.size == 0 or index.min() < -size or index.max() >= size:
        raise node.fail(f"constant indices {index.ravel()[:5].tolist()}", f"-{size} to {size - 1}")
    if index.size == 1:  # One row: a slice.
        strides = contiguous(x.shape)
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        dims = [1 if k == axis else d for k, d in enumerate(x.shape)]
        offset = int(index.ravel()[0]) % size * strides[axis]
        copy_of(context, node, [x], shape, [(0, offset, 0, dims, strides, contiguous(dims))])
        return
    indices = context.constant(node, "indices", (index % size).astype(np.int32))
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    context.emit(node, "gather", [x, indices], [shape], {"axis": axis}, dtype=x.dtype)
