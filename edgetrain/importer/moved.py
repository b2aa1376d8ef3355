"""Integer constants that only move before a node reads them: transposed, reshaped, cast.

Their floats are made from the file's tensor and moved instead, so they are trained like others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ..ops.quantised import moves_integers

_INTEGERS = {
    getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)
}


class Moved:
    """Constants after nodes that only move their numbers.

    Attributes:
      tensors: the constants of the file.
    """

    def __init__(self, tensors: Mapping[str, TensorProto]) -> None:
        self._tensors = tensors
        self._makers: dict[str, NodeProto] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._makers

    def follow(self, node: NodeProto) -> None:
        """Note the results of a node that only moves a constant."""
        source = node.input[0] if node.input else ""
        if (source in self._tensors or source in self) and self._keeps(node, source):
            self._makers |= dict.fromkeys(node.output, node)

    def _keeps(self, node: NodeProto, source: str) -> bool:
        """Whether the node keeps the numbers as they are."""
        if moves_integers(node.op_type):
            return True
        if node.op_type not in _MOVED:
            return False
        first = self.path(source)[0].input[0] if source in self else source
        kinds: list[int] = [self._tensors[first].data_type, _given(node).get("to", 0)]
        if not _INTEGERS.issuperset(kinds):
            return False
        old, new = (helper.tensor_dtype_to_np_dtype(kind) for kind in kinds)
        return np.can_cast(old, new, "safe")

    def path(self, name: str) -> list[NodeProto]:
        """The nodes that move a constant, in their order."""
        nodes = [self._makers[name]]
        while nodes[-1].input[0] not in self._tensors:
            nodes.append(self._makers[nodes[-1].input[0]])
        return nodes[::-1]

    def axis_before(self, nodes: Sequence[NodeProto], axis: int) -> int | None:
        """The axis of the file's tensor that the nodes move to `axis`; None if unknown."""
        rank = len(self._tensors[nodes[0].input[0]].dims)
        result: int | None = axis
        for node in reversed(nodes):
            if node.op_type not in _AXES or result is None or not -rank <= result < rank:
                return None
            result = _AXES[node.op_type](node, result % rank, rank)
        return result


def of_floats(
    nodes: Sequence[NodeProto],
    source: str,
    names: Mapping[str, str],
) -> list[NodeProto]:
    """Nodes that move floats like `nodes` move integers.

    Args:
      source: the floats.
      names: output of one of the nodes -> its floats.
    """
    out = []
    known: dict[str, str] = {nodes[0].input[0]: source, **names}
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(_MOVED.get(node.op_type, _same)(node))
        copy.input[0] = known[node.input[0]]
        copy.output[:] = [names.get(name, "") for name in node.output]
        out.append(copy)
    return out


def free_names(
    nodes: Sequence[NodeProto], named: Callable[[str], str], chosen: Mapping[str, str]
) -> dict[str, str]:
    """Output of one of the nodes -> name of its floats: a chosen one, or an unused one."""
    outputs = [name for node in nodes for name in node.output if name]
    return {name: chosen.get(name) or named(f"{name}.floats") for name in outputs}


def _given(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _same(node: NodeProto) -> NodeProto:
    return node


def _identity(node: NodeProto) -> NodeProto:
    """What a cast of integers that keeps their numbers is for floats."""
    return helper.make_node("Identity", node.input, node.output, node.name)


def _same_axis(node: NodeProto, axis: int, rank: int) -> int:
    return axis


def _transposed(node: NodeProto, axis: int, rank: int) -> int | None:
    perm = _given(node).get("perm", range(rank)[::-1])
    return int(perm[axis]) if sorted(perm) == list(range(rank)) else None


# Nodes that may keep integers: how they are written for floats.
_MOVED = {"Cast": _identity}
# Moves that keep one scale per channel: (node, axis after it, rank) -> axis before it.
_AXES: Mapping[str, Callable[[NodeProto, int, int], int | None]] = {
    "Identity": _same_axis,
    "Cast": _same_axis,
    "Transpose": _transposed,
}
