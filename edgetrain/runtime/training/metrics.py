"""Metrics of evaluations: named ones, and user-defined functions."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...errors import UsageError
from ...losses import Loss
from ...program import Program
from ...units.hints import did_you_mean

NAMES = (
    "accuracy", "topK", "f1", "precision", "recall", "miou", "auc", "confusion", "mae", "rmse",
    "perplexity",
)  # fmt: skip
_TOP = re.compile(r"top_?([1-9][0-9]{0,5})")
_MOST_CLASSES = 2**12
_BEST = 5  # classes that logits in slices leave of each position
_OF_TABLES = ("f1", "precision", "recall", "miou", "confusion")
_OF_CLASSES = ("accuracy", "top", "auc", "perplexity", *_OF_TABLES)


class Metrics:
    """Metrics of one evaluation, fed a microbatch at a time.

    accuracy, topK (top5: the target is among the five largest), f1, precision, recall and miou
    (intersection over union; means over the classes that occur, like sklearn's "macro"; with one
    logit per target, of the positive class), auc (area under the ROC curve, with more than two
    classes the mean of each against the rest; scores are kept in memory to the end), confusion
    (rows: targets, columns: predictions), perplexity (exp of the loss); mae and rmse for outputs
    that are values. A user-defined function gets all outputs and targets, [n, ...], at the end;
    they are kept in memory until then. Names may be in capitals.

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
        self._names: list[str] = []
        for name, item in _pairs(asked):
            if callable(item) and not best:
                self._own[name] = item
            else:
                self._names.append(_checked(item if best else name, loss, shape, best))
        if loss.sample_weights and loss.accuracy and "accuracy" not in self._names:
            self._names.append("accuracy")  # the kernel counts targets, whatever they weigh
        self.wanted = bool(self._own) or any(n not in ("perplexity",) for n in self._names)
        self._loss, self._shape = loss, shape
        self._classes, self._binary = loss.limit(shape) if shape else None, _is_binary(loss)
        if self._binary:
            self._classes = 2
        self._table: np.ndarray | None = None
        self._tops: dict[str, float] = {}
        self._tabled = [name for name in self._names if name in _OF_TABLES]
        self._count, self._right, self._absolute, self._squares = 0.0, 0.0, 0.0, 0.0
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []
        self._judged: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    @property
    def functions(self) -> list[str]:
        """Names of the user-defined ones."""
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
        if self._classes is None:
            away = outputs.astype(np.float64) - targets.reshape(outputs.shape)
            away = away.reshape(len(away), -1)
            each = _weights_of(away.size, weights).reshape(away.shape)
            self._count += float(each.sum())
            self._absolute += float((each * np.abs(away)).sum())
            self._squares += float((each * np.square(away)).sum())
            return
        said, rank, truth, each = self._ranked(outputs, targets, weights)
        self._count += float(each.sum())
        self._right += float(each[said == truth].sum())
        if "auc" in self._names:
            self._judged.append(self._scores(outputs, targets, weights))
        if self._tabled:
            if self._table is None:
                self._table = np.zeros((self._classes, self._classes))
            np.add.at(self._table, (truth, said), each)
        for name in self._names:
            found = _TOP.fullmatch(name)
            if found:
                right = float(each[rank < int(found[1])].sum())
                self._tops[name] = self._tops.get(name, 0) + right

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
        if self._binary:
            logits = outputs.reshape(-1, 1)
            truth = (targets.reshape(-1) >= 0.5).astype(np.int64)
            scores = np.concatenate([np.zeros_like(logits), logits], axis=1)
            return scores, truth, _weights_of(len(truth), weights)
        axis = getattr(self._loss, "axis")(self._shape)  # noqa: B009 - of losses of classes
        scores = np.moveaxis(outputs, axis, -1).reshape(-1, outputs.shape[axis])
        truth = targets.reshape(-1).astype(np.int64)
        counts = truth != getattr(self._loss, "ignore_index", None)
        return scores[counts], truth[counts], _weights_of(len(truth), weights)[counts]

    def results(self, loss: float) -> dict[str, Any]:
        """Metrics by name; NaN if nothing was counted.

        Args:
          loss: the mean loss of the evaluation.
        Raises:
          UsageError: a user-defined function failed.
        """
        found = {name: self._result(name, loss) for name in self._names}
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
            found[name] = value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
        return found

    def _auc(self) -> float:
        parts = zip(*self._judged, strict=True)
        scores, truth, each = (np.concatenate(part) for part in parts)
        scores = scores.astype(np.float64)
        if scores.shape[1] == 2:
            return _area(scores[:, 1] - scores[:, 0], truth == 1, each)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        areas = [_area(scores[:, k], truth == k, each) for k in range(scores.shape[1])]
        known = [area for area in areas if not math.isnan(area)]
        return float(np.mean(known)) if known else math.nan

    def _result(self, name: str, loss: float) -> Any:
        if name == "perplexity":
            return math.exp(loss) if loss < 700 else math.inf
        if not self._count:
            return math.nan
        if name == "mae":
            return self._absolute / self._count
        if name == "rmse":
            return math.sqrt(self._squares / self._count)
        if name in self._tops:
            return self._tops[name] / self._count
        if name == "accuracy":
            return self._right / self._count
        if name == "auc":
            return self._auc()
        assert self._table is not None
        if name == "confusion":
            whole = (self._table == np.rint(self._table)).all()
            return (self._table.astype(np.int64) if whole else self._table).tolist()
        hits = np.diag(self._table)
        truth, said = self._table.sum(axis=1), self._table.sum(axis=0)
        values = {
            "precision": _share(hits, said),
            "recall": _share(hits, truth),
            "f1": _share(2 * hits, truth + said),
            "miou": _share(hits, truth + said - hits),
        }[name]
        chosen = [1] if self._binary else np.flatnonzero(truth + said)
        return float(values[chosen].mean())


