"""Which initializers are trained: by the exporter's metadata, else by the slots they feed.

Metadata: `edgetrain.parameters` and `edgetrain.buffers` (JSON lists of torch names, written by
our exporter), or the graph signature that torch's exporter leaves.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from ..ops.registry import OnnxNode, Subgraph, slots

# Ops through which a weight may pass before it reaches its slot.
_PASS_THROUGH = {
    "Identity", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Concat", "Cast",
    "Flatten", "Split", "Expand",
}  # fmt: skip
# Plain arithmetic: scalars and Constant nodes in it are numbers of the formula, not weights.
_ARITHMETIC = {"Add", "Mul", "Sum"}
_FORMULA = {"Sub", "Div", "Min", "Max", "Pow", "Where"}

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_SIGNATURE_LINE = re.compile(r"^\w+: (PARAMETER|BUFFER) target='([^']*)'", re.MULTILINE)


def classify(
    proto: onnx.ModelProto, nodes: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray]
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str], tuple[str, ...]]:
    """(parameters, buffers, aliases of tied parameters, warnings).

    Buffers are running statistics; every other buffer of the module is a constant of the graph.
    """
    initializers = {tensor.name for tensor in proto.graph.initializer}
    by_weight, by_buffer = _by_slots(nodes, arrays, initializers)
    meta = {entry.key: entry.value for entry in proto.metadata_props}
    graph_meta = {entry.key: entry.value for entry in proto.graph.metadata_props}
    named = _from_metadata({**graph_meta, **meta})
    if named is None:
        parameters = [n for n in arrays if n in by_weight and n not in by_buffer]
        return tuple(parameters), tuple(n for n in arrays if n in by_buffer), {}, ()
    parameters, aliases = named
    warnings = []
    missing = [n for n in parameters if n not in arrays and n not in aliases]
    if missing:
        warnings.append(
            f"{len(missing)} parameters of the original are not in the file (folded, merged or "
            f"unused): {', '.join(missing[:5])}. They will not be trained; export with "
            "edgetrain's exporter to keep them."
        )
    kept = tuple(
        n for n in dict.fromkeys(parameters) if n in arrays and arrays[n].dtype.kind == "f"
    )
    statistics = tuple(n for n in arrays if n in by_buffer and n not in kept)
    return kept, statistics, aliases, tuple(warnings)


def frozen_names(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Parameters that the exported module had set not to require a gradient."""
    meta = {entry.key: entry.value for entry in proto.metadata_props}
    try:
        listed = json.loads(meta.get("edgetrain.frozen", "[]"))
    except (ValueError, RecursionError):
        return ()
    return tuple(str(name) for name in listed) if isinstance(listed, list) else ()


def _from_metadata(meta: Mapping[str, str]) -> tuple[list[str], dict[str, str]] | None:
    """(parameters, aliases), None where nothing tells."""
    try:
        listed = json.loads(meta.get("edgetrain.parameters", "null"))
        aliases = json.loads(meta.get("edgetrain.tied", "{}"))
    except (ValueError, RecursionError):
        listed = None
    if isinstance(listed, list) and isinstance(aliases, dict):
        return [str(v) for v in listed], {str(k): str(v) for k, v in aliases.items()}
    signed = _SIGNATURE_LINE.findall(meta.get(_SIGNATURE, ""))
    parameters = [name for kind, name in signed if kind == "PARAMETER"]
    return (parameters, {}) if parameters else None


def _flat(nodes: Sequence[OnnxNode]) -> Iterator[OnnxNode]:
    """Nodes of branches before the node that has them."""
    for node in nodes:
        for part in node.attrs.values():
            if isinstance(part, Subgraph):
                yield from _flat(part.nodes)
        yield node


def _by_slots(
    nodes: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray], initializers: set[str]
) -> tuple[set[str], set[str]]:
    """Float initializers that reach a weight slot, and those in a statistics slot."""
    buffers: set[str] = set()
    wanted: set[str] = set()
    summands: set[str] = set()
    for node in reversed(list(_flat(nodes))):
        weight_slots, buffer_slots = slots(node.op_type)
        fed = [node.inputs[k] for k in weight_slots if k < len(node.inputs)]
        if node.op_type in _ARITHMETIC:
            summands.update(fed)
        elif node.op_type not in _FORMULA:
            wanted.update(fed)
        buffers.update(node.inputs[k] for k in buffer_slots if k < len(node.inputs))
        if node.op_type in _PASS_THROUGH:
            sources = node.inputs[:1] if node.op_type != "Concat" else node.inputs
            for names in (wanted, summands):
                if names.intersection(node.outputs):
                    names.update(sources)
    large = {n for n in summands & initializers if n in arrays and arrays[n].size > 1}
    weights = {n for n in wanted | large if n in arrays and arrays[n].dtype.kind == "f"}
    return weights, buffers & set(arrays)
