"""Weights of samples, from the data to the update: sum(w * l) / sum(w) over a minibatch."""

from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.errors import DataError, RunError
from edgetrain.losses import Loss
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
    """x, y and weights, of which some are 0."""
    draw = np.random.default_rng(seed)
    weights = draw.random(SAMPLES).astype(np.float32) * 3
    weights[::5] = 0
    return (
        draw.standard_normal((SAMPLES, WIDTH)).astype(np.float32),
        draw.integers(0, 3, SAMPLES), weights,
    )  # fmt: skip


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
    kept = w > 0  # of weight 0 is as if it were not there
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
        (None, "no weights of samples, field 'w'"),
        (np.where(np.arange(SAMPLES) == 3, -1, 1), "sample 3: field 'w': weight -1, expected"),
        (np.where(np.arange(SAMPLES) == 4, np.nan, 1), "sample 4: field 'w': value nan, expected"),
        (np.where(np.arange(SAMPLES) == 5, np.inf, 1), "sample 5: field 'w': value inf, expected"),
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
    with pytest.raises(DataError, match="field 'w', and the loss takes none. Compile .* --sample-"):
        et.Trainer(plain, (x, y, w))


@pytest.mark.parametrize(
    "loss, said",
    [("mse", "all weights 0"), ("cross_entropy", "all targets ignored or of weight 0")],
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
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, w_train=w, x_test=x, y_test=y,
                 **more)  # fmt: skip
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
    with pytest.raises(et.UsageError, match="cannot be weighed"):
        et.compile(net.model("y"), loss=Loss("output", sample_weights=True), minibatch=4)
