"""The table of named metrics: what each counts, whether higher is better, and its value."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

# What a metric is computed from.
LOSS = "loss"  # the mean loss, if targets are classes
VALUES = "values"  # distances of outputs from targets
RANKS = "ranks"  # ranks of the targets' classes among the scores
TABLE = "table"  # how often each class was predicted for each class
SCORES = "scores"  # all scores, kept to the end


@dataclass
class Counts:
    """Counts of an evaluation, without ignored targets.

    Attributes:
      count: targets, or elements of a regression output; weighted, like all counts here.
      right: correctly predicted targets.
      absolute, squares: sums of absolute and squared differences from targets.
      tops: targets whose class is among the largest scores, by metric name (top5).
      table: [target, prediction]; None: no metric needs it.
      scores: scores [n, classes], classes [n] and weights [n] of each microbatch.
      binary: two classes, 0 and 1, with a single logit.
      loss: the mean loss.
    """

    binary: bool = False
    count: float = 0.0
    right: float = 0.0
    absolute: float = 0.0
    squares: float = 0.0
    tops: dict[str, float] = field(default_factory=dict)
    table: np.ndarray | None = None
    scores: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    loss: float = math.nan


class Metric(NamedTuple):
    """A named metric.

    Attributes:
      of: LOSS, VALUES, RANKS, TABLE or SCORES.
      rises: whether higher is better, for --keep-best and --patience.
      value: computes the value; `counts.count` is not 0, except for LOSS.
      aliases: names in other tools.
    """

    of: str
    rises: bool
    value: Callable[[Counts], Any]
    aliases: tuple[str, ...] = ()

    @property
    def of_classes(self) -> bool:
        """Whether its targets are classes."""
        return self.of != VALUES


def _perplexity(counts: Counts) -> float:
    return math.inf if counts.loss > 700 else math.exp(counts.loss)  # NaN stays NaN


def _of_table(part: Callable[..., np.ndarray]) -> Callable[[Counts], float]:
    """Mean over classes of `part`, a ratio computed from (hits, targets, predictions), each
    [classes]."""

    def value(counts: Counts) -> float:
        table = counts.table
        assert table is not None
        truth, said = table.sum(axis=1), table.sum(axis=0)
        chosen = [1] if counts.binary else np.flatnonzero(truth + said)
        return float(part(np.diag(table), truth, said)[chosen].mean())

    return value


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; 0 if whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _confusion(counts: Counts) -> list[list[float]]:
    table = counts.table
    assert table is not None
    whole = (table == np.rint(table)).all()
    return (table.astype(np.int64) if whole else table).tolist()


def _auc(counts: Counts) -> float:
    scores, truth, each = (np.concatenate(part) for part in zip(*counts.scores, strict=True))
    scores = scores.astype(np.float64)
    if scores.shape[1] == 2:
        return _area(scores[:, 1] - scores[:, 0], truth == 1, each)
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    areas = [_area(scores[:, k], truth == k, each) for k in range(scores.shape[1])]
    known = [area for area in areas if not math.isnan(area)]
    return float(np.mean(known)) if known else math.nan


def _area(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> float:
    """How often a positive scores higher than a negative; ties count half. NaN if either is
    missing."""
    _, place = np.unique(scores, return_inverse=True)
    ups = np.bincount(place, weights * positive)
    downs = np.bincount(place, weights * ~positive)
    pairs = ups.sum() * downs.sum()
    won = (ups * (np.cumsum(downs) - downs / 2)).sum()
    return float(won / pairs) if pairs else math.nan


TOP, USUAL_TOP = "topK", "top5"  # topK has a value for each K
METRICS = {
    "accuracy": Metric(RANKS, True, lambda c: c.right / c.count, ("acc",)),
    TOP: Metric(
        RANKS, True, lambda c: {name: hits / c.count for name, hits in c.tops.items()},
        ("top_k", "topk", "top_k_accuracy", "top_k_categorical_accuracy",
         "sparse_top_k_categorical_accuracy"),
    ),
    "f1": Metric(
        TABLE, True, _of_table(lambda hits, truth, said: _share(2 * hits, truth + said)),
        ("f1_score", "f1score"),
    ),
    "precision": Metric(TABLE, True, _of_table(lambda hits, truth, said: _share(hits, said))),
    "recall": Metric(TABLE, True, _of_table(lambda hits, truth, said: _share(hits, truth))),
    "miou": Metric(
        TABLE, True, _of_table(lambda hits, truth, said: _share(hits, truth + said - hits)),
        ("mean_iou", "meaniou", "iou", "jaccard"),
    ),
    "auc": Metric(SCORES, True, _auc, ("roc_auc", "auroc")),
    "confusion": Metric(TABLE, False, _confusion),
    "mae": Metric(VALUES, False, lambda c: c.absolute / c.count, ("mean_absolute_error",)),
    "mse": Metric(VALUES, False, lambda c: c.squares / c.count, ("mean_squared_error",)),
    "rmse": Metric(
        VALUES, False, lambda c: math.sqrt(c.squares / c.count), ("root_mean_squared_error",)
    ),
    "perplexity": Metric(LOSS, False, _perplexity),
}  # fmt: skip
