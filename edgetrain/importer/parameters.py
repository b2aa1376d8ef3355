"""Which initializers are trained: by the exporter's metadata, else by the slots they feed.

Metadata: `edgetrain.parameters` and `edgetrain.buffers` (JSON lists of torch names, written by
our exporter), or the graph signature that torch's exporter leaves.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from ..ops.registry import OnnxNode, slots

# Ops through which a weight may pass before it reaches its slot.
_PASS_THROUGH = {
    "Identity", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Concat", "Cast",
    "Flatten", "Split", "Expand",
}  # fmt: skip


def classify(
    proto: onnx.ModelProto, nodes: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray]
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str], tuple[str, ...]]:
    """(parameters, buffers, aliases of tied parameters, warnings)."""
    by_weight, by_buffer = _by_slots(nodes, arrays)
    meta = {entry.key: entry.value for entry in proto.metadata_props}
    graph_meta = {entry.key: entry.value for entry in proto.graph.metadata_props}
    named = _from_metadata({**graph_meta, **meta})
    if named is None:
        parameters = [n for n in arrays if n in by_weight and n not in by_buffer]
        return tuple(parameters), tuple(n for n in arrays if n in by_buffer), {}, ()
    parameters, buffers, aliases = named
    warnings = []
    missing = [n for n in parameters if n not in arrays and n not in aliases]
    if missing:
        warnings.append(
            f"{len(missing)} parameters of the original are not in the file (folded, merged or "
            f"unused): {', '.join(missing[:5])}. They will not be trained; export with "
            "edgetrain's exporter to keep them."
        )
    kept = tuple(n for n in dict.fromkeys(parameters) if n in arrays)
    statistics = tuple(n for n in arrays if n in by_buffer and n not in kept)
    others = tuple(n for n in buffers if n in arrays and n not in statistics and n not in kept)
    del others  # buffers that are not running statistics are constants of the graph
    return kept, statistics, aliases, tuple(warnings)


def _from_metadata(meta: Mapping[str, str]):
    def listed(key: str) -> list[str] | None:
        try:
            value = json.loads(meta[key])
        except (KeyError, ValueError):
            return None
        return [str(v) for v in value] if isinstance(value, list) else None

    parameters = listed("edgetrain.parameters")
    if parameters is None:
        return None
    try:
        aliases = {str(k): str(v) for k, v in json.loads(meta.get("edgetrain.tied", "{}")).items()}
    except (ValueError, AttributeError):
        aliases = {}
    return parameters, listed("edgetrain.buffers") or [], aliases


def _by_slots(
    nodes: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray]
) -> tuple[set[str], set[str]]:
    """Float initializers that reach a weight slot, and those in a statistics slot."""
    weights: set[str] = set()
    buffers: set[str] = set()
    wanted: set[str] = set()
    for node in reversed(nodes):
        weight_slots, buffer_slots = slots(node.op_type)
        wanted.update(node.inputs[k] for k in weight_slots if k < len(node.inputs))
        buffers.update(node.inputs[k] for k in buffer_slots if k < len(node.inputs))
        if node.op_type in _PASS_THROUGH and wanted.intersection(node.outputs):
            wanted.update(node.inputs[:1] if node.op_type != "Concat" else node.inputs)
    for name in wanted:
        if name in arrays and arrays[name].dtype.kind == "f":
            weights.add(name)
    return weights, buffers & set(arrays)
