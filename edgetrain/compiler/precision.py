"""Storage types by role: decided before remat, so that every plan reads the same stored bytes.

precision fp16 stores activations, gradients, weight matrices, their accumulators and optimizer
state in fp16; vectors (biases, norms) and statistics stay fp32. `model_memory` sets the weights'
side alone.
"""

from dataclasses import replace

from ..errors import UsageError
from ..formats import PRECISIONS
from ..ir import Graph, Value


def mark_derived(forward: Graph) -> Graph:
    """Values computed from fp32 vectors alone (scales, biases) are kept in fp32 too.

    What reads them together with an activation takes two storages; their maker takes one.
    """
    values = dict(forward.values)
    for node in forward.nodes:
        if node.reads and all(_is_vector(forward, values[name]) for name in node.reads):
            for name in node.writes:
                if values[name].role == "activation":
                    values[name] = replace(values[name], role="statistic")
    return replace(forward, values=values)


def _is_vector(graph: Graph, value: Value) -> bool:
    """Whether the value is stored in fp32 whatever the precision."""
    root = graph.values[graph.root(value.name)]
    short = root.role in ("parameter", "constant") and len(root.shape) < 2
    return short or value.role == "statistic"


def assign_storage(graph: Graph, precision: str, model_memory: str | None = None) -> Graph:
    """The graph with every value's dtype as it will be stored.

    Raises:
      UsageError: a format that this build does not have.
    """
    activations = _format("precision", precision)
    weights = _format("model memory", model_memory or precision)
    values = {
        name: replace(value, dtype=_stored(graph, value, activations, weights))
        for name, value in graph.values.items()
    }
    return replace(graph, values=values)


def _format(option: str, name: str) -> str:
    if name not in PRECISIONS:
        raise UsageError(f"{option} {name!r}: expected one of {', '.join(PRECISIONS)}.")
    return PRECISIONS[name].name


def _stored(graph: Graph, value: Value, activations: str, weights: str) -> str:
    if value.dtype != "f32":
        return value.dtype
    root = graph.values[graph.root(value.name)]
    if root.role in ("parameter", "accumulator", "state"):
        return weights if len(root.shape) > 1 else "f32"
    if root.role == "constant" and len(root.shape) < 2:
        return "f32"
    if root.role in ("activation", "gradient", "input", "constant"):
        return activations
    return "f32"
