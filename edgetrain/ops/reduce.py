"""Reductions over any axes. Sum and mean save nothing; max and min their input and output."""

from ..ir import Graph, Node
from .registry import Call, Op, onnx_rule, register
from .storing import store_as
from .strides import broadcast, contiguous, merged, prod


class Reduce(Op):
    """y = reduction of x over attrs['axes'], kept as dimensions of one."""

    def __init__(self, name: str, kernel: str) -> None:
        super().__init__(name)
        self.kernel = kernel

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, y = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
        axes, strides = node.attrs["axes"], contiguous(x.shape)
        args: dict = {"x": x.name, "y": y.name, "nx": x.size}
        count = prod([x.shape[a] for a in axes])
        args["scale"] = 1.0 / count if self.name == "reduce_mean" else 1.0
        kept = [k for k in range(len(x.shape)) if k not in axes]
        for letter, chosen in (("k", kept), ("r", list(axes))):
            sizes = [x.shape[k] for k in chosen]
            own = contiguous(sizes)
            dims, steps, _ = merged(sizes, [strides[k] for k in chosen], own)
            args |= {letter: dims, f"{letter}s": steps}
        return [Call(f"reduce_{self.kernel}", args)]

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        if not dy or not grads.needs(x):
            return
        if self.name in ("reduce_sum", "reduce_mean"):
            attrs = {"axes": node.attrs["axes"], "mean": self.name == "reduce_mean"}
            grads.contribute(x, "reduce_spread", [dy], attrs)
        else:
            attrs = {"axes": node.attrs["axes"]}
            grads.contribute(x, f"{self.name}_bwd", [x, node.outputs[0], dy], attrs)

    def flops(self, node: Node, graph: Graph) -> int:
        return graph.values[node.inputs[0]].size


class Spread(Op):
    """dx (+)= dy broadcast over the reduced axes, divided by their count for a mean."""

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dy, dx = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
        axes = node.attrs["axes"]
        shape = [1 if k in axes else d for k, d in enumerate(dx.shape)]
        dims, xs, ys = merged(dx.shape, broadcast(shape, dx.shape), contiguous(dx.shape))
        scale = 1.0 / prod([dx.shape[a] for a in axes]) if node.attrs["mean"] else 1.0
        args: dict = {"x": dy.name, "y": dx.name, "scale": scale}
        args |= {"xo": 0, "yo": 0, "nx": dy.size, "ny": dx.size}
        walk = {"d": dims, "xs": xs, "ys": ys}
        return [Call("copy", args | walk | store_as(node, graph, dx))]


class ExtremeBackward(Op):
    """dx (+)= what x, y and dy say: an extreme's dy is shared evenly among equals, as torch's amax;
    a product's is dy times the product of the others.
    """

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, y, dy = (graph.values[n] for n in node.inputs[:3])
        axes, strides = node.attrs["axes"], contiguous(x.shape)
        args: dict = {"x": x.name, "y": y.name, "dy": dy.name, "dx": node.outputs[0]}
        kept = [k for k in range(len(x.shape)) if k not in axes]
        for letter, chosen in (("k", kept), ("r", list(axes))):
            sizes = [x.shape[k] for k in chosen]
            dims, steps, _ = merged(sizes, [strides[k] for k in chosen], contiguous(sizes))
            args |= {letter: dims, f"{letter}s": steps}
        return [Call(self.name, args | {"nx": x.size, "acc": node.attrs["acc"]})]


KINDS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}
for _kind in KINDS.values():
    register(Reduce(f"reduce_{_kind}", _kind))
register(Spread("reduce_spread"))
register(ExtremeBackward("reduce_max_bwd"))
register(ExtremeBackward("reduce_min_bwd"))
register(ExtremeBackward("reduce_prod_bwd"))


def reduced_shape(context, node, x) -> tuple[tuple[int, ...], list[int], list[int]] | None:
    """(axes, shape of the output, the same with dimensions of one kept); None: nothing is reduced.

    Axes are an attribute of older opsets and an input of newer ones.
    """
    axes = context.ints(node, 1, "axes")
    if not axes and node.attrs.get("noop_with_empty_axes", 0):
        return None
    rank = len(x.shape)
    axes = sorted({node.axis(a, rank) for a in axes}) if axes else list(range(rank))
    kept = [1 if k in axes else d for k, d in enumerate(x.shape)]
    dropped = [d for k, d in enumerate(x.shape) if k not in axes]
    return tuple(axes), kept if node.attrs.get("keepdims", 1) else dropped, kept


@onnx_rule(*KINDS)
def reduce(context, node) -> None:
    x = context.value(node, 0)
    found = reduced_shape(context, node, x)
    if found is None:
        context.bind(node, 0, x.name)
        return
    context.emit(node, f"reduce_{KINDS[node.op_type]}", [x], [found[1]], {"axes": found[0]})
