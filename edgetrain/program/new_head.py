"""The stored model with a last layer of another size: see compiler/model/new_head.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import UsageError
from .metadata import LABELS, METADATA
from .onnx_fields import (
    DIMS,
    GRAPH,
    INITIALIZERS,
    INPUTS,
    NAME,
    NODES,
    OUTPUTS,
    RAW,
    READS,
    TENSOR_NAME,
    TYPE,
    VALUES,
    WRITES,
)
from .protobuf import Message
from .trained import sources_of, tensors_of

_INT64 = 7  # element type of a TensorProto
# Field numbers of onnx.proto: of a ValueInfoProto, a TypeProto and their contents.
_VALUE_TYPE, _TENSOR_TYPE, _SHAPE, _DIM, _DIM_VALUE = 2, 1, 2, 1, 1


@dataclass
class Changes:
    """The changes to the file.

    Attributes:
      shapes: of emptied weights, by parameter name.
      sizes: (first output of a node, index of its input) -> (name, numbers) of a new constant.
      behind: values computed from the layer or its weight; their declared shapes are removed.
      outputs: name -> axis -> its size.
    """

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sizes: dict[tuple[str, int], tuple[str, np.ndarray]] = field(default_factory=dict)
    behind: set[str] = field(default_factory=set)
    outputs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


def with_changes(onnx: bytes, changes: Changes) -> bytes:
    """The bytes of the stored model with other shapes; class names are dropped.

    Raises:
      UsageError: a weight is not a tensor of the file.
    """
    model = Message(onnx)
    graph = model.messages(GRAPH)[-1]
    sources, declared = sources_of(model), dict(changes.outputs)
    for name, tensor in tensors_of(graph):
        parameter, axes = sources.get(name, (name, None))
        shape = changes.shapes.get(parameter)
        if shape is not None:
            shape = shape if axes is None else tuple(shape[k] for k in axes)
            tensor.replace(DIMS, list(shape))
            declared[name] = dict(enumerate(shape))
    lost = changes.shapes.keys() - {sources.get(name, (name, None))[0] for name in declared}
    if lost:
        raise UsageError(
            f"new head: {sorted(lost)[0]!r} is an attribute of a node in the file, whose size "
            "cannot change. Convert the model as Gemm or MatMul."
        )
    added = [_constant(name, numbers) for name, numbers in changes.sizes.values()]
    if added:
        for node in graph.messages(NODES):
            reads, first = node.texts(READS), [*node.texts(WRITES), ""][0]
            given = [changes.sizes.get((first, index)) for index in range(len(reads))]
            told = [entry[0] if entry else name for entry, name in zip(given, reads, strict=True)]
            if told != reads:
                node.replace(READS, [name.encode() for name in told])
        graph.replace(INITIALIZERS, [*graph.messages(INITIALIZERS), *added])
    graph.keep(VALUES, lambda value: value.text(NAME) not in changes.behind)
    for number in (INPUTS, OUTPUTS, VALUES):
        for value in graph.messages(number):
            _set_dims(value, declared.get(value.text(NAME), {}))
    model.keep(METADATA, lambda item: item.text(1) != LABELS)
    return b"".join(bytes(part) for part in model.chunks())


def _constant(name: str, numbers: np.ndarray) -> Message:
    tensor = Message()
    tensor.replace(DIMS, list(numbers.shape))
    tensor.set(TYPE, _INT64)
    tensor.set(TENSOR_NAME, name.encode())
    tensor.set(RAW, numbers.astype("<i8").tobytes())
    return tensor


def _set_dims(value: Message, sizes: Mapping[int, int]) -> None:
    """Set the declared sizes of a value, where it declares dimensions."""
    for kind in value.messages(_VALUE_TYPE):
        for tensor in kind.messages(_TENSOR_TYPE):
            for shape in tensor.messages(_SHAPE):
                for axis, dim in enumerate(shape.messages(_DIM)):
                    if axis in sizes:
                        dim.clear(2)  # its name, if any
                        dim.set(_DIM_VALUE, sizes[axis])
