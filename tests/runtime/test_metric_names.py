"""Metrics by their usual names, computed as in scikit-learn, in Python and in the shell."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.losses import Loss
from edgetrain.runtime.training.metric_kinds import METRICS, TOP, VALUES, Metric
from edgetrain.runtime.training.metrics import ALIASES, NAMES, Metrics, metric_of, rises
from tests.runtime.online_net import compiled, drawn, exported

N, CLASSES = 40, 7
TRAIN, TEST = drawn(48), drawn(30, 1)


def sklearn() -> Any:
    return pytest.importorskip("sklearn.metrics")


def shares(scores: np.ndarray) -> np.ndarray:
    found = np.exp(scores.astype(np.float64))
    return found / found.sum(axis=1, keepdims=True)


def top(k: int) -> Callable[..., float]:
    return lambda s, y, w: sklearn().top_k_accuracy_score(
        y, s, k=k, labels=range(s.shape[1]), sample_weight=w
    )


def averaged(name: str) -> Callable[..., float]:
    """Average over classes that occur in targets or predictions, scikit-learn's default labels."""

    def count(s: np.ndarray, y: np.ndarray, w: Any) -> float:
        more = {} if name == "jaccard_score" else {"zero_division": 0}
        score = getattr(sklearn(), name)
        return score(y, s.argmax(axis=1), average="macro", sample_weight=w, **more)

    return count


def area(s: np.ndarray, y: np.ndarray, w: Any) -> float:
    """One class against the rest; scikit-learn requires every class among the targets."""
    each = [sklearn().roc_auc_score(y == k, shares(s)[:, k], sample_weight=w) for k in np.unique(y)]
    return float(np.mean(each))


OF_CLASSES: dict[str, Callable[..., Any]] = {
    "accuracy": lambda s, y, w: sklearn().accuracy_score(y, s.argmax(axis=1), sample_weight=w),
    "top2": top(2), "top_3": top(3), "top-4": top(4), "top_k": top(5), "Top5": top(5),
    "top_2_accuracy": top(2),
    "f1": averaged("f1_score"), "precision": averaged("precision_score"),
    "recall": averaged("recall_score"), "mIoU": averaged("jaccard_score"), "AUC": area,
    "confusion": lambda s, y, w: sklearn().confusion_matrix(
        y, s.argmax(axis=1), labels=range(s.shape[1]), sample_weight=w
    ),
}  # fmt: skip
OF_VALUES: dict[str, Callable[..., float]] = {
    "mae": lambda s, y, w: sklearn().mean_absolute_error(y, s, sample_weight=w),
    "MSE": lambda s, y, w: sklearn().mean_squared_error(y, s, sample_weight=w),
    "rmse": lambda s, y, w: sklearn().mean_squared_error(y, s, sample_weight=w) ** 0.5,
}
# With one logit per target: metrics of the positive class.
OF_PAIRS: dict[str, Callable[..., float]] = {
    "accuracy": lambda s, y, w: sklearn().accuracy_score(y, s > 0, sample_weight=w),
    "f1_score": lambda s, y, w: sklearn().f1_score(y, s > 0, sample_weight=w),
    "precision": lambda s, y, w: sklearn().precision_score(y, s > 0, sample_weight=w),
    "recall": lambda s, y, w: sklearn().recall_score(y, s > 0, sample_weight=w),
    "iou": lambda s, y, w: sklearn().jaccard_score(y, s > 0, sample_weight=w),
    "roc_auc": lambda s, y, w: sklearn().roc_auc_score(y, s, sample_weight=w),
}


def counted(name: str, loss: str, outputs: np.ndarray, targets: np.ndarray, weights: Any) -> Any:
    found = Metrics(name, Loss(loss), (8, *outputs.shape[1:]))
    for k in range(0, len(outputs), 8):
        part = slice(k, k + 8)
        found.update(outputs[part], targets[part], None if weights is None else weights[part])
    return found.results(0.0)[name.lower()]


