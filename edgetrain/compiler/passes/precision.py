"""Assigns storage types by role, before remat, so all plans read the same stored bytes.

precision fp16 stores activations, gradients, weight matrices, their accumulators and optimizer
state in fp16; vectors (biases, norms) and statistics stay fp32. `model_memory` sets only weights,
state and accumulators; `weights`, `state` and `grads` set one of these. Only matrices of at least a
block are stored in blocks of 8 bits.
"""

from collections.abc import Mapping, Set
from dataclasses import replace

from ...formats import FORMATS, FP32, FROZEN, MEMORIES, PRECISIONS, frozen_as
from ...ir import Graph, Value
from ..options import Options
from .packed import spread


def storages(options: Options) -> dict[str, str]:
    """{role of a value: dtype of its matrices}; "activation": everything outside model memory."""
    default = options.model_memory or options.precision
    chosen = {"parameter": options.weights, "state": options.state, "accumulator": options.grads}
    out = {role: MEMORIES[name or default].name for role, name in chosen.items()}
    frozen = FROZEN[frozen_as(options.frozen or options.weights or default)].name
    return out | {"activation": PRECISIONS[options.precision].name, "mapped": frozen}


def mark_derived(forward: Graph) -> Graph:
    """Keep values computed only from fp32 vectors (scales, biases) in fp32 too.

    A node that reads such a value together with an activation may read two storages; the node that
    makes it reads only one.
    """
    values = dict(forward.values)
    for node in forward.nodes:
        if node.reads and all(_is_vector(forward, values[name]) for name in node.reads):
            for name in node.writes:
                if values[name].role == "activation":
                    values[name] = replace(values[name], role="statistic")
    return replace(forward, values=values)


def _is_vector(graph: Graph, value: Value) -> bool:
    """Whether the value is stored in fp32 with any precision."""
    root = graph.values[graph.root(value.name)]
    short = root.role in ("parameter", "constant") and len(root.shape) < 2
    return short or value.role == "statistic"


def assign_storage(graph: Graph, options: Options, mapped_weights: Set[str] = frozenset()) -> Graph:
    """The graph with the storage of each value as its dtype; `mapped_weights`: mapped roots."""
    if mapped_weights:
        mapped = {n: replace(v, mapped=n in mapped_weights) for n, v in graph.values.items()}
        graph = replace(graph, values=mapped)
    chosen = storages(options)
    values = dict(graph.values)
    for name, value in graph.values.items():
        dtype = _stored(graph, value, chosen)
        if dtype != value.dtype:
            values[name] = replace(value, dtype=dtype)
    return spread(replace(graph, values=values), chosen["activation"])


def stored_as(value: Value, dtype: str) -> str:
    """The dtype of a value in model memory, if matrices have the dtype `dtype`."""
    if len(value.shape) < 2 or value.size < FORMATS[dtype].block:
        return "f32"
    return dtype


def _stored(graph: Graph, value: Value, chosen: Mapping[str, str]) -> str:
    if value.dtype != FP32.name:
        return value.dtype
    root = graph.values[graph.root(value.name)]
    if root.mapped and root.role == "parameter":
        return stored_as(root, chosen["mapped"])
    if root.role in chosen and root.role != "activation":
        return stored_as(root, chosen[root.role])
    if root.role == "constant" and len(root.shape) < 2:
        return "f32"
    if root.role in ("activation", "gradient", "input", "constant"):
        return chosen["activation"]
    return "f32"
