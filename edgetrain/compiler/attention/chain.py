"""The nodes of an attention: a product, operations on scores, a softmax, another product."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir import Node
from .walks import Walker


@dataclass(frozen=True)
class Chain:
    """Nodes between two products.

    Attributes:
      scores, product: the two products.
      steps: nodes from scores to the softmax, in order.
      guard: whether NaN after the softmax becomes zero.
      shape: shape of the softmax.
      gone: nodes to be replaced.
    """

    scores: Node
    product: Node
    steps: tuple[Node, ...]
    guard: bool
    dropout: Node | None
    shape: tuple[int, ...]
    gone: tuple[str, ...]


def chain_of(walker: Walker, softmax: Node) -> Chain | None:
    """The nodes around a softmax; None if they do not form an attention."""
    values = walker.graph.values
    x, y = softmax.inputs[0], softmax.outputs[0]
    shape = values[x].shape
    if softmax.attrs["axis"] != len(shape) - 1 or len(shape) < 2:
        return None
    steps: list[Node] = []
    name = x
    while (node := walker.makers.get(name)) is not None and walker.uses[name] == 1:
        steps.append(node)
        if node.op == "matmul":
            break
        inside = scores_of(walker, node)
        if inside is None:
            return None
        name = inside
    if not steps or steps[-1].op != "matmul":
        return None
    behind: list[Node] = []
    dropout = None
    y, guards = _guarded(walker, y, steps[-2::-1])
    while (node := walker.only_reader(y)) is not None:
        behind.append(node)
        if node.op == "matmul" or node.op not in ("view", "dropout"):
            break
        if node.op == "dropout" and dropout is not None:
            return None
        dropout = node if node.op == "dropout" else dropout
        y = node.outputs[0]
    if node is None or node.op != "matmul" or node.inputs[0] != y or node.inputs[1] == y:
        return None
    gone = tuple(n.name for n in (*steps, softmax, *guards, *behind))
    return Chain(steps[-1], node, tuple(steps[-2::-1]), bool(guards), dropout, shape, gone)


def _guarded(walker: Walker, y: str, steps: Sequence[Node]) -> tuple[str, list[Node]]:
    """(weights, nodes that compute them from a softmax's output y): queries without keys get
    zeros, either because NaN is replaced or because masks are applied again.
    """
    readers = walker.readers[y]
    ends = [node for node in readers if node.op == "where"]
    same = [node for node in readers if node.op == "equal" and node.inputs == (y, y)]
    if len(ends) == len(same) == 1 and len(readers) == 2 and walker.uses[y] == 3:
        turned = walker.only_reader(same[0].outputs[0])
        end = ends[0]
        fits = turned is not None and turned.op == "truth" and turned.attrs["want"] == 0
        zeroed = end.inputs[2] == y and walker.number(end.inputs[1]) == 0
        once = turned is not None and walker.only_reader(turned.outputs[0]) is end
        if turned is not None and fits and zeroed and once:
            return end.outputs[0], [*same, turned, end]
    known = {node.inputs[0]: node for node in steps if node.op == "where"}
    last, guards = y, []
    while (node := walker.only_reader(last)) is not None and node.op == "where":
        mask, kept, zero = node.inputs
        before = known.pop(mask, None)
        if before is None or kept != last or walker.number(zero) != 0:
            return y, []
        if walker.number(before.inputs[2]) != -np.inf:
            return y, []
        guards.append(node)
        last = node.outputs[0]
    return (last, guards) if guards and not known else (y, [])


def scores_of(walker: Walker, node: Node) -> str | None:
    """The input with the scores, for a node between product and softmax; None if there is none."""
    values = walker.graph.values
    if node.op == "view":
        same = values[node.inputs[0]].shape[-1:] == values[node.outputs[0]].shape[-1:]
        return node.inputs[0] if same else None
    factored = walker.factor(node)
    if factored:
        return factored[0]
    if node.op not in ("add", "where"):
        return None
    shape = values[node.outputs[0]].shape
    inputs = node.inputs[-2:]
    full = [name for name in inputs if values[name].shape == shape and _computed(walker, name)]
    return full[0] if len(full) == 1 else None


def _computed(walker: Walker, name: str) -> bool:
    """Whether a value comes from a product through nodes allowed before a softmax."""
    while (node := walker.makers.get(name)) is not None:
        if node.op == "matmul":
            return True
        if node.op == "view":
            name = node.inputs[0]
        elif node.op in ("mul", "div") and (result := walker.factor(node)):
            name = result[0]
        elif node.op in ("add", "where"):
            values = walker.graph.values
            shape = values[node.outputs[0]].shape
            return any(values[n].shape == shape and _computed(walker, n) for n in node.inputs[-2:])
        else:
            return False
    return False
