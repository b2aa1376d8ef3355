"""Evaluates a session on samples: loss, accuracy and other metrics."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.source import Source
from ...errors import DataError, UsageError
from ...formats import decoded
from ...program import TARGET, WEIGHT
from ..session import Session

if TYPE_CHECKING:
    from ..samples.lengths import Part
    from ..samples.sample_callback import Staging
    from ..samples.sums import Sums
    from .output_metrics import OutputMetrics


def check_source(session: Session, source: Source, tape: str) -> None:
    """Check that a source fits the model, before anything is run or written.

    Raises:
      DataError: fields or layouts do not match, or a label or token is out of range.
    """
    if session.lengths is None:
        _check_alike(session, source, tape)
        return
    for part in session.lengths.parts(source):
        session.change(part.program)
        _check_alike(session, part.source, tape)


def _check_alike(session: Session, source: Source, tape: str) -> None:
    """Like `check_source`, for samples of the session's current length."""
    fields = session.staging(source, tape).fields
    ignored = session.program.ignored_of(TARGET)
    source.check_limits(session.limits(source), ignored, session.ignored(source))
    source.check_values(fields)


def evaluate_source(
    session: Session,
    source: Source,
    on_batch: Callable[[], None] = lambda: None,
    metrics: Any = (),
) -> dict[str, Any]:
    """Mean loss, number of samples and, for classes, accuracy.

    Args:
      on_batch: called before each microbatch; may raise to stop.
      metrics: additional metrics, as in `OutputMetrics`.
    """
    if session.lengths is not None:
        return _by_length(session, session.lengths.parts(source), on_batch, metrics)
    check_source(session, source, "eval")
    staging = session.staging(source, "eval")
    counted = _counted(metrics, session)
    watch = _Watch(session, counted)

    def filler(indices: np.ndarray) -> None:
        watch.take()
        on_batch()
        staging.take(indices)
        watch.staged(source.n)

    with session.turn:
        result = session.evaluate(source.n, filler)
        watch.take()
        means = session.sums().means
    return {**result, **(counted.results(means) if counted else {})}


def _by_length(
    session: Session, parts: "Sequence[Part]", on_batch: Callable[[], None], metrics: Any
) -> dict[str, Any]:
    """Like `evaluate_source`, for samples by length: means over all their targets."""
    counted = _counted(metrics, session)
    watch, n, sums = _Watch(session, counted), 0, None
    with session.turn:  # all of them on the same weights
        for part in parts:
            session.change(part.program)
            _check_alike(session, part.source, "eval")
            staging = session.staging(part.source, "eval")
            watch.begin()

            def filler(rows: np.ndarray, part: "Part" = part, staging: "Staging" = staging) -> None:
                watch.take()
                on_batch()
                staging.take(part.indices[rows])
                watch.staged(len(part.indices))

            n += int(session.evaluate(len(part.indices), filler)["samples"])
            watch.take()
            own = session.sums().of_samples(part.program)
            sums = own if sums is None else sums + own
    assert sums is not None, "a source has samples"
    result = sums.results()
    out = {"loss": result.pop("loss"), "samples": n, **result}
    return {**out, **(counted.results(sums.means) if counted else {})}


def _counted(metrics: Any, session: Session) -> "OutputMetrics | None":
    """An `OutputMetrics` object; None, without importing it, if there are no metrics."""
    weighed = any(term.loss.sample_weights and term.loss.accuracy for term in session.terms)
    if not metrics and not weighed:
        return None
    from .output_metrics import OutputMetrics

    result = OutputMetrics(metrics, session.program, session.terms)
    if result.functions and session.lengths is not None and session.lengths.outputs[0]:
        raise UsageError(
            f"metrics: {result.functions[0]}: a function gets the outputs of all samples as one "
            "array, but theirs have different lengths. Use metrics by name."
        )
    return result


def evaluate_batches(
    session: Session,
    batches: Iterable[Any],
    on_batch: Callable[[], None] = lambda: None,
    metrics: Any = (),
) -> dict[str, Any]:
    """Like `evaluate_source`, for (x, y) batches or `Samples` of any size.

    Raises:
      DataError: there are no batches, or one does not fit the model.
    """
    from ..samples.handed_over import Samples  # only batches need these
    from ..samples.taker import handed_over

    given = handed_over(session)
    counted = _counted(metrics, session)
    watch = _Watch(session, counted)
    n = 0
    sums: Sums | None = None
    with session.turn:  # all of them on the same weights
        for item in batches:
            samples = item if isinstance(item, Samples) else given.of_item(item)
            given.enter(samples)
            watch.begin()

            def filler(indices: np.ndarray, samples=samples) -> None:
                watch.take()
                on_batch()
                given.put(samples, indices, session.buffers("eval"))
                watch.staged(len(samples))

            session.evaluate(len(samples), filler)
            watch.take()
            n += len(samples)
            own = session.sums()
            own = own if session.lengths is None else own.of_samples(session.program)
            sums = own if sums is None else sums + own
    if sums is None:
        raise DataError("evaluate: the data returned no batches. Pass data with samples.")
    result = sums.results()
    out = {"loss": result.pop("loss"), "samples": n, **result}
    return {**out, **(counted.results(sums.means) if counted else {})}


class _Watch:
    """Passes outputs and targets of each microbatch to metrics, before they are overwritten."""

    def __init__(self, session: Session, metrics: "OutputMetrics | None") -> None:
        self._session, self._metrics = session, metrics
        self._targets: dict[str, np.ndarray] = {}
        self._weights: np.ndarray | None = None
        self._done = 0

    def begin(self) -> None:
        """Start another evaluation run."""
        self._done = 0

    def staged(self, samples: int) -> None:
        """Called when a microbatch was staged, in a run over `n` samples."""
        if self._metrics is not None and self._metrics.wanted:
            staged = self._session.buffers("eval")
            valid = min(len(staged[TARGET]), samples - self._done)
            self._done += valid
            names = {term.target for term in self._session.terms if term.loss.takes_target}
            self._targets = {
                name: np.array(decoded(staged[name][:valid])) for name in names | {TARGET}
            }
            weights = staged.get(WEIGHT)
            self._weights = None if weights is None else np.array(decoded(weights[:valid]))

    def take(self) -> None:
        """Called when the previously staged microbatch, if any, has been evaluated."""
        if self._metrics is not None and self._targets:
            n = len(self._targets[TARGET])
            outputs = {name: array[:n] for name, array in self._session.outputs.items()}
            self._metrics.update(outputs, self._targets, self._weights)
            self._targets = {}
