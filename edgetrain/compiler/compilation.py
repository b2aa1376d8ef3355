"""A model and its compile options: the object passed from step to step of the compiler."""

from dataclasses import replace
from typing import Any

from ..kernels import targets
from ..kernels.cache import jit
from ..ops.model import Model, names_file
from .model.model_options import ModelOptions
from .model.prepared import PreparedModel
from .model.weights import constant_notes
from .options import Options


class Compilation:
    """A model and its options, with everything that is computed from them only once.

    Attributes:
      model: as it was loaded.
      prepared: the model to be trained, and what is proved about it.
    Args:
      processor: processor to choose kernels for, if not that of `options.target`.
    """

    def __init__(
        self, model: Model, options: Options, *, processor: jit.Target | None = None
    ) -> None:
        self.model, self.options = model, options
        self.prepared = PreparedModel(model, ModelOptions.of(options))
        self._processor = processor

    @property
    def processor(self) -> jit.Target:
        """The processor that kernels are chosen for."""
        return self._processor or targets.get(self.options.target).processor

    @names_file
    def notes(self) -> tuple[str, ...]:
        """Notes for the user: the importer's, about constants that may be weights, and about
        batch-norms in evaluation mode."""
        notes = constant_notes(self.model, self.prepared.options)
        return (*self.model.warnings, *notes, *self._norm_notes())

    def _norm_notes(self) -> list[str]:
        held = [name for name in self.model.buffers if name in self.model.frozen]
        if not held or self.options.freeze_bn is not None:
            return []
        held = [name for name in held if self.prepared.choice.held(name)]
        if not held:
            return []
        more = f" and {len(held) - 1} more" if len(held) > 1 else ""
        return [
            f"{held[0]}{more}: running statistics stay as they are, because the exported module "
            "had these batch-norms in evaluation mode. Pass --no-freeze-bn to update them."
        ]

    def with_options(self, **changes: Any) -> "Compilation":
        """The compilation of the same model with some options changed."""
        return self.derived(replace(self.options, **changes))

    def derived(self, options: Options) -> "Compilation":
        """The compilation of the same model with other options.

        Both share `prepared` if the options that it reads are equal.
        """
        other = Compilation(self.model, options, processor=self._processor)
        if other.prepared.options == self.prepared.options:
            other.prepared = self.prepared
        return other
