"""The layers of a model with their shapes, for `summary`."""

from collections.abc import Mapping

from ...ir import Graph
from ...ops.model import Model
from ..bind import Bindable

_SIZES = 2, 3  # two batch sizes: axes that differ between them are counted in samples

Row = tuple[str, str, tuple[int | str, ...], int]


def layers_of(model: Model, dims: Mapping[str, int]) -> tuple[list[Row], dict[str, int]]:
    """Rows (name, op, output shape, number of parameters) and totals.

    Args:
      dims: sizes of symbolic dimensions other than the batch.
    Raises:
      ModelError, UsageError: see `bind`.
    """
    bindable = Bindable(model, dims)
    graphs = [bindable.bind(size).graph for size in _SIZES]
    outputs = [_outputs(graph) for graph in graphs]
    sizes = {name: model.initializers[name].size for name in model.parameters}
    rows, counted = [], set[str]()
    for node in model.nodes:
        few, more = (output.get(node.name) for output in outputs)
        if few is None or more is None:  # folded into a constant, or a view
            continue
        parameters = [name for name in node.inputs if name in sizes and name not in counted]
        counted.update(parameters)
        numbers = sum(sizes[name] for name in parameters)
        rows.append((node.name, node.op_type, _in_samples(few, more), numbers))
    frozen = sum(sizes[name] for name in model.frozen if name in sizes)
    buffers = sum(model.initializers[name].size for name in model.buffers)
    total = sum(sizes.values())
    return rows, {"parameters": total, "frozen by the model": frozen, "running statistics": buffers}


def _outputs(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The output shape of each ONNX node, taken from its last value in the graph."""
    return {
        node.origin: graph.values[node.writes[0]].shape
        for node in graph.nodes
        if node.origin and node.writes
    }


def _in_samples(few: tuple[int, ...], more: tuple[int, ...]) -> tuple[int | str, ...]:
    """A shape with n for the batch, or 4n for an axis with four rows per sample."""
    return tuple(
        size if size == other else _named(other - size)
        for size, other in zip(few, more, strict=True)
    )


def _named(each: int) -> str:
    return "n" if each == 1 else f"{each}n"
