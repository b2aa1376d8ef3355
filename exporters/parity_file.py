"""Runs the user's own file in an ONNX runtime that shares no code with edgetrain's importer.

The runtime is onnxruntime without optimisations, or onnx.reference if onnxruntime is missing, can't
run the file, or saturates integer products (see `_saturates`). As in edgetrain's evaluation,
batch-norms use running statistics and dropout is off.
"""

import functools
import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from edgetrain.errors import DataError
from edgetrain.formats import FP16, FP32, Format
from edgetrain.formats.blocks import INT8
from edgetrain.ops.model import Model
from edgetrain.program.trained import with_tensors
from edgetrain.units.statistics import is_tracked

Arrays = dict[str, np.ndarray]
Random = np.random.Generator
# Protobuf messages are limited to 2 GiB; above this, a changed file gets external data.
_INLINE_NBYTES = 1_500_000_000
_NARROW = {TensorProto.FLOAT16: FP16, TensorProto.BFLOAT16: FP16}
_UNIT = 2.0**-23  # relative size of a unit in the last place of float32
_HUGE = 1e30  # numbers of masks, which only hide: they are not changed


class OwnFile:
    """An ONNX file, run by another runtime.

    Attributes:
      used: name and version of the runtime; "" until one has run the file.
      problems: why runtimes did not run it, one line each.
      precision: the coarsest float format in the file, which limits how exact results can be.
    """

    def __init__(self, model: Model) -> None:
        """Args: model: as loaded; weights that its file only describes are taken from it."""
        self.used: str = ""
        self.problems: list[str] = []
        self._path = Path(model.source)
        if model.fresh:  # layers that are not in the file
            stored = with_tensors(model.weightless, model.initializers)
            self._proto = onnx.load_from_string(stored)
        else:
            self._proto = onnx.load(model.source, load_external_data=False)
        made = _described(self._proto, model)
        names = _sources(model)
        self._weights = {names.get(n, n) for n in (*model.parameters, *model.buffers)}
        changed = [_set_inference(self._proto), _store(self._proto, made)]
        self._is_changed = any(changed) or bool(model.fresh)
        self.precision: Format = max(
            _formats(self._proto), key=lambda format: format is not FP32 and max(format.tolerances)
        )
        known = {tensor.name for tensor in self._proto.graph.initializer}
        self.inputs = {
            value.name: value.type.tensor_type.elem_type
            for value in self._proto.graph.input
            if value.name not in known
        }
        self.outputs = [value.name for value in self._proto.graph.output]

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Every output by name; empty if no runtime can run the file (see `problems`).

        Raises:
          DataError: an input of the file is missing.
        """
        feeds = {name: _typed(inputs, name, kind) for name, kind in self.inputs.items()}
        for name, runtime in _RUNTIMES.items():
            if self.used and self.used.split()[0] != name:
                continue
            try:
                with tempfile.TemporaryDirectory() as folder:
                    version, result = runtime(self._source(Path(folder)), feeds)
                self.used = f"{name} {version}"
                return dict(zip(self.outputs, result, strict=True))
            except ModuleNotFoundError as error:
                self.problems.append(f"{error.name} is not installed")
            except Exception as error:  # any error of another runtime
                lines = str(error).strip().splitlines() or [type(error).__name__]
                self.problems.append(f"{name} can't run the file: {lines[0][:200]}")
        return {}

    def moved(self, inputs: Mapping[str, np.ndarray], true: Arrays, draw: Random) -> Arrays:
        """The outputs after changing every weight and float input by a unit in the last place.

        Constants are changed too, unless that changes shapes or no runtime can then run the file
        (scales of a Resize, for example). Empty if changing only the weights has the same effect.

        Args:
          inputs, true: arguments of `run`, and its result.
        """
        inputs = {name: _moved(np.asarray(a), draw) for name, a in inputs.items()}
        constants = {tensor.name for tensor in self._proto.graph.initializer}
        problems, self.problems = self.problems, []
        try:
            for names in (constants, self._weights):
                result = self._with_moved(names, inputs, draw)
                if result and all(result[name].shape == a.shape for name, a in true.items()):
                    return result
            return {}
        finally:
            self.problems = problems

    def _with_moved(self, names: Collection[str], inputs: Arrays, draw: Random) -> Arrays:
        kept, changed = self._proto, onnx.ModelProto()
        changed.CopyFrom(kept)
        onnx.load_external_data_for_model(changed, str(self._path.parent))
        for tensor in changed.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT and tensor.name in names:
                array = _moved(numpy_helper.to_array(tensor), draw)
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        was, self._proto, self._is_changed = self._is_changed, changed, True
        try:
            return self.run(inputs)
        finally:
            self._proto, self._is_changed = kept, was

    def _source(self, folder: Path) -> str | bytes:
        """Path of the file, or the bytes of its changed version."""
        if not self._is_changed:
            return str(self._path)
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        onnx.load_external_data_for_model(proto, str(self._path.parent))
        if proto.ByteSize() <= _INLINE_NBYTES:
            return proto.SerializeToString()
        onnx.save(proto, str(folder / "changed.onnx"), save_as_external_data=True)
        return str(folder / "changed.onnx")


def _moved(array: np.ndarray, draw: Random) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    known = np.abs(array) < _HUGE
    moves = 1 + draw.choice([-1, 0, 1], array.shape) * _UNIT
    return np.where(known, np.where(known, array, 0) * moves, array).astype(array.dtype)


def _typed(inputs: Mapping[str, np.ndarray], name: str, kind: int) -> np.ndarray:
    if name not in inputs:
        raise DataError(f"input {name!r} is missing; found {', '.join(inputs)}.")
    return np.asarray(inputs[name]).astype(helper.tensor_dtype_to_np_dtype(kind))


def _onnxruntime(source: str | bytes, feeds: Arrays) -> tuple[str, list[np.ndarray]]:
    import onnxruntime

    proto = onnx.load(source, load_external_data=False) if isinstance(source, str) else None
    proto = proto or onnx.load_from_string(source)
    graphs = list(_graphs(proto))
    ops = {node.op_type for graph in graphs for node in graph.node}
    kinds = {tensor.data_type for graph in graphs for tensor in graph.initializer}
    if "DynamicQuantizeLinear" in ops:
        kinds.add(TensorProto.UINT8)
    if kinds >= {TensorProto.UINT8, TensorProto.INT8} and ops & _PRODUCTS and _saturates():
        raise ValueError("its sums of 8-bit products saturate at 16 bits on this processor")
    return onnxruntime.__version__, _in_session(source, feeds)


def _in_session(source: str | bytes, feeds: Arrays) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@functools.cache
def _saturates() -> bool:
    """Whether onnxruntime adds two products of unsigned and signed 8-bit integers in 16 bits.

    It does on x86 without VNNI instructions: "When and why do I need to try U8U8?",
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html.
    """
    kinds = {"a": TensorProto.UINT8, "b": TensorProto.INT8}
    shapes, size = {"a": [1, 64], "b": [64, 16]}, 64 * 255 * 127
    inputs = [helper.make_tensor_value_info(n, kinds[n], shapes[n]) for n in kinds]
    output = helper.make_tensor_value_info("y", TensorProto.INT32, [1, 16])
    nodes = [helper.make_node("MatMulInteger", ["a", "b"], ["y"])]
    graph = helper.make_graph(nodes, "products", inputs, [output])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    feeds = {"a": np.full(shapes["a"], 255, np.uint8), "b": np.full(shapes["b"], 127, np.int8)}
    return bool((_in_session(proto.SerializeToString(), feeds)[0] != size).any())


_PRODUCTS = {"MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"}


def _reference(source: str | bytes, feeds: Arrays) -> tuple[str, list[np.ndarray]]:
    from edgetrain.exporters import onnx_reference

    proto = onnx.load(source) if isinstance(source, str) else onnx.load_from_string(source)
    if any(_pads_by_itself(node) for graph in _graphs(proto) for node in graph.node):
        raise ValueError("its MaxPool does not pad as auto_pad says")
    return onnx.__version__, onnx_reference.run(proto, feeds)


def _pads_by_itself(node: onnx.NodeProto) -> bool:
    modes = [a.s for a in node.attribute if a.name == "auto_pad"]
    return node.op_type == "MaxPool" and any(mode.startswith(b"SAME") for mode in modes)


_RUNTIMES: dict[str, Callable[[str | bytes, Arrays], tuple[str, list[np.ndarray]]]] = {
    "onnxruntime": _onnxruntime,
    "onnx.reference": _reference,
}


def _graphs(proto: onnx.ModelProto) -> Iterator[Any]:
    """Everything that contains nodes: the graph, its branches, local functions."""
    waiting: list[Any] = [proto.graph, *proto.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for attribute in (a for node in graph.node for a in node.attribute):
            if attribute.type == AttributeProto.GRAPH:
                waiting.append(attribute.g)


def _set_inference(proto: onnx.ModelProto) -> bool:
    """Put batch-norms and dropout in inference mode; returns whether anything changed."""
    moved: dict[str, str] = {}
    untracked: set[str] = set()
    changed = False
    for graph in _graphs(proto):
        for node in graph.node:
            if node.op_type == "BatchNormalization" and node.domain in ("", "ai.onnx"):
                changed |= _set_norm(node, moved, untracked)
            elif node.op_type == "Dropout" and len(node.input) > 2:
                del node.input[2:]
                changed = True
    for graph in _graphs(proto) if moved else ():
        for node in graph.node:
            node.input[:] = [_source_of(name, moved) for name in node.input]
    kept = [value for value in proto.graph.output if value.name not in moved]
    if len(kept) < len(proto.graph.output):
        del proto.graph.output[:]
        proto.graph.output.extend(kept)
    return changed


def _set_norm(node: onnx.NodeProto, moved: dict[str, str], untracked: set[str]) -> bool:
    """Put a batch-norm in inference mode; returns whether it changed.

    Args:
      moved: output statistics -> input statistics, extended here.
      untracked: means that no batch-norm tracks, extended here.
    """
    kept = [a for a in node.attribute if a.name != "training_mode"]
    if not is_tracked(node.input[3]) or node.input[3] in untracked:
        untracked.update(node.output[1:2])  # another one may start from this one's output
        return False  # it always uses batch statistics
    if len(kept) == len(node.attribute) and len(node.output) < 2:
        return False
    moved.update((o, i) for o, i in zip(node.output[1:3], node.input[3:5], strict=False) if o)
    del node.output[1:], node.attribute[:]
    node.attribute.extend(kept)
    return True


def _source_of(name: str, moved: Mapping[str, str]) -> str:
    while name in moved:
        name = moved[name]
    return name


def _sources(model: Model) -> dict[str, str]:
    """Name of a weight -> name in the file, if they differ."""
    stored = onnx.ModelProto.FromString(model.weightless)
    text = next((m.value for m in stored.metadata_props if m.key == "edgetrain.sources"), "{}")
    return {name: source for name, (source, _) in json.loads(text).items()}


def _described(proto: onnx.ModelProto, model: Model) -> Arrays:
    """Weights that nodes only describe, by name in the file: see importer/initialise.py."""
    names = _sources(model)
    weights = {*model.parameters, *model.buffers}
    result = {
        out: names.get(out, out)
        for node in proto.graph.node
        if node.op_type == "ConstantOfShape"
        for out in node.output
    }
    return {out: model.initializers[name] for out, name in result.items() if name in weights}


def _store(proto: onnx.ModelProto, made: Mapping[str, np.ndarray]) -> bool:
    """Replace nodes that describe a weight by the weight; returns whether there were any."""
    nodes = [node for node in proto.graph.node if not set(node.output) & set(made)]
    if len(nodes) == len(proto.graph.node):
        return False
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in made.items())
    return True


def _formats(proto: onnx.ModelProto) -> Iterator[Format]:
    """Formats of all tensors whose element type is in the file."""
    yield FP32
    for graph in _graphs(proto):
        if isinstance(graph, onnx.GraphProto):
            values = (*graph.input, *graph.output, *graph.value_info)
            kinds = [value.type.tensor_type.elem_type for value in values]
            yield from (_NARROW[k] for k in kinds if k in _NARROW)
            yield from (_NARROW[t.data_type] for t in graph.initializer if t.data_type in _NARROW)
        for attribute in (a for node in graph.node for a in node.attribute):
            kind = attribute.t.data_type if attribute.HasField("t") else attribute.i
            if attribute.name in ("to", "value", "dtype") and kind in _NARROW:
                yield _NARROW[kind]
        if any(node.op_type == "DynamicQuantizeLinear" for node in graph.node):
            yield INT8  # edgetrain computes with floats here: docs/quantised.md
