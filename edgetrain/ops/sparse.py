"""Convolution, linear layer, embedding by a sparse weight of the pool, from compiler/sparsify.py.

Inputs of `conv_csr`: x, pool, bias, stat, gamma, beta, columns, pointers (see formats/csr.py); the
first six are those of `conv`. `linear_csr`, y[..., k] = x[..., c] w^T + bias, is a convolution of
maps of one pixel and takes no prologue. Inputs of `gather_csr`: pool, columns, pointers, indices;
it takes rows of the weight. Attributes: the geometry, the weight's `shape`, its `chunk`, its
`nonzeros` at the start, the `room` that it may take of the pool. Saved for backward: x (weight
gradient) and the pool (input gradient).
"""

from typing import Any

from ..ir import Graph, Node, Value
from ..ir.keys import key_of
from .conv import GEOMETRY, prologue
from .registry import Call, Op, register

_LAYER = ("shape", "chunk", "nonzeros", "room")  # attributes of a layer


def _weight(node: Node, first: int, graph: Graph, x: Value, y: Value) -> dict:
    """Pattern, sizes and geometry; columns and pointers are inputs `first` and the next."""
    xs, ws, ys = (
        (*s[:2], 1, s[2]) if len(s) == 3 else s for s in (x.shape, node.attrs["shape"], y.shape)
    )
    if len(ws) == 2:
        samples = x.size // ws[1]
        xs, ws, ys = (samples, ws[1], 1, 1), (*ws, 1, 1), (samples, ws[0], 1, 1)
    columns, pointers = node.inputs[first : first + 2]
    out: dict = {"columns": columns, "pointers": pointers, "chunk": node.attrs["chunk"]}
    out |= {"room": 0, "held": 0}  # the pool itself; compiler/packed.py says otherwise
    out |= dict(zip(("n", "c", "h", "wd"), xs, strict=True))
    out |= {"k": ws[0], "kh": ws[2], "kw": ws[3], "oh": ys[2], "ow": ys[3]}
    out |= {key: node.attrs[key] for key in GEOMETRY}
    return out | {"slots": graph.values[columns].size}


def _flops(node: Node, y: Value) -> int:
    rows = node.attrs["shape"][0]
    return 2 * node.attrs["nonzeros"] * (y.size // rows)


class ConvCsr(Op):
    """y = conv(prologue(x), sparse w) + bias."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, y = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
        args = {"x": x.name, "w": node.inputs[1], "bias": node.inputs[2] or None, "y": y.name}
        return [Call("conv_csr", args | prologue(node, 3) | _weight(node, 6, graph, x, y))]

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if not dy:
            return
        x, pool, bias = node.inputs[:3]
        pattern = node.inputs[6:8]
        attrs = {k: node.attrs[k] for k in (*GEOMETRY, *_LAYER)}
        if grads.needs(pool):
            grads.contribute(pool, "conv_csr_dw", [x, dy, "", "", "", *pattern], attrs)
        if bias and grads.needs(bias):
            shape = self.bias_shape(len(grads.value(dy).shape))
            grads.contribute(bias, "bgrad", [dy, "", ""], {"rule": "id"}, shape=shape)
        if grads.needs(x):
            grads.contribute(x, "conv_csr_dx", [dy, pool, *pattern], attrs)

    def bias_shape(self, rank: int) -> tuple[int, ...] | None:
        """Shape in which the bias meets an output of `rank` dimensions; None: its own."""
        return (-1, *[1] * (rank - 2))

    def flops(self, node: Node, graph: Graph) -> int:
        return _flops(node, graph.values[node.outputs[0]])


class LinearCsr(ConvCsr):
    """y = x @ sparse w^T + bias over the last dimension."""

    def bias_shape(self, rank: int) -> tuple[int, ...] | None:
        return None


class ConvCsrInputGrad(Op):
    """dx (+)= gradient of the input. Inputs: dy, pool, columns, pointers."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dy, dx = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
        args = {"dy": dy.name, "w": node.inputs[1], "dx": dx.name, "acc": node.attrs["acc"]}
        return [Call("conv_csr_dx", args | _weight(node, 2, graph, dx, dy))]

    def flops(self, node: Node, graph: Graph) -> int:
        return _flops(node, graph.values[node.inputs[0]])


class ConvCsrWeightGrad(Op):
    """Gradient at the nonzeros, added to the pool's accumulator; reads x through the prologue.

    Inputs: x, dy, stat, gamma, beta, columns, pointers.
    """

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, dy = (graph.values[n] for n in node.inputs[:2])
        args: dict[str, Any] = {"x": x.name, "dy": dy.name, "dwt": node.outputs[0], "ctl": "ctl"}
        args |= {"key": key_of(node.name)}
        return [Call("conv_csr_dw", args | prologue(node, 2) | _weight(node, 5, graph, x, dy))]

    def flops(self, node: Node, graph: Graph) -> int:
        return _flops(node, graph.values[node.inputs[1]])


def _table(node: Node, graph: Graph, first: int, indices: str) -> dict:
    """Operands of the kernels of embeddings; columns and pointers are inputs `first` and next."""
    columns, pointers = node.inputs[first : first + 2]
    rows, channels = node.attrs["shape"]
    sizes = {"rows": rows, "channels": channels, "taps": 1, "chunk": node.attrs["chunk"]}
    sizes |= {"count": graph.values[indices].size, "slots": graph.values[columns].size}
    return {"columns": columns, "pointers": pointers, "idx": indices, **sizes}


class GatherCsr(Op):
    """y = rows of a sparse table at the indices."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        args = {"w": node.inputs[0], "y": node.outputs[0]}
        return [Call("gather_csr", args | _table(node, graph, 1, node.inputs[3]))]

    def vjp(self, grads, node: Node) -> None:
        dy, (pool, *pattern, indices) = grads.of(node.outputs[0]), node.inputs
        if dy and grads.needs(pool):
            attrs = {k: node.attrs[k] for k in _LAYER}
            grads.contribute(pool, "gather_csr_bwd", [dy, indices, *pattern], attrs)

    def flops(self, node: Node, graph: Graph) -> int:
        return 0


class GatherCsrBackward(Op):
    """Gradient at the nonzeros, added to the pool's accumulator.

    Inputs: dy, indices, columns, pointers.
    """

    rounds = True

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        args: dict[str, Any] = {"dy": node.inputs[0], "dwt": node.outputs[0], "ctl": "ctl"}
        args |= {"key": key_of(node.name)}
        return [Call("gather_csr_bwd", args | _table(node, graph, 2, node.inputs[1]))]

    def flops(self, node: Node, graph: Graph) -> int:
        rows = node.attrs["shape"][0]
        return graph.values[node.inputs[1]].size * node.attrs["nonzeros"] // rows


register(ConvCsr("conv_csr"))
register(LinearCsr("linear_csr"))
register(ConvCsrInputGrad("conv_csr_dx"))
register(ConvCsrWeightGrad("conv_csr_dw"))
register(GatherCsr("gather_csr"))
register(GatherCsrBackward("gather_csr_bwd"))
