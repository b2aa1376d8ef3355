"""ModelProto -> Model: attributes become Python values, tensors arrays; names are kept."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from ..errors import ModelError
from ..ops.batch_axis import readings
from ..ops.control import spliced
from ..ops.model import InputSpec, Model
from ..ops.onnx_ops import OnnxNode, Subgraph
from ..units.wording import counted
from .branches import hoist
from .classical import DOMAIN, Classical
from .deduplication import undo_deduplication
from .external import check_total, restore, to_array
from .initialise import described, initialised, placeholders
from .lean import tensors_of
from .names import MOST_NAME, aliases_of, renamed
from .origin import function_of
from .parameters import Parameters, classify, frozen_names
from .quantised import Dequantized, dequantized, named_tensors
from .types import FLOATS

OPSETS = range(7, 29)
_PLAIN_OPSET = 17  # for files with only ai.onnx.ml nodes, which are rewritten
MAX_CONSTANT_NBYTES = 2**29
MAX_DEPTH = 16
_STRINGS = {"value_string", "value_strings"}


def decode(proto: onnx.ModelProto, path: Path, seed: int = 0) -> Model:
    """Convert a checked model to plain data.

    Args:
      seed: for weights that the file only describes (initialise.py).
    Raises:
      ModelError: an unsupported opset, an unreadable tensor or a dangling input.
    """
    opset = _opset(proto, path)
    hoist(proto.graph)
    _store_floats(proto.graph)
    whole = dequantized(proto, path)
    if whole.proto is proto:
        undo_deduplication(proto, path)
    stored, proto = proto, whole.proto
    graph = proto.graph
    if stored is not proto:
        check_total(tensors_of(graph))
    numbers = [t for t in graph.initializer if t.data_type != TensorProto.STRING]
    arrays = {t.name: to_array(t, path) for t in numbers}
    nodes, constants = _nodes(graph, path, 0)
    arrays |= constants
    nodes = _plain_casts(spliced(nodes, arrays), graph)
    inputs, batch_known = _inputs(graph, arrays, path)
    classical = Classical(nodes, arrays, {i.name: len(i.dims) for i in inputs})
    nodes, arrays = classical.nodes, arrays | classical.arrays
    outputs = tuple(v.name for v in graph.output)
    shaped = described(nodes, arrays)
    result = classify(proto, nodes, {**arrays, **shaped}, classical.fixed)
    weights = {*result.parameters, *result.buffers}
    made = {n: a for n, a in shaped.items() if n in weights}
    random = placeholders(made, result.parameters, arrays)
    arrays |= initialised(made, random, seed)
    nodes = [n for n in nodes if n.op_type != "ConstantOfShape" or n.outputs[0] not in made]
    _check_finite(result.parameters, arrays)
    result = _shortly(result, nodes, arrays)
    apart = {*weights, *result.copies}
    _check_constants({n: a for n, a in arrays.items() if n not in apart})
    given = {n: to for n, to in classical.attributes.items() if n in result.parameters}
    weightless = _weightless(stored, arrays, result, list(made), path, whole, given)
    names = result.names
    copies = [
        OnnxNode(f"{n}.tied", "Transpose", (of,), (n,), {"perm": list(axes)})
        for n, (of, axes) in result.copies.items()
    ]
    arrays = {
        names.get(n, n): a.astype(np.float32, copy=False) if n in weights else a
        for n, a in arrays.items()
        if n not in result.copies
    }
    return Model(
        graph.name or path.stem, tuple(renamed([*copies, *nodes], names)), arrays, inputs, outputs,
        opset, tuple(names.get(n, n) for n in result.parameters),
        tuple(names.get(n, n) for n in result.buffers), result.aliases,
        weightless, (*result.warnings, *whole.warnings, *_drawn(random)), frozen_names(proto), "",
        tuple(n for n in result.untrained if n in arrays and n not in classical.arrays),
        batch_known=batch_known,
        operands={n: op for n, op in result.operands.items() if n in arrays},
        floats=tuple(v.name for v in graph.output if _may_be_floats(v)),
    )  # fmt: skip


def _store_floats(graph: onnx.GraphProto) -> None:
    """Make numbers in attributes of constants tensors, so that they can be written when trained."""
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name in ("value_float", "value_floats"):
                    array = np.asarray(onnx.helper.get_attribute_value(attribute), np.float32)
                    tensor = onnx.numpy_helper.from_array(array)
                    attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _drawn(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [
        f"without values in the file (ConstantOfShape): {counted(len(names), 'weight')}, such as "
        f"{names[0]!r}; each starts with random numbers."
    ]


def _inputs(
    graph: onnx.GraphProto, arrays: Mapping[str, np.ndarray], path: Path
) -> tuple[tuple[InputSpec, ...], bool]:
    """The inputs with their batch axes, and whether the file allows only this reading."""
    inputs = tuple(_input(v) for v in graph.input if v.name not in arrays)
    if not inputs:
        raise ModelError(f"{path}: the model has no inputs. Export it again with inputs.")
    axes = readings(inputs, {}, {})
    if axes:
        inputs = tuple(replace(i, batch=k) for i, k in zip(inputs, axes[0], strict=True))
    return inputs, len(axes) == 1


def _check_finite(parameters: Iterable[str], arrays: Mapping[str, np.ndarray]) -> None:
    for name in parameters:
        if not _is_finite(arrays[name]):
            raise ModelError(
                f"parameter {name!r}: it contains NaN or infinity; expected finite weights. "
                "Export the model again."
            )


def _shortly(
    found: Parameters, nodes: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray]
) -> Parameters:
    """Shorten weight names above the limit."""
    read = (n for node in nodes for n in (*node.inputs, *node.outputs))
    held = {
        n
        for node in nodes
        if any(isinstance(a, Subgraph) for a in node.attrs.values())
        for n in node.inputs
    }  # branches use the names in the file
    weights = {*found.parameters, *found.buffers} - found.names.keys() - held
    short = aliases_of([n for n in arrays if n in weights], chain(arrays, read))
    kept = {k: n for k, n in found.aliases.items() if k not in short}
    kept = {k: short.get(n, n) for k, n in kept.items() if len(k.encode()) <= MOST_NAME}
    return replace(found, names={**found.names, **short}, aliases=kept)


def _may_be_floats(value: onnx.ValueInfoProto) -> bool:
    """Whether an output is declared as floats, or its type is unknown."""
    kind = value.type.tensor_type.elem_type
    return not kind or kind in FLOATS


def _is_finite(array: np.ndarray) -> bool:
    """Like numpy.isfinite(..).all(), without a boolean array as large as the input."""
    with np.errstate(invalid="ignore"):
        ends = (array.min(initial=0), array.max(initial=0))
    return bool(np.all(np.isfinite(ends)))


def _check_constants(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse constants above MAX_CONSTANT_NBYTES, because every Program stores them too."""
    total = sum(array.nbytes for array in arrays.values())
    if total > MAX_CONSTANT_NBYTES:
        largest = max(arrays, key=lambda name: arrays[name].nbytes)
        raise ModelError(
            f"constants other than weights take {total} bytes, the largest is {largest!r} of shape "
            f"{list(arrays[largest].shape)}; expected at most {MAX_CONSTANT_NBYTES}. If they are "
            "weights, export the model with torch's names."
        )


