"""The part of a trained graph that predicts, without a loss computed by the model itself.

A loss that is an output of the model, such as a cross-entropy node that reads labels, is only
needed in training. If only such a loss reads certain inputs, these inputs and the loss are left out
of the trained file. If the loss is the only output, the predictions that it compares with the
labels become the output.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .metadata import METADATA, text_of
from .onnx_fields import (
    ATTRIBUTES,
    GRAPH,
    INITIALIZERS,
    INPUTS,
    NAME,
    NODES,
    OP_TYPE,
    OUTPUTS,
    READS,
    SUBGRAPH,
    SUBGRAPHS,
    TENSOR_NAME,
    TYPE,
    VALUES,
    WRITES,
)
from .protobuf import Message, entry

LOSSES = "edgetrain.losses"  # metadata: outputs that are losses, a JSON list
_SIZES = ("Shape", "Size")  # their results do not depend on the values of the data
# Ops whose output type is not that of the first operand -> index of the operand.
_TYPED_BY = {"Where": 1, "DequantizeLinear": 1, "CastLike": 1, "OneHot": 2}
_CAST, _TO = "Cast", 3  # `i` of an AttributeProto
# ValueInfoProto.type.tensor_type: elem_type, and shape.dim with dim_value or dim_param.
_KIND, _TENSOR, _ELEMENTS, _SHAPE, _DIMS, _DIM, _DIM_NAME = 2, 1, 1, 2, 1, 1, 2


class LeftOut(NamedTuple):
    """Inputs and outputs left out of a trained file, and the outputs it has instead."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.inputs:
            return ""
        gone = f"{_listed('input', self.inputs)} and {_listed('output', self.outputs)}"
        result = f"{gone} are left out: only training needs them"
        return f"{result}. Instead: {_listed('output', self.instead)}." if self.instead else result


def _listed(noun: str, names: Sequence[str]) -> str:
    return f"{noun}{'s' * (len(names) > 1)} {', '.join(names)}"


Shape = tuple[int | str, ...]  # a text is the name of a free dimension


def with_losses(onnx: bytes, outputs: Iterable[str], shapes: Mapping[str, Shape]) -> bytes:
    """The stored model with metadata that names the outputs that are losses.

    Args:
      shapes: of values that become outputs when the losses are left out.
    """
    names = [*dict.fromkeys(outputs)]
    if not names and LOSSES.encode() not in onnx:
        return onnx
    model = Message(onnx)
    model.keep(METADATA, lambda item: item.text(1) != LOSSES)
    if names:
        text = entry(LOSSES, json.dumps(names, ensure_ascii=False))
        model.replace(METADATA, [*model.messages(METADATA), text])
        graph = model.messages(GRAPH)[-1]
        graph.keep(VALUES, lambda value: value.text(NAME) not in shapes)
        made = [_typed(graph, name, shape) for name, shape in shapes.items()]
        graph.replace(VALUES, [*graph.messages(VALUES), *made])
    return b"".join(bytes(part) for part in model.chunks())


def losses_of(model: Message) -> tuple[str, ...]:
    """Outputs that are losses, as recorded by `with_losses`.

    Raises:
      ValueError: the entry is damaged.
    """
    result = json.loads(text_of(model, LOSSES) or "[]")
    if not isinstance(result, list) or not all(isinstance(name, str) for name in result):
        raise ValueError(f"metadata {LOSSES}: expected a list of names")
    return tuple(result)


def leave_out_losses(graph: Message, losses: Container[str], weights: Container[str]) -> LeftOut:
    """Remove outputs that are losses if only they read some input; unused nodes stay.

    Args:
      losses: names of outputs.
      weights: names of trained tensors.
    """
    result = _left_out(_Flow(graph, weights), losses)
    if not result.inputs:
        return result
    made = [_value(graph, name) for name in result.instead]
    kept = [value for value in graph.messages(OUTPUTS) if value.text(NAME) not in result.outputs]
    graph.replace(OUTPUTS, [*kept, *made])
    graph.keep(VALUES, lambda value: value.text(NAME) not in result.instead)
    graph.keep(INPUTS, lambda value: value.text(NAME) not in result.inputs)
    return result