def _area(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> float:
    """How often a positive's score is above a negative's; ties count half, NaN without either."""
    _, place = np.unique(scores, return_inverse=True)
    ups = np.bincount(place, weights * positive)
    downs = np.bincount(place, weights * ~positive)
    pairs = ups.sum() * downs.sum()
    won = (ups * (np.cumsum(downs) - downs / 2)).sum()
    return float(won / pairs) if pairs else math.nan


def _weights_of(targets: int, weights: np.ndarray | None) -> np.ndarray:
    """float64 [targets]: the weight of each target's sample, or 1."""
    if weights is None:
        return np.ones(targets)
    return np.repeat(weights.astype(np.float64), targets // len(weights))


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; 0 if whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _is_binary(loss: Loss) -> bool:
    return loss.binary


def _pairs(asked: Any) -> Iterable[tuple[str, Any]]:
    if hasattr(asked, "dtype"):
        raise UsageError(
            f"metrics: an array {list(asked.shape)}; expected names or functions. Pass data as one "
            "argument: evaluate((x, y))."
        )
    if isinstance(asked, str):
        return [(name.lower(), name.lower()) for name in filter(None, asked.split(","))]
    if isinstance(asked, Mapping):
        return [(str(name), item) for name, item in asked.items()]
    if callable(asked) or not isinstance(asked, Iterable):
        asked = [asked]
    asked = [item.lower() if isinstance(item, str) else item for item in asked]
    return [(item if isinstance(item, str) else _called(item), item) for item in asked]


def _called(function: Any) -> str:
    if not callable(function):
        raise UsageError(f"metrics: {repr(function)[:80]}: expected a name or a function.")
    return getattr(function, "__name__", type(function).__name__)


def _checked(name: Any, loss: Loss, shape: tuple[int, ...], best: bool = False) -> str:
    most = _TOP.fullmatch(name) if isinstance(name, str) else None
    if best and (not isinstance(name, str) or (most and int(most[1]) > _BEST)):
        shown = _called(name) if callable(name) else name
        raise UsageError(
            f"metric {shown}: with allow slices, only the {_BEST} best classes are known. Choose "
            f"top{_BEST} or another named metric, or compile without slices."
        )
    if best and name == "auc":
        raise UsageError("metric auc: logits in slices are not kept. Compile without slices.")
    if not isinstance(name, str) or not (name in NAMES[:1] + NAMES[2:] or _TOP.fullmatch(name)):
        raise UsageError(
            f"metric {str(name)[:40]!r}: expected one of {', '.join(NAMES)}, such as top5, or a "
            f"function of (outputs, targets).{did_you_mean(str(name), NAMES)}"
        )
    if not loss.takes_target:
        raise UsageError(f"metric {name}: loss {loss.name} takes no targets. Leave the metric out.")
    classes = loss.target_dtype == "i32"
    of_classes = name.startswith(_OF_CLASSES)
    if of_classes != (classes or _is_binary(loss)) or (_is_binary(loss) and name == "perplexity"):
        fits = "classes" if of_classes else "values"
        raise UsageError(f"metric {name}: for {fits}, but the loss is {loss.name}. Choose another.")
    n = (loss.limit(shape) or 0) if name in _OF_TABLES and classes and shape else 0
    if n > _MOST_CLASSES:
        raise UsageError(
            f"metric {name}: {n} classes; expected at most {_MOST_CLASSES}, because it counts "
            "pairs. Leave it out, or choose top5."
        )
    return name


def names_of(asked: Any) -> list[str]:
    """Names of the results of these metrics."""
    return [name for name, _ in _pairs(asked)]


def check_single(program: Program) -> None:
    """Metrics are of one output.

    Raises:
      UsageError: the Program has several losses.
    """
    if "losses" in program.recipe:
        names = ", ".join(str(name) for name in program.output_names)
        raise UsageError(
            f"metrics: the Program has losses of {names}, and metrics are of one output. Leave "
            "them out (each loss and accuracy is reported), or count them from predict()."
        )


def check_metrics(asked: Any, loss: Loss, program: Program) -> None:
    """Check metrics before anything runs.

    Args:
      asked, loss: as in `Metrics`.
    Raises:
      UsageError: an unknown metric, or one that does not suit the loss.
    """
    for name, item in _pairs(asked):
        if program.output_shape and not program.output_shape[0]:
            raise UsageError(
                f"metric {name!r}: outputs of shape {list(program.output_shape[1:])} are computed "
                "in time segments and not kept. Compile with segments off."
            )
        if not callable(item) or program.sliced:
            _checked(item if callable(item) else name, loss, program.output_shape, program.sliced)
