"""Attention by blocks of keys, without storing the matrix of scores, and its gradients.

compiler/attention replaces products, masks and softmax by these nodes. Saved: q, k, v, masks, y and
two numbers per query; backward recomputes the scores.

attrs: z1, z2, group, m, n, d, e; strides qz .. bc of the operands; guard, keep, how, band, first,
before, after, scale, fill, low, p, key; see kernels/attention/layout.py. Inputs of `attention`: q,
k, v, mask, bias (mask and bias may be absent).
"""

from ..ir import Graph, Node
from ..kernels.attention.layout import COLUMNS, ROWS
from .registry import Call, Op, register

_SIZES = ("z1", "z2", "group", "m", "n", "d", "e")
_OUTPUT = ("z1", "z2", "m", "e", "yz", "yh", "yr")


def blocks(attrs) -> int:
    """Number of multiplied pairs of query and key blocks, for one head."""
    count = 0
    for i in range(0, attrs["m"], ROWS):
        last = min(i + ROWS, attrs["m"]) - 1
        for j in range(0, attrs["n"], COLUMNS):
            end = min(j + COLUMNS, attrs["n"]) - 1
            inside = j <= last + attrs["after"] and end + attrs["before"] >= i
            count += not attrs["band"] or inside
    return count


def _work(attrs) -> int:
    """Number of scores, over all heads."""
    pairs = attrs["m"] * attrs["n"]
    if attrs["band"]:
        pairs = min(pairs, blocks(attrs) * ROWS * COLUMNS)
    return attrs["z1"] * attrs["z2"] * pairs


def _operands(node: Node, graph: Graph) -> dict:
    q, k, v, mask, bias = node.inputs[:5]
    named = {"q": q, "k": k, "v": v, "mask": mask, "bias": bias}
    args: dict = {name: value or None for name, value in named.items()} | {"ctl": "ctl"}
    args |= {f"n{n}": graph.values[x].size if x else 1 for n, x in named.items()}
    return args | dict(node.attrs)


class Attention(Op):
    """Inputs q, k, v, mask, bias; outputs y and [largest score, 1 / sum] of each query."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        y, stat = node.outputs
        args = _operands(node, graph) | {"y": y, "stat": stat, "ny": graph.values[y].size}
        return [Call("attention", args)]

    def vjp(self, grads, node: Node) -> None:
        y, stat = node.outputs
        dy, inputs = grads.of(y), node.inputs[:3]
        if not dy or not any(map(grads.needs, inputs)):
            return
        builder, made = grads.builder, []
        for name in inputs:
            shape = grads.value(name).shape
            result = builder.value(f"{name}.grad", shape, "f32", "gradient")
            made.append(result if grads.needs(name) else "")
        rows = node.attrs["z1"] * node.attrs["z2"] * node.attrs["m"]
        delta = grads.temporary(f"{y}.delta", (rows,))
        reads = [*node.inputs, y, stat, dy]
        grads.emit("attention_bwd", reads, [*made, delta], dict(node.attrs))
        for name, gradient in zip(inputs, made, strict=True):
            if gradient:
                grads.alias(name, gradient)

    def flops(self, node: Node, graph: Graph) -> int:
        return _work(node.attrs) * (2 * (node.attrs["d"] + node.attrs["e"]) + 8)


class AttentionBackward(Op):
    """Inputs of `attention`, plus y, stat, dy; outputs dq, dk, dv (each may be absent), and the
    sum of y * dy of each query."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        y, stat, dy = node.inputs[5:]
        dq, dk, dv, delta = node.outputs
        ny = graph.values[y].size
        args = {n: node.attrs[n] for n in _OUTPUT}
        calls = [Call("attention_delta", args | {"y": y, "dy": dy, "delta": delta, "ny": ny})]
        rest = {"stat": stat, "delta": delta, "dy": dy, "ny": ny}
        args = _operands(node, graph) | rest
        if dq:
            calls.append(Call("attention_dq", args | {"dq": dq}))
        if dk or dv:
            calls.append(Call("attention_dkv", args | {"dk": dk or None, "dv": dv or None}))
        return calls

    def flops(self, node: Node, graph: Graph) -> int:
        d, e = node.attrs["d"], node.attrs["e"]
        dq, dk, dv, _ = node.outputs
        scores = 2 * (d + e) + 8
        of_keys = scores + 2 * (d * bool(dk) + e * bool(dv)) if dk or dv else 0
        return _work(node.attrs) * ((scores + 2 * d) * bool(dq) + of_keys)


register(Attention("attention"))
register(AttentionBackward("attention_bwd"))