def _opset(proto: onnx.ModelProto, path: Path) -> int:
    versions: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"{path}: opsets {versions[domain]} and {entry.version} of domain "
                f"{domain or 'ai.onnx'!r}; expected only one. Export the model again."
            )
    opset = versions.get("", _PLAIN_OPSET if DOMAIN in versions else 0)
    if opset not in OPSETS:
        raise ModelError(
            f"{path}: opset {opset}; expected {OPSETS.start} to {OPSETS.stop - 1}. "
            "Export with one of these."
        )
    return opset


def _input(value: onnx.ValueInfoProto) -> InputSpec:
    kind = value.type.tensor_type
    dims: list[int | str | None] = []
    for axis, dim in enumerate(kind.shape.dim):
        size = dim.dim_value if dim.HasField("dim_value") else None
        if size is not None and (size < -1 or (axis and size < 1)):
            raise ModelError(
                f"input {value.name!r}: dimension {axis} is {size}; expected at least 1, or a "
                "name. Export the model again."
            )
        dims.append(size if size is not None and size > 0 else dim.dim_param or None)
    if kind.elem_type == TensorProto.BOOL:
        return InputSpec(value.name, tuple(dims), "bool")
    return InputSpec(value.name, tuple(dims), "float" if kind.elem_type in FLOATS else "int")


def _nodes(
    graph: onnx.GraphProto, path: Path, depth: int
) -> tuple[list[OnnxNode], dict[str, np.ndarray]]:
    """(nodes other than constants, values of the constants)."""
    nodes, arrays = [], {}
    for index, node in enumerate(graph.node):
        decoded = _node(node, index, path, depth)
        if decoded.op_type == "Constant" and not _STRINGS.intersection(decoded.attrs):
            arrays[decoded.outputs[0]] = _constant(decoded)
        else:
            nodes.append(decoded)
    return nodes, arrays


def _plain_casts(nodes: Sequence[OnnxNode], graph: onnx.GraphProto) -> list[OnnxNode]:
    """Replace CastLike by Cast to the file's element type: arrays here may have a wider one."""
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.input)}
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    return [
        replace(node, op_type="Cast", inputs=node.inputs[:1], attrs={"to": kinds[node.inputs[1]]})
        if node.op_type == "CastLike" and kinds.get(node.inputs[1])
        else node
        for node in nodes
    ]


