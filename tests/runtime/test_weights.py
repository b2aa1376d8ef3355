"""Sample weights, from the data to the update: sum(w * l) / sum(w) over a minibatch."""

from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import DataError, RunError
from edgetrain.losses import Loss
from edgetrain.runtime.training.metrics import Metrics
from tests.compiler.nets import Net
from tests.runtime.conftest import assert_same_bits

SAMPLES, WIDTH = 24, 6
RATE = 0.25


@pytest.fixture(scope="module")
def model():
    """Two layers: [batch, WIDTH] -> [batch, 3]."""
    net = Net(WIDTH)
    hidden = net.add("MatMul", ["x", net.weight("one", WIDTH, 8)], "h")
    net.add("MatMul", [net.add("Tanh", [hidden], "t"), net.weight("two", 8, 3)], "y")
    return net.model("y")


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and weights, some of which are 0."""
    draw = np.random.default_rng(seed)
    weights = draw.random(SAMPLES).astype(np.float32) * 3
    weights[::5] = 0
    return (
        draw.standard_normal((SAMPLES, WIDTH)).astype(np.float32),
        draw.integers(0, 3, SAMPLES),
        weights,
    )


def program(model, microbatch: int = 8, budget=None, **options):
    return et.compile(
        model, loss=Loss("cross_entropy", sample_weights=True, **options), budget=budget,
        optimizer=et.SGD(lr=RATE), minibatch=SAMPLES, microbatch=microbatch,
    )  # fmt: skip


def trained(found, given, steps: int = 1) -> dict[str, np.ndarray]:
    trainer = et.Trainer(found, given)
    try:
        trainer.fit(steps=steps)
        return {name: array.copy() for name, array in trainer.session.state().items()}
    finally:
        trainer.close()


def test_every_microbatch_gives_the_weighted_mean_of_the_minibatch(model):
    x, y, w = data()
    loss, gradients = et.loss_and_gradients(
        model, {"x": x}, y, loss=Loss("cross_entropy", sample_weights=True), weights=w
    )
    kept = w > 0  # a sample of weight 0 is as if it were absent
    alone = et.loss_and_gradients(
        model, {"x": x[kept]}, y[kept], loss=Loss("cross_entropy", sample_weights=True),
        weights=w[kept],
    )  # fmt: skip
    assert loss == pytest.approx(alone[0], rel=1e-6)
    for microbatch in (24, 8, 3):
        found = program(model, microbatch)
        state = trained(found, {"x": x, "y": y, "w": w})
        for name, gradient in gradients.items():
            step = (found.init[name] - state[name]) / RATE
            np.testing.assert_allclose(step, gradient, rtol=2e-4, atol=2e-6)


def test_weights_change_no_bit_between_budgets(model):
    x, y, w = data()
    roomy = program(model)
    tight = program(model, budget=roomy.account["min_budget_nbytes"])
    assert_same_bits(trained(roomy, (x, y, w), 5), trained(tight, (x, y, w), 5))


def test_weights_of_one_are_none(model):
    x, y, _ = data()
    chosen = Loss("cross_entropy")
    plain = et.loss_and_gradients(model, {"x": x}, y, loss=chosen)
    weighed = Loss("cross_entropy", sample_weights=True)
    ones = et.loss_and_gradients(model, {"x": x}, y, loss=weighed, weights=np.full(SAMPLES, 7))
    assert plain[0] == pytest.approx(ones[0], rel=1e-6)
    for name, gradient in plain[1].items():
        np.testing.assert_allclose(ones[1][name], gradient, rtol=1e-4, atol=1e-6)
    with pytest.raises(et.UsageError, match="sample_weights=True"):
        et.loss_and_gradients(model, {"x": x}, y, loss=chosen, weights=np.ones(SAMPLES))


@pytest.mark.parametrize(
    "weights, said",
    [
        (None, "sample weights .field 'w'.*missing"),
        (np.where(np.arange(SAMPLES) == 3, -1, 1), "sample 3: field 'w': weight -1; expected"),
        (np.where(np.arange(SAMPLES) == 4, np.nan, 1), "sample 4: field 'w': value nan; expected"),
        (np.where(np.arange(SAMPLES) == 5, np.inf, 1), "sample 5: field 'w': value inf; expected"),
        (np.ones((SAMPLES, 2)), "field 'w' has shape .2. per sample"),
        (np.ones(SAMPLES - 1), "samples per array"),
    ],
)
def test_weights_that_cannot_be_are_refused(model, weights, said):
    x, y, _ = data()
    given = {"x": x, "y": y} | ({} if weights is None else {"w": weights})
    with pytest.raises(DataError, match=said):
        trained(program(model), given)


def test_weights_that_nobody_asked_for_are_refused(model):
    x, y, w = data()
    plain = et.compile(model, minibatch=SAMPLES, microbatch=8)
    with pytest.raises(DataError, match="field 'w'.*takes none. Compile .* --sample-"):
        et.Trainer(plain, (x, y, w))


@pytest.mark.parametrize(
    "loss, said",
    [("mse", "all weights 0"), ("cross_entropy", "all targets ignored or with weight 0")],
)
def test_a_minibatch_of_weight_0_is_skipped_and_says_why(model, loss, said):
    x, y, w = data()
    target = y if loss == "cross_entropy" else np.eye(3, dtype=np.float32)[y]
    found = et.compile(
        model, loss=Loss(loss, sample_weights=True), optimizer=et.SGD(lr=0.1, weight_decay=0.5),
        minibatch=SAMPLES, microbatch=8,
    )  # fmt: skip
    events: list[dict] = []
    trainer = et.Trainer(found, (x, target, 0 * w), on_event=events.append)
    try:
        with pytest.raises(RunError, match="weight"):
            trainer.fit(steps=2)
        state = trainer.session.state()
        assert all((array == found.init[name]).all() for name, array in state.items())
    finally:
        trainer.close()
    steps = [event for event in events if event["event"] == "step"]
    assert steps and all(event["skipped"] and event["reason"] == said for event in steps)


def test_evaluation_weighs_where_the_data_has_weights(model, tmp_path: Path):
    x, y, w = data()
    files = {"with": {"w_test": w}, "without": {}}
    for name, more in files.items():
        np.savez(
            tmp_path / f"{name}.npz", x_train=x, y_train=y, w_train=w, x_test=x, y_test=y, **more
        )
    trainer = et.Trainer(program(model, 8), f"npz:{tmp_path / 'with.npz'}")
    try:
        weighed = trainer.evaluate()["loss"]
        alike = trainer.evaluate(f"npz:{tmp_path / 'without.npz'}")["loss"]
        logits = trainer.session.predict({"x": x}).astype(np.float64)
    finally:
        trainer.close()
    each = np.log(np.exp(logits).sum(1)) - logits[np.arange(SAMPLES), y]
    assert weighed == pytest.approx((each * w).sum() / w.sum(), rel=1e-5)
    assert alike == pytest.approx(each.mean(), rel=1e-5)


def test_one_number_for_all_samples_cannot_be_weighed():
    net = Net(WIDTH)
    net.add("ReduceMean", [net.add("MatMul", ["x", net.weight("w", WIDTH, 1)], "h")], "y")
    with pytest.raises(et.UsageError, match="one number for all samples"):
        et.compile(net.model("y"), loss=Loss("output", sample_weights=True), minibatch=4)


NAMES = ("accuracy", "top2", "f1", "precision", "recall", "confusion", "perplexity")


def twin(scores: np.ndarray, y: np.ndarray, w: np.ndarray) -> dict:
    """The same metrics, sample by sample."""
    classes, table = scores.shape[1], np.zeros((3, 3))
    tops = 0.0
    for row, truth, weight in zip(scores, y, w, strict=True):
        order = np.argsort(-row, kind="stable")
        table[truth, order[0]] += weight
        tops += weight * (truth in order[:2])
    occurs = [k for k in range(classes) if table[k].sum() + table[:, k].sum() > 0]
    precision = [table[k, k] / max(table[:, k].sum(), 1e-30) for k in occurs]
    recall = [table[k, k] / max(table[k].sum(), 1e-30) for k in occurs]
    f1 = [2 * table[k, k] / (table[k].sum() + table[:, k].sum()) for k in occurs]
    return {
        "accuracy": np.trace(table) / w.sum(), "top2": tops / w.sum(), "confusion": table,
        "precision": np.mean(precision), "recall": np.mean(recall), "f1": np.mean(f1),
    }  # fmt: skip


def test_metrics_weigh_as_the_loss_does(model):
    x, y, w = data()
    with et.Trainer(program(model, 8), (x, y, w)) as trainer:
        found = trainer.evaluate((x, y, w), metrics=NAMES)
        parts = [(x[:7], y[:7], w[:7]), (x[7:], y[7:], w[7:])]
        in_batches = trainer.evaluate(parts, metrics=NAMES)
        usual = trainer.evaluate((x, y, w))
        kept = w > 0
        without = trainer.evaluate((x[kept], y[kept], w[kept]), metrics=NAMES)
        alike = trainer.evaluate((x, y), metrics=NAMES)
        scores = trainer.predict(x)
    wanted = twin(scores, y, w)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(in_batches[name], value, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(without[name], value, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(alike[name], twin(scores, y, np.ones(SAMPLES))[name], rtol=1e-6)
    assert usual["accuracy"] == found["accuracy"]
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]))
    assert all(isinstance(n, int) for row in alike["confusion"] for n in row)


def test_metrics_of_values_weigh_as_the_loss_does(model):
    x, y, w = data()
    target = np.eye(3, dtype=np.float32)[y]
    loss = Loss("mse", sample_weights=True)
    made = et.compile(model, loss=loss, minibatch=SAMPLES, microbatch=8)
    with et.Trainer(made, (x, target, w)) as trainer:
        found = trainer.evaluate((x, target, w), metrics=["mae", "rmse"])
        away = np.abs(trainer.predict(x) - target).mean(1)
        squares = np.square(trainer.predict(x) - target).mean(1)
    assert found["mae"] == pytest.approx((w * away).sum() / w.sum(), rel=1e-5)
    assert found["rmse"] == pytest.approx(np.sqrt((w * squares).sum() / w.sum()), rel=1e-5)
    assert found["loss"] == pytest.approx(found["rmse"] ** 2, rel=1e-5)


def test_accuracy_of_many_classes_takes_no_table():
    counted = Metrics(["accuracy", "top5"], Loss("cross_entropy"), (2, 2**17))
    scores = np.zeros((2, 2**17), np.float32)
    scores[0, 9] = 1
    counted.update(scores, np.array([9, 3]))
    assert counted.results(0.0) == {"accuracy": 0.5, "top5": 1.0}
    with pytest.raises(et.UsageError, match="metric f1: 131072 classes; expected at most 4096"):
        Metrics(["f1"], Loss("cross_entropy"), (2, 2**17))


@pytest.mark.parametrize("name", ["f1", "precision", "recall", "confusion"])
def test_tables_of_too_many_classes_are_refused_before_a_step(tmp_path, capsys, name):
    net, classes = Net(WIDTH), 5000
    net.add("MatMul", ["x", net.weight("one", WIDTH, classes)], "y")
    made = et.compile(net.model("y"), minibatch=4, microbatch=2)
    x = np.zeros((8, WIDTH), np.float32)
    given = (x, np.arange(8))
    said = f"metric {name}: 5000 classes; expected at most 4096"
    with pytest.raises(et.UsageError, match=said):
        et.Trainer(made, given, metrics=[name])
    with et.Trainer(made, given, metrics=["top5"]) as trainer:
        with pytest.raises(et.UsageError, match=said):
            trainer.evaluate(given, metrics=name)
        assert trainer.evaluate(given)["samples"] == 8
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(8))
    saved = made.save(tmp_path / "m.edge")
    for argv in (["eval", saved], ["train", saved, "--epochs", "1", "--out", tmp_path / "run"]):
        given = [*argv, "--data", f"npz:{tmp_path}/data.npz", "--metrics", f"top5,{name}"]
        assert main([str(part) for part in given]) == 2
        told = capsys.readouterr()
        assert said in told.err and "epoch" not in told.out
    assert not list(tmp_path.glob("run/*.ckpt"))
