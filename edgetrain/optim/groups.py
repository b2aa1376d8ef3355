"""Parameters with their own hyperparameters, like torch's parameter groups."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..errors import UsageError
from ..units import finite_number
from .base import Optimizer


@dataclass(frozen=True)
class Group:
    """Hyperparameters of the parameters that match a pattern; None: the run's.

    Attributes:
      pattern: of names, such as "fc.*".
      lr: learning rate at the start of a run. Its ratio to the optimizer's rate stays the same:
        schedules, and anything else that sets the rate of a run, scale both.
      weight_decay: like the optimizer's.
    """

    pattern: str
    lr: float | None = None
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str) or not self.pattern:
            raise UsageError(f"group {repr(self.pattern)[:80]}: expected a pattern such as 'fc.*'.")
        given = self._given()
        if not given:
            raise UsageError(f"group {self.pattern!r}: expected {' or '.join(HYPERPARAMETERS)}.")
        for name, value in given.items():
            number = finite_number(f"group {self.pattern!r}: {name}", value, least=0)
            object.__setattr__(self, name, float(number))

    def _given(self) -> dict[str, Any]:
        result = {name: getattr(self, name) for name in HYPERPARAMETERS}
        return {name: value for name, value in result.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        return {"pattern": self.pattern, **self._given()}

    def names(self, names: Iterable[str]) -> bool:
        """Whether the pattern matches one of these names."""
        return any(fnmatchcase(name, self.pattern) for name in names)

    def of(self, optimizer: Optimizer) -> Optimizer:
        """The optimizer with the group's hyperparameters."""
        return dataclasses.replace(optimizer, **self._given())


# Hyperparameters that a group may set.
HYPERPARAMETERS = tuple(f.name for f in dataclasses.fields(Group) if f.name != "pattern")


def optimizer_of(
    optimizer: Optimizer, groups: Sequence[Group], names: Sequence[str], decays: bool = True
) -> Optimizer:
    """The optimizer of one parameter; the last matching group wins.

    Args:
      names: all names of the parameter.
      decays: whether it has weight decay if no group sets one.
    """
    own = optimizer if decays else dataclasses.replace(optimizer, weight_decay=0.0)
    for group in groups:
        if group.names(names):
            own = group.of(own)
    return own