def _node(node: onnx.NodeProto, index: int, path: Path, depth: int) -> OnnxNode:
    """A plain node; values that its branches use from the outer graph follow its inputs."""
    op_type, domain = node.op_type, node.domain
    name = node.name or f"{op_type}_{index}"
    domain = "" if domain == "ai.onnx" else domain
    op_type = f"{domain}.{op_type}" if domain else op_type
    inputs, attrs = tuple(node.input), {}
    if node.attribute:
        attrs = {a.name: _attribute(a, name, path, depth) for a in node.attribute}
        parts = [part for part in attrs.values() if isinstance(part, Subgraph)]
        inputs += tuple(dict.fromkeys(n for part in parts for n in _captured(part)))
    return OnnxNode(name, op_type, inputs, tuple(node.output), attrs, domain, function_of(node))


def _captured(part: Subgraph) -> list[str]:
    known = set(part.arrays)
    out = []
    for node in part.nodes:
        out += [name for name in node.inputs if name and name not in known]
        known.update(node.outputs)
    return [*out, *(name for name in part.outputs if name not in known)]


def _subgraph(graph: onnx.GraphProto, node: str, path: Path, depth: int) -> Subgraph:
    if depth > MAX_DEPTH:
        raise ModelError(
            f"node {node!r}: branches are nested more than {MAX_DEPTH} deep. Flatten them."
        )
    nodes, arrays = _nodes(graph, path, depth)
    arrays |= {t.name: to_array(t, path) for t in graph.initializer}
    return Subgraph(tuple(nodes), arrays, tuple(v.name for v in graph.output))


def _attribute(attribute: AttributeProto, node: str, path: Path, depth: int) -> Any:
    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        return to_array(attribute.t, path)
    if kind == AttributeProto.GRAPH:
        return _subgraph(attribute.g, node, path, depth + 1)
    if kind == AttributeProto.GRAPHS:
        raise ModelError(f"node {node!r}: {attribute.name!r} has several graphs; expected one.")
    if kind in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS):
        raise ModelError(f"node {node!r}: attribute {attribute.name!r} is sparse; expected dense.")
    if attribute.ref_attr_name:
        raise ModelError(
            f"node {node!r}: {attribute.name!r} refers to {attribute.ref_attr_name!r} of a "
            "function, but is outside it; expected a value. Export the model again."
        )
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        return list(value)
    if kind == AttributeProto.STRINGS:
        return [part.decode("utf-8", "replace") for part in value]
    return value


def _constant(node: OnnxNode) -> np.ndarray:
    for key, dtype in (
        ("value", None),
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if key in node.attrs:
            return np.asarray(node.attrs[key], dtype)
    raise node.fail(f"attributes {sorted(node.attrs)}", "a numeric value")


def _weightless(
    proto: onnx.ModelProto,
    arrays: Mapping[str, np.ndarray],
    found: Parameters,
    made: Sequence[str],
    path: Path,
    whole: Dequantized,
    attributes: Mapping[str, list[str]],
) -> bytes:
    """The file without parameters and buffers; constants are kept, external ones moved into it.

    Nodes that made the weights `made` are replaced by initializers. Metadata `edgetrain.sources`
    lists parameters with another name or transposed, `edgetrain.quantised` integer weights and
    their encoding, `edgetrain.attributes` parameters stored as node attributes: parameter name ->
    [output of the node, attribute].
    """
    stripped = {*found.parameters, *found.buffers, *found.copies}
    grids = {name: (of, grid) for name, (of, grid) in whole.weights.items() if of in stripped}
    stripped = stripped - {of for of, _ in whole.weights.values()} | set(grids)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    if made:
        kept = [n for n in copy.graph.node if not set(n.output).intersection(made)]
        del copy.graph.node[:]
        copy.graph.node.extend(kept)
    for name in made:
        copy.graph.initializer.add(name=name, dims=arrays[name].shape, data_type=TensorProto.FLOAT)
    for tensor in copy.graph.initializer:
        if tensor.name in stripped:
            for field in ("raw_data", "float_data", "double_data", "int32_data", "external_data"):
                tensor.ClearField(field)
            tensor.data_location = TensorProto.DEFAULT
    for tensor in tensors_of(copy.graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            restore(tensor, path)
    sources: dict[str, list] = {name: [to, None] for name, to in found.names.items()}
    for name, (of, axes) in found.copies.items():
        sources[name] = [found.names.get(of, of), list(axes)]
    if sources:
        copy.metadata_props.add(key="edgetrain.sources", value=json.dumps(sources))
    if attributes:
        copy.metadata_props.add(key="edgetrain.attributes", value=json.dumps(attributes))
    if grids:
        rows = {name: [of, *grid] for name, (of, grid) in grids.items()}
        copy.metadata_props.add(key="edgetrain.quantised", value=json.dumps(rows))
        _make_raw(copy, {name for _, grid in grids.values() for name in (*grid.scales, grid.zero)})
    return copy.SerializeToString()


def _make_raw(proto: onnx.ModelProto, names: set[str]) -> None:
    """Store these tensors as raw bytes, which program/quantised.py reads without onnx."""
    for name, tensor in named_tensors(proto.graph):
        if name in names:
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
