"""The weights of several losses in a run."""

from collections.abc import Callable, Iterator, Mapping

from ...errors import UsageError
from ...program import WEIGHTS
from ...units import finite_number
from ...units.hints import did_you_mean
from ..session import Session


class LossWeights(Mapping[str, float]):
    """Loss weights by output name, or by OUTPUT_LOSS if an output has several losses.

    Args:
      told: called with all weights after one was set.
    """

    def __init__(self, session: Session, told: Callable[[dict[str, float]], None]) -> None:
        self._session, self._told = session, told
        self._places = {term.label: term.number for term in session.terms if term.label}

    def __repr__(self) -> str:
        return f"LossWeights({dict(self)!r})"

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __getitem__(self, name: str) -> float:
        return float(self._session.values[WEIGHTS][self._places[name]])

    def restore(self, weights: Mapping[str, float] | None) -> None:
        """Set all weights; None: those that the Program was compiled with."""
        if weights is None:
            weights = {term.label: term.loss.weight for term in self._session.terms}
        for name in self:
            self[name] = weights[name]

    def __setitem__(self, name: str, value: float) -> None:
        self._session.executor.check_process()
        if not isinstance(name, str) or name not in self._places:
            known = ", ".join(self._places) or "none, because it has only one loss"
            raise UsageError(
                f"loss_weights: {name!r}; the Program has {known}."
                f"{did_you_mean(str(name), self._places)}"
            )
        number = finite_number(f"loss_weights: {name}", value, least=0)
        with self._session.turn:
            self._session.values[WEIGHTS][self._places[name]] = number
        self._told(dict(self))
