"""Sums and counts of losses, and the means computed from them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels import control
from ...losses.terms import Term, terms_of_recipe
from ...program import TARGET, Program
from ...program.samples import elements


def named_results(program: Program) -> list[str]:
    """Names of the results by output that an evaluation of several losses has in addition to
    `loss`."""
    terms = [term for term in terms_of_recipe(program.recipe, TARGET) if term.label]
    accuracies = [f"{term.label}_accuracy" for term in terms if term.loss.accuracy]
    return [*(f"{term.label}_loss" for term in terms), *accuracies]


@dataclass(frozen=True)
class Sums:
    """Sums of all losses of a Program over some samples.

    Attributes:
      rows: for each loss: its sum, targets, correct predictions and sum of weights, float64. One
        row for a single loss without a weight.
      weights: weights of the losses.
    """

    terms: tuple[Term, ...]
    rows: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, terms: tuple[Term, ...], ints: np.ndarray, weights: np.ndarray | None) -> "Sums":
        """Read the sums from a control block.

        Args:
          ints: the block's words.
          weights: weights of the losses; None if there is only one.
        """
        reals = ints.view(np.float64)
        if weights is None:
            words = (control.LOSS_SUM, control.TARGETS, control.CORRECT, control.WEIGHT)
            places, weights = [words], np.ones(1)
        else:
            starts = [control.TERMS + control.TERM_WORDS * term.number for term in terms]
            places = [(start, start + 1, start + 2, start + 3) for start in starts]
        rows = [(reals[a], ints[b], ints[c], reals[d]) for a, b, c, d in places]
        return cls(terms, np.array(rows, np.float64), weights.astype(np.float64))

    def __add__(self, other: "Sums") -> "Sums":
        with np.errstate(invalid="ignore"):  # infinities of both signs
            return Sums(self.terms, self.rows + other.rows, other.weights)

    def of_samples(self, program: Program) -> "Sums":
        """The same means, but losses that are a mean over samples count each sample as one target:
        sums over samples of other lengths can be added.

        Args:
          program: that of the samples' length.
        """
        staged = program.staged("eval")
        each = [term.each(elements(program, staged[term.target])) for term in self.terms]
        return Sums(self.terms, self.rows / np.array(each)[:, None], self.weights)

    @property
    def means(self) -> list[float]:
        """Mean of each loss, without its weight; NaN if no target counted."""
        return [
            float(row[0]) / float(n) if n else math.nan  # float: without warnings of numpy
            for row, n in zip(self.rows, self._divisors, strict=True)
        ]

    @property
    def _divisors(self) -> list[float]:
        return [weight or count for _, count, _, weight in self.rows]

    def results(self) -> dict[str, Any]:
        """`loss`, and `accuracy` if a loss has one; with several losses also each one's, by label.

        NaN if no target counted.
        """
        means = self.means
        counted = [k for k, n in enumerate(self._divisors) if n]
        total = sum(float(self.weights[k]) * means[k] for k in counted)
        out: dict[str, Any] = {"loss": total if counted else math.nan}
        for term, mean, (_, count, correct, _) in zip(self.terms, means, self.rows, strict=True):
            if term.label:
                out[f"{term.label}_loss"] = mean
            if term.loss.accuracy:
                name = f"{term.label}_accuracy" if term.label else "accuracy"
                out[name] = float(correct) / float(count) if count else math.nan
        return out
