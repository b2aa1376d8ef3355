"""Metrics by output: assigns the requested metrics to outputs, and names their results.

With a single loss, results have the metrics' own names. With several losses, they start with the
output: `class_f1`. A metric without an output applies to every output that it suits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import UsageError
from ...losses.terms import Term, terms_of_recipe
from ...program import TARGET, Program
from ...units.hints import did_you_mean
from .metrics import Metrics, called, check_name, checked, pairs_of, plain_name, suits

Asked = tuple[str | None, str, Any]  # output (None: all), name, name or function


class OutputMetrics:
    """Metrics of one evaluation, for all outputs that have targets.

    Args:
      asked: names and functions, or a mapping from outputs to them. A name may start with its
        output, as in "class=f1,auc,box=mae"; names after it are for the same output.
      terms: the Program's losses.
    Attributes:
      wanted: whether outputs and targets are needed.
      names: names of the results.
    Raises:
      UsageError: an unknown metric or output, or a metric that suits no loss.
    """

    def __init__(self, asked: Any, program: Program, terms: Sequence[Term] = ()) -> None:
        terms = terms or terms_of_recipe(program.recipe, TARGET)
        chosen = _by_loss(asked, program, terms)
        for term in terms:
            shape = program.shape_of(term.output)
            if term.loss.sample_weights and term.loss.accuracy and shape and shape[0]:
                chosen.setdefault(term.number, {})  # the kernel ignores weights
        self._parts: list[tuple[Term, Metrics, dict[str, list[str]]]] = []
        for number, own in sorted(chosen.items()):
            term = terms[number]
            counted = Metrics(own, term.loss, program.shape_of(term.output), program.sliced)
            names = {name: [_called_of(term.output, name, term)] for name in own}
            if term.loss.sample_weights and term.loss.accuracy:
                names.setdefault("accuracy", []).append(_called_of(term.label, "accuracy", term))
            self._parts.append((term, counted, names))
        self.wanted = any(counted.wanted for _, counted, _ in self._parts)
        several = [name for _, _, names in self._parts for own in names.values() for name in own]
        self.names = [*dict.fromkeys(several)]

    @property
    def functions(self) -> list[str]:
        """Names of user-defined functions."""
        return [name for _, counted, _ in self._parts for name in counted.functions]

    def update(
        self,
        outputs: Mapping[str | None, np.ndarray],
        targets: Mapping[str, np.ndarray],
        weights: np.ndarray | None = None,
    ) -> None:
        """Add a microbatch.

        Args:
          outputs: by name, with as many samples as targets.
          targets: by staged name.
          weights: as in `Metrics.update`.
        """
        for term, counted, _ in self._parts:
            if counted.wanted:
                own = weights if term.loss.sample_weights else None
                counted.update(outputs[term.output], targets[term.target], own)

    def results(self, means: Sequence[float]) -> dict[str, Any]:
        """Metrics by name.

        Args:
          means: mean of each loss, without its weight.
        """
        result = {}
        for term, counted, names in self._parts:
            for name, value in counted.results(means[term.number]).items():
                result.update(dict.fromkeys(names[name], value))
        return result


def check_metrics(asked: Any, program: Program) -> list[str]:
    """Check metrics before anything runs.

    Returns:
      Names of their results.
    Raises:
      UsageError: as in `OutputMetrics`, or outputs are not kept.
    """
    terms = terms_of_recipe(program.recipe, TARGET)
    for number, own in _by_loss(asked, program, terms).items():
        shape = program.shape_of(terms[number].output)
        if shape and not shape[0]:
            raise UsageError(
                f"metric {next(iter(own))!r}: outputs of shape {list(shape[1:])} are computed in "
                "time segments and not kept. Compile with segments off."
            )
    return OutputMetrics(asked, program, terms).names


def _called_of(first: str | None, name: str, term: Term) -> str:
    return f"{first}_{name}" if term.label else name


def _by_loss(asked: Any, program: Program, terms: Sequence[Term]) -> dict[int, dict[str, Any]]:
    """Index of a loss -> its metrics by name."""
    result: dict[int, dict[str, Any]] = {}
    for output, name, item in _asked(asked, terms):
        for term in _chosen(output, name, item, program, terms):
            result.setdefault(term.number, {})[name] = item
    return result


def _chosen(
    output: str | None, name: str, item: Any, program: Program, terms: Sequence[Term]
) -> list[Term]:
    """The losses that a metric applies to: for each output, the first that it suits."""
    mine = [term for term in terms if output in (None, term.output)]
    result: dict[str | None, Term] = {}
    if not callable(item):
        check_name(name)
    for term in mine:
        shape = program.shape_of(term.output)
        fits = term.loss.takes_target if callable(item) else suits(name, term.loss, shape)
        if fits:
            result.setdefault(term.output, term)
    if not terms[0].label:
        shape = program.output_shape
        if not callable(item) or program.sliced:
            checked(item if callable(item) else name, terms[0].loss, shape, program.sliced)
        return [*terms]
    if not result:
        losses = ", ".join(f"{term.output} {term.loss.name}" for term in mine)
        raise UsageError(
            f"metric {name}: it suits none of the losses {losses}. Choose another, or name its "
            f"output (OUTPUT={name})."
        )
    return [*result.values()]


def _asked(asked: Any, terms: Sequence[Term]) -> Iterator[Asked]:
    """The requested metrics, after checking their outputs."""
    outputs = {str(term.output) for term in terms if term.output is not None}
    for output, name, item in _split(asked, outputs, bool(terms[0].label)):
        if output is not None and output not in outputs:
            known = ", ".join(sorted(outputs)) or "the only one, which needs no name"
            raise UsageError(
                f"metrics: {output}={name}: the Program has no loss of this output; it has "
                f"{known}.{did_you_mean(output, sorted(outputs))}"
            )
        yield output, name, item


def _split(asked: Any, outputs: Iterable[str], several: bool) -> Iterator[Asked]:
    if isinstance(asked, Mapping):
        for key, item in asked.items():
            if several or key in outputs and not callable(item):
                yield from ((str(key), name, value) for name, value in pairs_of(item))
            else:
                yield None, str(key), item
        return
    for item in [asked] if isinstance(asked, str) or _is_one(asked) else asked:
        if isinstance(item, str):
            yield from _words(item)
        else:
            yield None, called(item), item


def _is_one(asked: Any) -> bool:
    """Whether `asked` is a single metric, not a list; arrays are refused."""
    if hasattr(asked, "dtype"):
        pairs_of(asked)
    return callable(asked) or not isinstance(asked, Iterable)


def _words(text: str) -> Iterator[Asked]:
    output: str | None = None
    for word in filter(None, map(str.strip, text.split(","))):
        before, equals, name = word.rpartition("=")
        output = before.strip() if equals else output
        yield output, plain_name(name), plain_name(name)