@pytest.mark.parametrize("weighs", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("name", OF_CLASSES)
def test_metrics_of_classes_are_those_of_sklearn(name: str, weighs: bool) -> None:
    """One class never occurs among the targets, another never among the predictions."""
    draw = np.random.default_rng(3)
    outputs = draw.standard_normal((N, CLASSES)).astype(np.float32)
    outputs[:, 0] = -9
    targets = draw.integers(0, CLASSES - 1, N)
    weights = draw.random(N) if weighs else None
    expected = OF_CLASSES[name](outputs, targets, weights)
    assert counted(name, "cross_entropy", outputs, targets, weights) == pytest.approx(expected)


@pytest.mark.parametrize("weighs", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("name", OF_VALUES)
def test_metrics_of_values_are_those_of_sklearn(name: str, weighs: bool) -> None:
    draw = np.random.default_rng(4)
    outputs = draw.standard_normal((N, 3)).astype(np.float32)
    targets = draw.standard_normal((N, 3)).astype(np.float32)
    weights = draw.random(N) if weighs else None
    expected = OF_VALUES[name](outputs, targets, weights)
    assert counted(name, "mse", outputs, targets, weights) == pytest.approx(expected)


@pytest.mark.parametrize("weighs", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("name", OF_PAIRS)
def test_metrics_of_one_logit_are_those_of_sklearn(name: str, weighs: bool) -> None:
    draw = np.random.default_rng(5)
    outputs = draw.standard_normal((N, 1)).round(1).astype(np.float32)  # with ties
    targets = draw.integers(0, 2, (N, 1))
    weights = draw.random(N) if weighs else None
    expected = OF_PAIRS[name](outputs[:, 0], targets[:, 0], weights)
    values = targets.astype(np.float32)
    assert counted(name, "bce_with_logits", outputs, values, weights) == pytest.approx(expected)


def test_every_metric_has_its_name_of_sklearn_and_every_alias_a_metric() -> None:
    named = {metric_of(name) for name in (*OF_CLASSES, *OF_VALUES, *OF_PAIRS)}
    plain = {"topK" if name.startswith("top") else name for name in named}
    assert plain == {*NAMES} - {"perplexity"}
    assert {metric_of(name) for name in ALIASES.values()} == {*ALIASES.values()} <= named | {"top5"}
    assert metric_of("Top-5") == metric_of("top_k") == metric_of("top_5_accuracy") == "top5"
    assert metric_of("F1 score") == "f1" and metric_of("own") == "own"


def test_the_help_names_every_metric_and_a_row_decides_which_value_is_better(capsys, monkeypatch):
    assert main(["eval", "--help-all"]) == 0
    named = capsys.readouterr().out.split("more metrics: ")[1].split(";")[0]
    assert named.split() == ", ".join("top5" if n == "topK" else n for n in NAMES).split()
    assert all(rises(name) == metric.rises for name, metric in METRICS.items() if name != TOP)
    assert rises("f1") and rises("top3") and not rises("rmse")
    bias = Metric(VALUES, True, lambda counts: counts.absolute, ("offset",))
    monkeypatch.setitem(METRICS, "bias", bias)
    assert rises("bias") and counted("bias", "mse", np.ones((2, 3)), np.zeros((2, 3)), None) == 6
    with pytest.raises(et.UsageError, match="metric bias: for values"):
        Metrics("bias", Loss("cross_entropy"), (2, 3))


@pytest.mark.parametrize("asked", ["f1, auc", " f1 ,AUC,", ["f1 ", " auc"]])
def test_blanks_around_names_do_not_count(asked: Any) -> None:
    assert [*Metrics(asked, Loss("cross_entropy"), (2, 3)).results(0.0)] == ["f1", "auc"]


def test_the_page_on_steps_names_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "steps.md").read_text()
    (listed,) = re.findall(r"(?s)Metrics\s+are(.*?),\s+or\s+your\s+own", page)
    assert re.sub(r"\([^)]*\)", "", listed).replace(",", " ").split() == [*NAMES]


def test_names_in_python_and_in_the_shell(tmp_path: Path, capsys, monkeypatch) -> None:
    """Results have the name that was requested; several names of one metric are computed once."""
    monkeypatch.chdir(tmp_path)
    program = compiled(exported(tmp_path)[1])
    program.save("net.edge")
    np.savez("data.npz", x=TRAIN[0], y=TRAIN[1])
    np.savez("test.npz", x=TEST[0], y=TEST[1])
    names = ["top_k", "top5", "top_2", "acc", "f1", "f1-score", "mIoU", "mean_iou", "AUC"]
    with et.Trainer(program, TRAIN, validation=TEST, metrics=names) as trainer:
        history = trainer.fit(epochs=1)
        found = trainer.evaluate(TEST)
    assert {f"val_{name.lower()}" for name in names} <= {*history}
    for one, other in (("f1", "f1-score"), ("miou", "mean_iou"), ("acc", "accuracy")):
        assert found[one] == pytest.approx(found[other])
    assert found["top_k"] == found["top5"] == 1.0 > found["top_2"] > found["acc"]
    argv = ["train", "net.edge", "--data", "npz:data.npz", "--validation", "npz:test.npz",
            "--out", "run", "--metrics", ",".join(names)]  # fmt: skip
    assert main([*argv, "--epochs", "1", "--monitor", "val_miou", "--patience", "3"]) == 0
    capsys.readouterr()
    argv = ["eval", "run", "--data", "npz:test.npz", "--metrics", ",".join(names), "--json"]
    assert main(argv) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {name: shown[name] for name in found} == pytest.approx(found)
    with pytest.raises(et.UsageError, match="metric 'roc': .* Did you mean"):
        et.Trainer(program, metrics="roc")
    with pytest.raises(et.UsageError, match="metric mean_absolute_error: for values"):
        et.Trainer(program, metrics="mean_absolute_error")
