"""Metrics of evaluations: named ones, and user-defined functions."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...errors import UsageError
from ...formats import FORMATS
from ...losses import Loss
from ...units.hints import did_you_mean
from .metric_kinds import LOSS, METRICS, SCORES, TABLE, TOP, USUAL_TOP, Counts, Metric

NAMES = tuple(METRICS)
_TOP = re.compile(r"top_?([1-9][0-9]{0,5})(_acc|_accuracy)?")
# Names in Keras, scikit-learn and torchmetrics; "top_k" is top 5, as in Keras.
ALIASES = {
    alias: USUAL_TOP if name == TOP else name
    for name, metric in METRICS.items()
    for alias in metric.aliases
}
_AVERAGES = ("binary", "macro", "micro", "samples", "weighted")  # over classes, in scikit-learn
_MOST_CLASSES = 2**12
_BEST = 5  # classes kept per position when logits are computed in slices


class Metrics:
    """Metrics of one evaluation, updated one microbatch at a time.

    accuracy, topK (top5: the target is among the five largest), f1, precision, recall and miou
    (intersection over union; means over the classes that occur, like sklearn's "macro"; with one
    logit per target, of the positive class), auc (area under the ROC curve; with more than two
    classes, the mean of one-vs-rest; scores are kept in memory until the end), confusion (rows:
    targets, columns: predictions), perplexity (exp of the loss); mae, mse and rmse for regression.
    A user-defined function gets all outputs and targets, [n, ...], at the end; they are kept in
    memory until then. Names may be in capitals or those of other tools (ALIASES); results have the
    requested name.

    If the loss weights samples, metrics do too, and so does the accuracy of every evaluation;
    targets of weight 0 are ignored. User-defined functions get all samples and no weights.

    Args:
      asked: names and functions, or a mapping from names to functions.
      loss: the Program's loss; it determines the class axis and ignored targets.
      shape: shape of the model's output for a microbatch.
      best: outputs are the best classes of each position (`Program.sliced`).
    Raises:
      UsageError: an unknown metric, or one that does not suit the loss.
    """

    def __init__(self, asked: Any, loss: Loss, shape: tuple[int, ...], best: bool = False) -> None:
        self._best = best
        self._own: dict[str, Callable[..., Any]] = {}
        self._called: dict[str, str] = {}  # requested name -> metric
        for name, item in pairs_of(asked):
            if callable(item) and not best:
                self._own[name] = item
            else:
                self._called[name] = checked(item if best else name, loss, shape, best)
        if loss.sample_weights and loss.accuracy:
            self._called["accuracy"] = "accuracy"  # the kernel ignores weights
        self._names = sorted({*self._called.values()})
        self._parts = {_kind(name).of for name in self._names}
        self._counts = any(of != LOSS for of in self._parts)
        self.wanted = bool(self._own) or self._counts
        self._loss, self._shape = loss, shape
        self._classes = loss.limit(shape) if shape else None
        self._binary = bool(shape) and loss.is_binary(shape)
        self._axis = loss.classes_on(shape) if shape else None
        if self._binary:
            self._classes = 2
        self._sums = Counts(self._binary)
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def functions(self) -> list[str]:
        """Names of the user-defined metrics."""
        return [*self._own]

    def update(
        self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add a microbatch.

        Args:
          outputs: [k, ...] before a final softmax.
          targets: [k, ...].
          weights: sample weights [k]; None: all equal.
        """
        outputs = outputs.astype(np.float32)
        if self._own:
            self._kept.append((outputs.copy(), targets.copy()))
        if not self._counts:
            return
        sums = self._sums
        if self._classes is None:
            away = outputs.astype(np.float64) - targets.reshape(outputs.shape)
            away = away.reshape(len(away), -1)
            each = _weights_of(away.size, weights).reshape(away.shape)
            sums.count += float(each.sum())
            sums.absolute += float((each * np.abs(away)).sum())
            sums.squares += float((each * np.square(away)).sum())
            return
        said, rank, truth, each = self._ranked(outputs, targets, weights)
        sums.count += float(each.sum())
        sums.right += float(each[said == truth].sum())
        if SCORES in self._parts:
            sums.scores.append(self._scores(outputs, targets, weights))
        if TABLE in self._parts:
            if sums.table is None:
                sums.table = np.zeros((self._classes, self._classes))
            np.add.at(sums.table, (truth, said), each)
        for name in self._names:
            result = _TOP.fullmatch(name)
            if result:
                right = float(each[rank < int(result[1])].sum())
                sums.tops[name] = sums.tops.get(name, 0) + right

    def _ranked(
        self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(prediction, rank of the target's class, class, weight), each [n]."""
        if self._best:
            best, truth = outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1)
            counts = truth != getattr(self._loss, "ignore_index", None)
            best, truth = best[counts].astype(np.int64), truth[counts].astype(np.int64)
            hits = best == truth[:, None]
            rank = np.where(hits.any(axis=1), hits.argmax(axis=1), _MOST_CLASSES)
            return best[:, 0], rank, truth, _weights_of(targets.size, weights)[counts]
        scores, truth, each = self._scores(outputs, targets, weights)
        own = np.take_along_axis(scores, truth[:, None], axis=1)
        before = np.arange(scores.shape[1]) < truth[:, None]
        rank = ((scores > own) | ((scores == own) & before)).sum(axis=1)
        return scores.argmax(axis=1), rank, truth, each

    def _scores(
        self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores [n, classes], classes [n] and weights [n] of targets that are not ignored."""
        ignored = getattr(self._loss, "ignore_index", None)
        if self._binary:
            logits, counts = outputs.reshape(-1, 1), targets.reshape(-1) != ignored
            truth = (targets.reshape(-1) >= 0.5).astype(np.int64)
            scores = np.concatenate([np.zeros_like(logits), logits], axis=1)
            return scores[counts], truth[counts], _weights_of(len(truth), weights)[counts]
        axis = self._axis
        assert axis is not None
        scores = np.moveaxis(outputs, axis, -1).reshape(-1, outputs.shape[axis])
        truth = targets.reshape(-1).astype(np.int64)
        counts = truth != ignored
        return scores[counts], truth[counts], _weights_of(len(truth), weights)[counts]

    def results(self, loss: float) -> dict[str, Any]:
        """Metrics by name; NaN if nothing was counted.

        Args:
          loss: the mean loss of the evaluation.
        Raises:
          UsageError: a user-defined function failed.
        """
        self._sums.loss = loss
        result = {name: self._result(metric) for name, metric in self._called.items()}
        if self._own:
            outputs, targets = (np.concatenate(part) for part in zip(*self._kept, strict=True))
            self._kept = []
        for name, function in self._own.items():
            try:
                value = function(outputs, targets)
            except Exception as error:
                raise UsageError(
                    f"metric {name}: {type(error).__name__}: {error}. It gets outputs "
                    f"{list(outputs.shape)} and targets {list(targets.shape)}."
                ) from error
            result[name] = value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
        return result

    def _result(self, name: str) -> Any:
        metric = _kind(name)
        if metric.of != LOSS and not self._sums.count:
            return math.nan
        value = metric.value(self._sums)
        return value[name] if metric is METRICS[TOP] else value


def _weights_of(targets: int, weights: np.ndarray | None) -> np.ndarray:
    """Sample weight of each target, float64 [targets]; 1 without weights."""
    if weights is None:
        return np.ones(targets)
    return np.repeat(weights.astype(np.float64), targets // len(weights))


def _kind(name: str) -> Metric:
    """The metric of a canonical name, such as top3."""
    return METRICS[TOP if _TOP.fullmatch(name) else name]


def _is_classes(loss: Loss) -> bool:
    return not FORMATS[loss.target_dtype].floats


def pairs_of(asked: Any) -> Iterable[tuple[str, Any]]:
    """(name of the result, metric name or function) of each requested metric."""
    if hasattr(asked, "dtype"):
        raise UsageError(
            f"metrics: an array {list(asked.shape)}; expected names or functions. Pass data as one "
            "argument: evaluate((x, y))."
        )
    if isinstance(asked, str):
        names = filter(None, map(plain_name, asked.split(",")))
        return [(name, name) for name in names]
    if isinstance(asked, Mapping):
        return [(str(name), item) for name, item in asked.items()]
    if callable(asked) or not isinstance(asked, Iterable):
        asked = [asked]
    asked = [plain_name(item) if isinstance(item, str) else item for item in asked]
    return [(item if isinstance(item, str) else called(item), item) for item in asked]


def plain_name(name: str) -> str:
    """The name of a metric's result, in lower case and without blanks around it."""
    return name.strip().lower()


def called(function: Any) -> str:
    """The name of a user-defined metric."""
    if not callable(function):
        raise UsageError(f"metrics: {repr(function)[:80]}: expected a name or a function.")
    return getattr(function, "__name__", type(function).__name__)


def metric_of(name: str) -> str:
    """Canonical name of a metric; unknown names are returned unchanged."""
    plain = name.lower().replace("-", "_").replace(" ", "_")
    top = _TOP.fullmatch(plain)
    return f"top{top[1]}" if top else ALIASES.get(plain, plain)


def rises(name: str) -> bool:
    """Whether higher is better, for a metric or an average of one (f1_macro); False for other
    names."""
    before, _, average = metric_of(name).rpartition("_")
    plain = metric_of(before if average in _AVERAGES else name)
    metric = METRICS.get(TOP if _TOP.fullmatch(plain) else plain)
    return metric is not None and metric.rises


def checked(asked: Any, loss: Loss, shape: tuple[int, ...], best: bool = False) -> str:
    """Check a metric against the loss; returns its canonical name.

    Args:
      loss, shape, best: as in `Metrics`.
    Raises:
      UsageError: no metric has this name, or it does not suit the loss.
    """
    name = metric_of(asked) if isinstance(asked, str) else asked
    most = _TOP.fullmatch(name) if isinstance(name, str) else None
    if best and (not isinstance(name, str) or (most and int(most[1]) > _BEST)):
        shown = called(name) if callable(name) else name
        raise UsageError(
            f"metric {shown}: with allow slices, only the {_BEST} best classes are known. Choose "
            f"top{_BEST} or another named metric, or compile without slices."
        )
    check_name(asked)
    if best and _kind(name).of == SCORES:
        raise UsageError(f"metric {name}: logits in slices are not kept. Compile without slices.")
    if not suits(name, loss, shape):
        if not loss.takes_target:
            raise UsageError(
                f"metric {asked}: loss {loss.name} takes no targets. Leave the metric out."
            )
        fits = "classes" if _kind(name).of_classes else "values"
        raise UsageError(
            f"metric {asked}: for {fits}, but the loss is {loss.name}. Choose another."
        )
    many = _kind(name).of == TABLE and bool(shape) and not loss.is_binary(shape)
    n = (loss.limit(shape) or 0) if many else 0
    if n > _MOST_CLASSES:
        raise UsageError(
            f"metric {name}: {n} classes; expected at most {_MOST_CLASSES}, because it counts "
            "pairs. Leave it out, or choose top5."
        )
    return name


def check_name(name: Any) -> None:
    """Raise UsageError if no metric has this name."""
    known = {*METRICS} - {TOP}
    result = metric_of(name) if isinstance(name, str) else ""
    if not (result in known or _TOP.fullmatch(result)):
        raise UsageError(
            f"metric {str(name)[:40]!r}: expected one of {', '.join(NAMES)}, such as top5, or a "
            f"function of (outputs, targets).{did_you_mean(str(name), (*NAMES, *ALIASES))}"
        )


def suits(name: str, loss: Loss, shape: tuple[int, ...]) -> bool:
    """Whether a metric applies to an output with this loss and shape."""
    if not loss.takes_target:
        return False
    metric = _kind(metric_of(name))
    if metric.of == LOSS:
        return _is_classes(loss)
    if not shape:
        return metric.of_classes == _is_classes(loss)
    if metric.of_classes:
        return loss.is_binary(shape) or loss.classes_on(shape) is not None
    alike = math.prod(loss.target_shape(shape)) == math.prod(shape)
    return not _is_classes(loss) and not loss.is_binary(shape) and alike