class _Flow:
    """The dependencies in a graph.

    Attributes:
      inputs: names of data, in order; outputs: names.
      nodes: (reads, writes, op) of each node, in order.
    """

    def __init__(self, graph: Message, weights: Container[str]) -> None:
        stored = {tensor.text(TENSOR_NAME) for tensor in graph.messages(INITIALIZERS)}
        names = [value.text(NAME) for value in graph.messages(INPUTS)]
        self.inputs = [name for name in names if name not in stored]
        self.outputs = [value.text(NAME) for value in graph.messages(OUTPUTS)]
        self.nodes = [
            (
                {name for name in (*node.texts(READS), *outer_names(node)) if name},
                {name for name in node.texts(WRITES) if name},
                node.text(OP_TYPE),
            )
            for node in graph.messages(NODES)
        ]
        read = {name for reads, _, _ in self.nodes for name in reads}
        made = {name for _, writes, _ in self.nodes for name in writes}
        self.weights = {name for name in read | made if name in weights}

    def above(self, names: Iterable[str], stop: Container[str] = ()) -> set[str]:
        """The values that these are computed from, including themselves; stops at `stop`."""
        result = {*names}
        for reads, writes, _ in reversed(self.nodes):
            if any(name in result and name not in stop for name in writes):
                result |= reads
        return result

    def below(self, names: Iterable[str], values_only: bool = False) -> set[str]:
        """The values computed from these, including themselves.

        Args:
          values_only: ignore dependence on sizes.
        """
        result = {*names}
        for reads, writes, op in self.nodes:
            if result & reads and not (values_only and op in _SIZES):
                result |= writes
        return result


def _left_out(flow: _Flow, losses: Container[str]) -> LeftOut:
    lost = tuple(name for name in flow.outputs if name in losses)
    others = [name for name in flow.outputs if name not in losses]
    read = flow.above(lost)
    if others:
        needed = flow.above(others)
        spare = tuple(name for name in flow.inputs if name in read and name not in needed)
        return LeftOut(spare, lost) if spare else LeftOut()
    labels = tuple(
        name
        for name in flow.inputs
        if name in read and not any(flow.weights & r for r in _readers(flow, flow.below([name])))
    )
    data = [name for name in flow.inputs if name not in labels]
    if not labels or not data:
        return LeftOut()
    instead = _compared(flow, read, flow.below(labels), data)
    return LeftOut(labels, lost, instead) if instead else LeftOut()


def _readers(flow: _Flow, names: set[str]) -> Iterator[set[str]]:
    """For each node that reads one of the values, all that it reads."""
    return (reads for reads, _, _ in flow.nodes if reads & names)


def _compared(flow: _Flow, read: set[str], labelled: set[str], data: list[str]) -> tuple[str, ...]:
    """Predictions that nodes of a loss read next to labels, without those computed from others.

    Args:
      read: everything the loss depends on; labelled: everything that depends on labels.
    """
    predicted = flow.below(data, values_only=True) & flow.below(flow.weights)
    result: dict[str, None] = {}
    for reads, writes, _ in flow.nodes:
        if writes & labelled & read:
            result |= dict.fromkeys(sorted((reads & predicted) - labelled - {*flow.inputs}))
    source = {*data, *flow.weights}
    return tuple(
        name
        for name in result
        if source & flow.above([name], [item for item in result if item != name])
    )


def _value(graph: Message, name: str) -> Message:
    """The declaration of a value, to be used as an output."""
    known = next((v for v in graph.messages(VALUES) if v.text(NAME) == name), None)
    return _typed(graph, name, None) if known is None or not known.has(_KIND) else known


def _typed(graph: Message, name: str, shape: Shape | None) -> Message:
    """A declaration with name and type; shape None: unknown."""
    tensor, kind, made = Message(), Message(), Message()
    tensor.set(_ELEMENTS, _elements(graph, name))
    if shape is not None:
        dims = []
        for size in shape:
            dims.append(Message())
            if isinstance(size, str):
                dims[-1].set(_DIM_NAME, size.encode())
            else:
                dims[-1].set(_DIM, size)
        whole = Message()
        whole.replace(_DIMS, dims)
        tensor.set(_SHAPE, whole)
    kind.set(_TENSOR, tensor)
    made.set(NAME, name.encode())
    made.set(_KIND, kind)
    return made


def _elements(graph: Message, name: str) -> int:
    """The element type of a value, traced back through its nodes to a tensor or an input."""
    for node in reversed(graph.messages(NODES)):
        if name not in node.texts(WRITES):
            continue
        op = node.text(OP_TYPE)
        if op == _CAST:
            to = [a for a in node.messages(ATTRIBUTES) if a.text(NAME) == "to"]
            return to[-1].integer(_TO, 1) if to else 1
        reads = node.texts(READS)
        place = _TYPED_BY.get(op, 0)
        if place < len(reads):
            name = reads[place]
    tensor = next((t for t in graph.messages(INITIALIZERS) if t.text(TENSOR_NAME) == name), None)
    if tensor is not None:
        return tensor.integer(TYPE)
    for value in (*graph.messages(INPUTS), *graph.messages(VALUES)):
        if value.text(NAME) == name and value.has(_KIND):
            for found in value.messages(_KIND)[-1].messages(_TENSOR):
                return found.integer(_ELEMENTS, 1)
    return 1  # float32


def outer_names(node: Message) -> Iterator[str]:
    """Names that a node's subgraphs may use from outside."""
    for attribute in node.messages(ATTRIBUTES):
        for graph in (*attribute.messages(SUBGRAPH), *attribute.messages(SUBGRAPHS)):
            for inner in graph.messages(NODES):
                yield from inner.texts(READS)
                yield from outer_names(inner)
