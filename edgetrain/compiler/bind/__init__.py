"""Binds a model's dimensions: Model -> ir.Graph with integer sizes, after freeing a fixed batch."""

from collections.abc import Mapping
from dataclasses import replace

from ...ops.model import Model
from .context import Bound, Context, bound_context
from .rebatch import rebatched
from .rebatch_steps import baked_batch
from .softmaxes import with_softmaxes

__all__ = ["Bound", "bind"]


def bind(model: Model, batch: int, dims: Mapping[str, int] | None = None) -> Bound:
    """Bind every dimension of `model`.

    Args:
      batch: samples of a microbatch, along the batch axis of every input.
      dims: sizes of the other symbolic dimensions.
    Raises:
      UnsupportedOpError: lists all nodes with unsupported ops.
      ModelError: shapes contradict each other.
      UsageError: a symbolic dimension has no size.
    """
    if baked_batch(model) not in (0, batch):
        model = rebatched(model, dims or {})
    bound = bound_context(model, batch, dims or {}, Context)[0].finish()
    graph, arrays = with_softmaxes(bound.graph, bound.arrays)
    return replace(bound, graph=graph, arrays=arrays)
