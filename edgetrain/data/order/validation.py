"""The samples a run trains on and is evaluated on; nothing is held out unless requested."""

from typing import Any

from edgetrain.errors import UsageError

from ..registry import open_data, open_evaluation
from ..source import Source


class Division:
    """The samples of a run.

    Attributes:
      train: the training samples.
      held_out: number of samples held out.
      chosen: the requested evaluation data; None: the data's test split.

    Args:
      data: as in `open_data`; None: training data is opened elsewhere.
      validation: None or 0: hold nothing out; a fraction of the training samples to hold out;
        or other data: its test split, or all of it if it has none.
    Raises:
      UsageError: a number that is not a fraction.
      DataError: as in `open_data`; too few samples.
    """

    def __init__(self, data: Any, validation: Any = None) -> None:
        self.train: Source | None = None if data is None else open_data(data, split="train")
        self.chosen: Source | None = None
        self._own: Source | None = None
        if isinstance(validation, bool | int | float):
            fraction = _fraction(validation)
            if fraction and self.train is None:
                raise UsageError(
                    f"validation {validation}: samples can't be held out if the data comes in "
                    "batches. Pass other data to evaluate on."
                )
            if fraction and self.train is not None:
                from .holdout import Subset  # most runs have a test split

                whole = self.train
                self.train, self.chosen = (Subset(whole, k, fraction) for k in ("train", "test"))
        elif validation is not None:
            self.chosen = open_evaluation(validation)
        self.held_out = 0 if self.train is None else self.train.held_out

    def evaluation(self) -> Source | None:
        """The evaluation data: as requested, or the test split, or None."""
        train = self.train
        if self.chosen is None and self._own is None and train and "test" in train.splits:
            self._own = train.for_split("test")
        return self.chosen or self._own

    def describe(self, evaluate: bool, partial: str = "") -> str:
        """One line about anything a user would not expect; "" if there is nothing.

        Args:
          partial: from `partial_note`.
        """
        if self.train is None:
            return ""
        parts = self._divided(evaluate, self.train), partial, self.train.note
        return "; ".join(filter(None, parts))

    def _divided(self, evaluate: bool, train: Source) -> str:
        n, held = train.n, self.held_out
        if held:
            whole = n + held
            share = f"{100 * held / whole:.3g} %"
            return (
                f"held out {held} of {whole} samples ({share}) for evaluation, {n} are for training"
            )
        if evaluate and self.evaluation() is None:
            return (
                f"{train.name} has no test split and nothing is held out: all {n} samples are for "
                "training, there is nothing to evaluate on (validation 0.2 holds out a fifth)"
            )
        return ""


def _fraction(value: float) -> float:
    if isinstance(value, bool) or not 0 <= value < 1:
        raise UsageError(
            f"validation {value}: expected a fraction of the samples, from 0 (none) to below 1, or "
            "data to evaluate on, such as 'npz:FILE'."
        )
    return float(value)
