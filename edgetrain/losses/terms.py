"""The objective of training: a loss, or several with weights, each computed from one output."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UsageError
from .base import Loss

MOST = 5  # losses of a model: the control block has words for this many
# (output, loss) of each; the first is `Options.output` and `Options.loss` too.
Pairs = tuple[tuple[str, Loss], ...]


class Term(NamedTuple):
    """One loss of a Program.

    Attributes:
      number: from 0.
      label: prefix of its metrics' names; "" if it is the only loss.
      output: of the model; None: its first.
      target: name of the staged value that contains its targets.
    """

    number: int
    label: str
    output: str | None
    loss: Loss
    target: str

    def each(self, elements: int) -> int:
        """The targets that a sample counts as if its loss is a mean over samples; otherwise 1.

        Args:
          elements: of a sample's targets.
        """
        return elements if self.loss.each_sample else 1

    def pads(self, ignored: int | None) -> tuple[int, ...]:
        """Values after a sample's last target that may be cut off.

        Args:
          ignored: the class that the loss ignores; None: there is none.
        """
        return (*(() if ignored is None else (ignored,)), *self.loss.fillers)


def pairs_of(given: Any) -> Pairs:
    """(output, loss) pairs from a mapping: each output has a name, a Loss or a list of them.

    Raises:
      UsageError: another type, or too many losses.
    """
    if isinstance(given, tuple) and all(isinstance(pair, tuple) for pair in given):
        result = given
    elif isinstance(given, Mapping):
        several = {
            name: value if isinstance(value, list | tuple) else [value]
            for name, value in given.items()
        }
        result = tuple((name, Loss.of(item)) for name, own in several.items() for item in own)
    else:
        raise UsageError(
            f"losses {repr(given)[:80]}: expected losses by output, such as "
            "{'class': 'cross_entropy', 'box': et.Loss('huber', weight=0.5)}."
        )
    for name, item in result:
        if not isinstance(name, str) or not isinstance(item, Loss):
            raise UsageError(f"losses: {name!r}: {repr(item)[:80]}; expected a name or a Loss.")
    if len(result) > MOST:
        raise UsageError(f"losses: {len(result)} of them; expected at most {MOST}.")
    return result


def terms_of(output: str | None, loss: Loss, pairs: Pairs, target: str) -> tuple[Term, ...]:
    """The losses of a Program.

    Args:
      output, loss: the only loss and its output, if there are no `pairs`.
      target: the staged value of the targets of the first output.
    """
    if not pairs:
        return (Term(0, "", output, loss, target),)
    names = [name for name, _ in pairs]
    result = []
    for number, (name, own) in enumerate(pairs):
        label = name if names.count(name) == 1 else f"{name}_{own.name}"
        staged = target if name == names[0] else f"{target}.{name}"
        result.append(Term(number, label, name, own, staged))
    labels = [term.label for term in result]
    if len({*labels}) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise UsageError(f"losses: {twice} twice; expected each loss of an output once.")
    return tuple(result)


def terms_of_recipe(recipe: Mapping[str, Any], target: str) -> tuple[Term, ...]:
    """The losses of a Program, from its recipe.

    Raises:
      UsageError: this build does not have one of them.
    """
    pairs = tuple((name, Loss.of_json(own)) for name, own in recipe.get("losses", ()))
    return terms_of(recipe.get("output"), Loss.of_json(recipe["loss"]), pairs, target)


def joined(terms: Sequence[Term]) -> bool:
    """Whether losses are added up with weights: a sample then counts as one target."""
    return len(terms) > 1 or terms[0].loss.weight != 1
