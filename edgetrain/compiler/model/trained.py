"""Which parameters are trained: name patterns and the model file."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ...errors import UsageError
from ...ops.model import Model


class Choice:
    """Chooses parameters to train; `freeze` takes precedence over `train`, and both over the file.

    Args:
      train, freeze: patterns of parameter names, including other names of tied ones. They can
        match running statistics: see compiler/passes/batch_norm.py.
      constants: patterns of constants that became parameters, in addition to `train`, such as the
        model's adapters.
    Raises:
      UsageError: a pattern matches nothing.
    """

    def __init__(
        self,
        model: Model,
        train: Sequence[str],
        freeze: Sequence[str],
        constants: Sequence[str] = (),
    ) -> None:
        self._model, self._train, self._freeze = model, tuple(train), tuple(freeze)
        self._constants = (*constants, *model.adapters)
        self._further: dict[str, list[str]] = {}
        for alias, kept in model.aliases.items():
            self._further.setdefault(kept, []).append(alias)
        every = (*model.parameters, *model.aliases, *model.buffers)
        for pattern in (*train, *freeze):
            if not any(fnmatchcase(name, pattern) for name in every):
                raise UsageError(
                    f"pattern {pattern!r}: no match among {len(model.parameters)} parameters, "
                    f"such as {', '.join(model.parameters[:3])}."
                )

    def __call__(self, name: str) -> bool:
        """Whether a parameter is trained."""
        kept = self.asked(name) or (not self._train and name not in self._model.frozen)
        return kept and not self.froze(name)

    def asked(self, name: str) -> bool:
        """Whether a pattern of `train` or `constants` matches it, or its layer is new."""
        return name in self._model.fresh or self._matches(name, (*self._train, *self._constants))

    def froze(self, name: str) -> bool:
        """Whether a pattern of `freeze` matches it."""
        return self._matches(name, self._freeze)

    def held(self, mean: str) -> bool:
        """Whether the file keeps the statistics of the batch-norm with this running mean."""
        return mean in self._model.frozen and not self.asked(mean)

    def _matches(self, name: str, patterns: Sequence[str]) -> bool:
        names = [name, *self._further.get(name, ())]
        return any(fnmatchcase(n, pattern) for n in names for pattern in patterns)

    @property
    def everything(self) -> bool:
        """Whether all parameters are trained: no pattern or file excludes any."""
        return not (self._train or self._freeze or self._model.frozen)
