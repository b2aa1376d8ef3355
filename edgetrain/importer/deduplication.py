"""Separates initializers that an exporter merged because they were equal.

For inference, equal tensors can be merged; in training, the scales of two norms differ, and a
running mean is not a bias. Running statistics get tensors of their own in every file. For weights,
only torch's exporters say what they merged: the older one leaves an Identity per merged name, the
newer one the torch calls of nodes. Tensors tied in the module have one name in both, and stay tied.
"""

import re
from collections import Counter
from pathlib import Path

import onnx
from onnx import TensorProto

from ..errors import ModelError
from ..ops.onnx_ops import OnnxNode, onnx_op
from .external import is_here, to_array
from .origin import Origin, claim, is_anonymous, origin_of

MAX_NBYTES = 2**27  # for all copies together, except data left in the file

_IDENTITY = re.compile(r"^Identity_\d+$")
_FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}


def undo_deduplication(proto: onnx.ModelProto, path: Path) -> None:
    """Give each parameter of the module an initializer of its own; changes `proto`.

    Args:
      path: the model's file.
    Raises:
      ModelError: the copies are too large.
    """
    graph = _Copies(proto.graph)
    if proto.producer_name == "pytorch":
        _identities(proto.graph, graph)
        origin = origin_of(proto)
        if origin.arguments:
            _calls(proto.graph, graph, origin, path)
    _statistics(proto.graph, graph)
    graph.finish()


class _Copies:
    """Initializers by name, and new ones."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self.known = {t.name: t for t in graph.initializer if t.data_type in _FLOATS}
        self._taken = {t.name for t in graph.initializer}
        self._taken.update(name for node in graph.node for name in node.output)
        self._taken.update(value.name for value in graph.input)
        self._added: list[tuple[str, TensorProto]] = []
        self._nbytes = 0

    def take(self, node: onnx.NodeProto) -> None:
        """Treat the tensor of a Constant node like an initializer."""
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.t.data_type in _FLOATS:
                self.known.setdefault(node.output[0], attribute.t)

    def add(self, name: str, source: str, *, own: bool = False) -> str:
        """Add a copy and return its name; `own`: the name is free, because its node is removed."""
        tensor = self.known[source]
        self._count(source, tensor.ByteSize())
        base, k = name, 1
        while name in self._taken and not own:
            k += 1
            name = f"{base}~{k}"
        self._taken.add(name)
        self.known[name] = tensor
        self._added.append((name, tensor))
        return name

    def zeros(self, name: str, size: int) -> str:
        """A vector of zeros."""
        self._count(name, 4 * size)
        self.known[name] = TensorProto(
            dims=[size], data_type=TensorProto.FLOAT, raw_data=bytes(4 * size)
        )
        return self.add(name, name)

    def _count(self, name: str, nbytes: int) -> None:
        self._nbytes += nbytes
        if self._nbytes > MAX_NBYTES:
            raise ModelError(
                f"initializer {name!r}: merged weights take more than {MAX_NBYTES} bytes. Export "
                "the model again with export_torch."
            )

    def finish(self) -> None:
        for name, tensor in self._added:
            copy = self._graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = name


def _identities(graph: onnx.GraphProto, copies: _Copies) -> None:
    """Undo the older exporter: its Identity nodes between initializers."""
    outputs = {value.name for value in graph.output}
    kept = []
    for node in graph.node:
        merged = node.op_type == "Identity" and _IDENTITY.match(node.name)
        merged = merged and not node.metadata_props  # of a newer exporter
        if merged and node.input[0] in copies.known and node.output[0] not in outputs:
            copies.add(node.output[0], node.input[0], own=True)
        else:
            kept.append(node)
    if len(kept) < len(graph.node):
        nodes = [type(node).FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(nodes)


def _calls(graph: onnx.GraphProto, copies: _Copies, origin: Origin, path: Path) -> None:
    """Undo the newer exporter: initializers whose readers had different names in torch."""
    readers: dict[str, list[tuple[onnx.NodeProto, int, tuple[str, ...]]]] = {}
    listed = {*(origin.parameters or ()), *origin.others}
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name not in copies.known:
                continue
            names = claim(node, index, origin)
            filler = _is_filler(node, index, copies.known[name], path)
            # A norm without a scale may share another's scale of ones; else they are nobody's.
            if names and not (filler and is_anonymous(name)) or names == () and filler:
                readers.setdefault(name, []).append((node, index, names))
    for name, claims in readers.items():
        keys = list(dict.fromkeys(names for _, _, names in claims))
        keys.sort(key=lambda names: (names != (name,), not names))
        labels = {
            key: copies.add(key[0] if len(key) == 1 else name, name) if k else name
            for k, key in enumerate(keys)
            if key or name in listed
        }
        for node, index, key in claims:
            node.input[index] = labels.get(key, name)
    for node in graph.node:
        _give_bias(node, copies, origin)


def _statistics(graph: onnx.GraphProto, copies: _Copies) -> None:
    """Separate running statistics from each other and from weights, as tf2onnx merges them.

    Norms that share all their tensors are one layer used more than once.
    """
    norms = []
    for node in graph.node:
        running = onnx_op(node.op_type).buffers
        if running and len(node.input) > max(running):
            norms.append((node, running))
    if not norms:
        return
    for node in graph.node:
        if node.op_type == "Constant":
            copies.take(node)
    layers: dict[str, dict[tuple, list[tuple[onnx.NodeProto, int]]]] = {}
    for node, running in norms:
        for index in running:
            key = (index, *node.input[1:])
            places = layers.setdefault(node.input[index], {}).setdefault(key, [])
            places.append((node, index))
    counts = Counter(name for node in graph.node for name in node.input)
    for name, found in layers.items():
        if name not in copies.known:
            continue
        shared = counts[name] > sum(map(len, found.values()))
        for places in list(found.values())[not shared :]:
            label = copies.add(name, name)
            for node, index in places:
                node.input[index] = label


def _give_bias(node: onnx.NodeProto, copies: _Copies, origin: Origin) -> None:
    """Restore a zero bias that the exporter removed; training changes it."""
    op = onnx_op(node.op_type)
    if op.width is None or 2 not in op.weights or len(node.input) != 2:
        return
    if node.input[1] not in copies.known:
        return
    names = claim(node, 2, origin) or ()
    gone = [n for n in names if n not in copies.known and n in (origin.parameters or ())]
    dims = copies.known[node.input[1]].dims
    if len(gone) != 1 or len(dims) < 2:
        return
    attributes = {a.name: a.i for a in node.attribute}
    size = op.width(OnnxNode(node.name, node.op_type, (), (), attributes), dims)
    if size > 0:
        node.input.append(copies.zeros(gone[0], size))


def _is_filler(node: onnx.NodeProto, index: int, tensor: TensorProto, path: Path) -> bool:
    """Whether a norm has scale 1 and shift 0, so it may have no parameters."""
    expected = onnx_op(node.op_type).neutral.get(index)
    if expected is None or (tensor.data_location == TensorProto.EXTERNAL and not is_here(tensor)):
        return False
    return bool((to_array(tensor, path) == expected).all())
