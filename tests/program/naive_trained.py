"""A naive twin of edgetrain/program/trained.py on the onnx package; both must agree."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from edgetrain.errors import ProgramError, RunError
from edgetrain.formats.csr import dense_state, layers_of
from edgetrain.program import Program
from edgetrain.program.atomic import write_atomically
from edgetrain.program.finite import finite_part, nonfinite

# A protobuf message may not exceed 2 GiB; more weights than this go into `<path>.data`.
INLINE_LIMIT_NBYTES = 1_500_000_000
# Metadata: name in the file -> [parameter, axes], if the file's name or layout differs.
_SOURCES = "edgetrain.sources"
_DATA_FIELDS = ("raw_data", "float_data", "double_data", "int32_data", "external_data")


def export_trained(
    program: Program,
    state: Mapping[str, np.ndarray],
    path: str | Path,
    *,
    inline_limit_nbytes: int = INLINE_LIMIT_NBYTES,
) -> Path:
    """Write the trained model as ONNX.

    Outputs that training did not need are left out, because the Program lacks their weights.

    Args:
      program: the trained Program; it contains the graph without weights.
      state: parameters and running statistics by name, in the Program's storage (sparse weights are
        written dense); anything else in it (optimizer state) is ignored.
      inline_limit_nbytes: if the weights have more bytes than this, they go into `<path>.data`.
    Returns:
      The path written.
    Raises:
      ProgramError: the Program's graph is damaged, or an array's shape differs from the graph's.
      RunError: a weight is not finite, or the file cannot be written.
    """
    path = Path(path)
    wrong = nonfinite(finite_part(_trained(program, state), program.init))
    if wrong:
        raise RunError(
            f"{path}: not written, because {wrong!r} is not finite. Export an older checkpoint, or "
            "train with a lower learning rate."
        )
    proto = _parsed(program)
    state = _by_file_name(proto, dense_state(layers_of(program.recipe), state))
    try:
        _finish(proto, state)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise ProgramError(_damaged(program, error)) from error
    _save(proto, path, inline_limit_nbytes)
    return path


def _trained(program: Program, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The part of `state` that goes into the file."""
    roles = {slot.name: slot.role for slot in program.persistent}
    return {n: a for n, a in state.items() if roles.get(n) in ("parameter", "buffer")}


def _parsed(program: Program) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(program.onnx)
    except (DecodeError, ValueError) as error:
        raise ProgramError(_damaged(program, error)) from error
    if not proto.graph.node:
        raise ProgramError(
            f"Program of {program.model_name!r}: it contains no ONNX graph. Compile it from an "
            "ONNX file."
        )
    return proto


def _damaged(program: Program, error: Exception) -> str:
    return (
        f"Program of {program.model_name!r}: its ONNX graph is damaged ({error}). Compile the "
        "model again."
    )


def _finish(proto: onnx.ModelProto, state: Mapping[str, np.ndarray]) -> None:
    """Put trained weights into the graph, for inference; damage raises any plain exception."""
    missing = _fill(proto, state)
    _set_inference(proto.graph)
    if missing:
        _drop_outputs(proto.graph, missing)
    _drop_unused(proto.graph, {*state, *_graph_inputs(proto.graph)})


