"""Binds a model's dimensions: Model -> ir.Graph with integer sizes, after freeing a fixed batch."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from ...errors import ModelError, UnsupportedOpError
from ...ops.model import Model
from .context import Bound, Context, bound_context
from .rebatch import rebatched
from .rebatch_steps import baked_batch
from .softmaxes import with_softmaxes

__all__ = ["Bindable", "Bound", "bind"]


class Bindable:
    """A model to be bound for several batch sizes; a fixed batch is freed only once.

    Attributes:
      dims: sizes of the symbolic dimensions other than the batch.
    """

    def __init__(self, model: Model, dims: Mapping[str, int]) -> None:
        self.model, self.dims = model, dims

    @cached_property
    def _freed(self) -> Model | str:
        """The model without a fixed batch, or why the batch can't be freed."""
        if not baked_batch(self.model):
            return self.model
        try:
            return rebatched(self.model, self.dims)
        except UnsupportedOpError:
            raise
        except ModelError as error:
            return str(error)

    def freed(self) -> Model:
        """The model without a fixed batch.

        Raises:
          ModelError: the batch can't be freed.
        """
        if isinstance(self._freed, str):
            raise ModelError(self._freed)
        return self._freed

    @cached_property
    def only_batch(self) -> int:
        """The only batch size the model accepts; 0 if it accepts any."""
        try:
            return baked_batch(self.model) if isinstance(self._freed, str) else 0
        except UnsupportedOpError:
            return 0

    def bind(self, batch: int) -> Bound:
        """See `bind`."""
        fixed = baked_batch(self.model)
        model = self.model if fixed in (0, batch) else self.freed()
        bound = bound_context(model, batch, self.dims, Context)[0].finish()
        graph, arrays = with_softmaxes(bound.graph, bound.arrays)
        return replace(bound, graph=graph, arrays=arrays)


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
    return Bindable(model, dims or {}).bind(batch)
