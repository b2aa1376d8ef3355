"""Random inputs and targets for a bound graph."""

import numpy as np

from edgetrain.ir import Graph
from edgetrain.losses import Loss
from edgetrain.program import WEIGHT

# Limit of token ids if the vocabulary's size is unknown.
_FEW = 2


def sample_batch(
    graph: Graph, output: str, loss: Loss, draw: np.random.Generator, axis: int = 0
) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Inputs and target of one microbatch; the target is None if the loss takes none.

    Floats are standard normal, token ids are below the number of rows they index, flags and other
    integers are 0 or 1.

    Args:
      graph: forward graph of the microbatch.
      output: the value with the loss; its sample axis is `axis`.
    Returns:
      Arrays with samples along axis 0.
    """
    inputs = sample_inputs(graph, draw)
    shape = graph.values[output].shape
    shape = (*shape[axis : axis + 1], *shape[:axis], *shape[axis + 1 :])
    if loss.sample_weights:
        inputs[WEIGHT] = draw.random(shape[0], np.float32)
        inputs[WEIGHT][: min(1, len(inputs[WEIGHT]) - 1)] = 0  # a sample without weight
    target = loss.sample(shape, draw) if loss.takes_target else None
    return inputs, target


def sample_inputs(graph: Graph, draw: np.random.Generator) -> dict[str, np.ndarray]:
    """Every input of a bound graph; see `sample_batch`."""
    rows = lookup_rows(graph)
    inputs: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        value = graph.values[name]
        if value.dtype != "f32":
            high = rows.get(name, _FEW)
            numbers = draw.integers(0, high, value.shape).astype(np.int32)
            if high > 1 and numbers.size > 1 and np.all(numbers == numbers.flat[0]):
                numbers.flat[0] = (numbers.flat[0] + 1) % high  # labels may not all be ignored
            inputs[name] = numbers
        else:
            inputs[name] = draw.standard_normal(value.shape, np.float32)
    return inputs


def lookup_rows(graph: Graph) -> dict[str, int]:
    """Input name -> rows of the smallest table that it indexes, through casts and views."""
    source = {
        out: graph.root(node.inputs[0])
        for node in graph.nodes
        if node.op in ("copy", "view", "expand")
        for out in node.outputs
    }
    rows: dict[str, int] = {}
    for node in graph.nodes:
        if node.op != "gather":
            continue
        name = graph.root(node.inputs[1])
        while name in source:
            name = source[name]
        if name in graph.inputs:
            size = graph.values[node.inputs[0]].shape[node.attrs["axis"]]
            rows[name] = min(size, rows.get(name, size))
    return rows