def _by_file_name(proto: onnx.ModelProto, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The state under the file's names and in its layout: see importer/decode.py."""
    out = dict(state)
    kept = [entry for entry in proto.metadata_props if entry.key != _SOURCES]
    texts = [entry.value for entry in proto.metadata_props if entry.key == _SOURCES]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    try:
        for name, (source, axes) in json.loads(texts[0] if texts else "{}").items():
            if source in state:
                array = np.asarray(state[source])
                out[name] = array if axes is None else np.transpose(array, axes)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProgramError(
            f"its ONNX graph: metadata {_SOURCES} is damaged ({error}). Compile the model again."
        ) from error
    return out


def _tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Initializers, and the values of Constant nodes, by name."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield node.output[0], attribute.t


def _fill(proto: onnx.ModelProto, state: Mapping[str, np.ndarray]) -> set[str]:
    """Give every tensor of `state` its values; return names of emptied tensors missing from it."""
    missing = set()
    for name, tensor in _tensors(proto.graph):
        if name in state:
            _store(tensor, name, np.asarray(state[name]))
        elif 0 not in tensor.dims and not _has_data(tensor):
            missing.add(name)
    return missing


def _has_data(tensor: TensorProto) -> bool:
    fields = {field.name for field, _ in tensor.ListFields()}
    return bool(fields - {"name", "dims", "data_type", "doc_string", "data_location"})


def _store(tensor: TensorProto, name: str, array: np.ndarray) -> None:
    if tuple(tensor.dims) != array.shape:
        raise ProgramError(
            f"parameter {name!r}: its trained shape is {list(array.shape)}; the graph has "
            f"{list(tensor.dims)}. Use a state of this Program."
        )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    for field in _DATA_FIELDS:
        tensor.ClearField(field)  # type: ignore[arg-type]
    tensor.data_location = TensorProto.DEFAULT
    tensor.raw_data = numpy_helper.from_array(array.astype(np.float32).astype(dtype)).raw_data


def _set_inference(graph: onnx.GraphProto) -> None:
    """Batch-norm uses running statistics, dropout is off, extra outputs are removed."""
    moved: dict[str, str] = {}
    for node in graph.node:
        for k, name in enumerate(node.input):
            node.input[k] = moved.get(name, name)
        if node.op_type == "BatchNormalization":
            # A second application of the same layer reads the statistics that the first updates.
            moved.update(zip(node.output[1:3], node.input[3:5], strict=False))
            del node.output[1:]
            kept = [a for a in node.attribute if a.name != "training_mode"]
            del node.attribute[:]
            node.attribute.extend(kept)
        elif node.op_type == "Dropout":
            del node.input[2:]
    gone = set(moved) - {""}
    for field in (graph.output, graph.value_info):
        kept_values = [value for value in field if value.name not in gone]
        del field[:]
        field.extend(kept_values)


def _drop_outputs(graph: onnx.GraphProto, missing: set[str]) -> None:
    """Remove the outputs that depend on `missing`."""
    lost = set(missing)
    for node in graph.node:
        if lost.intersection(node.input):
            lost.update(name for name in node.output if name)
    kept = [output for output in graph.output if output.name not in lost]
    if not kept:
        raise ProgramError(
            f"parameter {sorted(missing)[0]!r}: it is missing in the state. Use a state of "
            "this Program."
        )
    del graph.output[:]
    graph.output.extend(kept)


def _drop_unused(graph: onnx.GraphProto, keep: set[str]) -> None:
    """Remove nodes that no output needs, and constants that nothing reads."""
    wanted, nodes = {output.name for output in graph.output}, []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            nodes.append(node)
            wanted.update(node.input)
            wanted.update(_outer_names(node))
    kept = [t for t in graph.initializer if t.name in wanted or t.name in keep and _has_data(t)]
    nodes.reverse()
    for field, items in ((graph.node, nodes), (graph.initializer, kept)):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        del field[:]
        field.extend(copies)


def _outer_names(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node's subgraphs may read from outside."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from inner.input
                yield from _outer_names(inner)


def _graph_inputs(graph: onnx.GraphProto) -> set[str]:
    return {value.name for value in graph.input}


def _save(proto: onnx.ModelProto, path: Path, limit: int) -> None:
    """Write the file of weights first, so a model never names one that is missing."""
    if proto.ByteSize() > limit:
        data = path.with_name(f"{path.name}.data")
        big = [t for t in proto.graph.initializer if len(t.raw_data) >= 1024]
        chunks = [tensor.raw_data for tensor in big]
        write_atomically(data, lambda file: file.writelines(chunks))
        offset = 0
        for tensor, chunk in zip(big, chunks, strict=True):
            _point_to(tensor, data.name, offset, len(chunk))
            offset += len(chunk)
    text = proto.SerializeToString()
    write_atomically(path, lambda file: file.writelines([text]))


def _point_to(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
