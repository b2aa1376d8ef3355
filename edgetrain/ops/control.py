"""If, when its condition is known at compile time: replaced by the chosen branch."""

from collections.abc import Mapping, Sequence

import numpy as np

from .onnx_ops import OnnxNode, Subgraph, onnx_rule

_CONDITIONAL = "If"


@onnx_rule(_CONDITIONAL)
def if_(context, node) -> None:
    condition = context.const(node, 0)
    if condition is None or condition.size != 1:
        raise node.fail("the condition is not constant", "a constant boolean")
    branch = _taken(node, condition)
    context.inline(branch)
    for given in _outputs(node, branch):
        context.run(given)


def _taken(node: OnnxNode, condition: np.ndarray) -> Subgraph:
    branch = node.attrs["then_branch" if condition.ravel()[0] else "else_branch"]
    if not isinstance(branch, Subgraph) or len(branch.outputs) < len(node.outputs):
        raise node.fail("a branch has too few outputs", f"{len(node.outputs)}")
    return branch


def _outputs(node: OnnxNode, branch: Subgraph) -> list[OnnxNode]:
    """Nodes that give the branch's outputs the names of the node's."""
    pairs = zip(branch.outputs, node.outputs, strict=False)
    return [OnnxNode(node.name, "Identity", (made,), (name,)) for made, name in pairs if name]


def spliced(nodes: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray]) -> list[OnnxNode]:
    """The nodes with the taken branches in place of nodes whose condition is a constant.

    Weights that only other branches use are then not trained. Names in branches must be unique.
    """
    out: list[OnnxNode] = []
    for node in nodes:
        known = arrays.get(node.inputs[0]) if node.op_type == _CONDITIONAL else None
        if known is None or known.size != 1:
            out.append(node)
            continue
        branch = _taken(node, known)
        out += spliced(branch.nodes, arrays)
        out += _outputs(node, branch)
    return out
