"""`fit` on lists, datasets, loaders and generators; callbacks, early stopping, metrics."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.losses import Loss
from edgetrain.program import Program
from edgetrain.runtime.training.metrics import Metrics
from tests.quick import slow_except
from tests.runtime.online_net import CLASSES, Net, compiled, drawn, exported
from tests.runtime.test_online import torch_steps

X, Y = drawn(60)
TEST = drawn(30, 1)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> tuple[Net, Path, Program]:
    module, path = exported(tmp_path_factory.mktemp("loops"))
    return module, path, compiled(path)


def weights(trainer: et.Trainer) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in trainer.parameters.items()}


def batches(size: int = 16) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(X[k : k + size], Y[k : k + size]) for k in range(0, len(X), size)]


def generator(size: int = 16) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield from batches(size)


class Samples(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor(X[index]), int(Y[index])


BATCHES: dict[str, Any] = {
    "list": lambda: batches(),
    "dicts": lambda: [{"x": x, "label": y} for x, y in batches()],
    "generator": lambda: generator(),
    "function": lambda: generator,
    "loader": lambda: torch.utils.data.DataLoader(Samples(), batch_size=16),
    "single samples, whole minibatches and the rest": lambda: (
        (x, y) for x, y in zip(X, Y, strict=True)
    ),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_fit_takes_each_batch_as_torch_would(net, kind: str) -> None:
    module = Net()
    module.load_state_dict(net[0].state_dict())
    expected = torch_steps(module, batches())
    seen: list[float] = []
    hook = et.Callback(on_step=lambda trainer, result: seen.append(result.loss))
    with et.Trainer(net[2], BATCHES[kind](), callbacks=hook, keep_last=True) as trainer:
        last = trainer.fit(epochs=1)
        for name, value in module.named_parameters():
            np.testing.assert_allclose(trainer.parameters[name], value.detach(), atol=2e-6)
    np.testing.assert_allclose(seen, expected, rtol=1e-5)
    assert (last["epoch"], last["step"]) == ([1], [4])
    assert last["loss"] == [pytest.approx(np.mean(expected), rel=1e-5)]


@pytest.mark.parametrize("make", [lambda: list(zip(X, Y, strict=True)), Samples])
def test_samples_one_by_one_are_a_data_set_like_arrays(net, make) -> None:
    with et.Trainer(net[2], (X, Y)) as arrays, et.Trainer(net[2], make()) as items:
        arrays.fit(epochs=2)
        items.fit(epochs=2)
        assert weights(arrays) == weights(items) and items.source.n == 60


def test_a_generator_cannot_begin_again(net) -> None:
    with et.Trainer(net[2], generator()) as trainer:
        with pytest.raises(et.UsageError, match="a generator can.t restart"):
            trainer.fit(epochs=2)
        assert trainer.steps == 4
    with et.Trainer(net[2], generator) as trainer:
        assert trainer.fit(epochs=2)["step"] == [4, 8]


WRONG = {
    "too many": ([(X, Y)], "60 samples; this Program's minibatch is 16"),
    "no pairs": ([(X[0], Y[0], 1, 2)], "a tuple of 4"),
    "other shape": (iter([(X[:4, :3], Y[:4])]), r"the model expects \[6\]"),
    "text": (iter(["a"]), "of type str"),
    "nothing": (iter([]), "returned no batches"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_batches_that_do_not_fit_are_refused(net, kind: str) -> None:
    data, message = WRONG[kind]
    with (
        pytest.raises(et.EdgetrainError, match=message),
        et.Trainer(net[2], data) as trainer,
    ):
        trainer.fit(epochs=1)


def test_schedule_needs_to_know_how_many_batches(net) -> None:
    with et.Trainer(net[2], generator, schedule=et.Schedule("cosine")) as trainer:
        with pytest.raises(et.UsageError, match="number of batches is unknown"):
            trainer.fit(epochs=1)
        assert trainer.fit(steps=6)["step"] == [4, 6]


def test_last_partial_minibatch_is_kept_where_asked(net) -> None:
    sizes: list[int] = []
    hook = et.Callback(on_step=lambda trainer, result: sizes.append(result.counted))
    with et.Trainer(net[2], (X, Y), keep_last=True, callbacks=hook) as trainer:
        trainer.fit(epochs=2)
    assert sizes == 2 * [16, 16, 16, 12]
    with et.Trainer(net[2], (X[:5], Y[:5]), keep_last=True) as trainer:
        assert trainer.fit(epochs=3)["step"] == [1, 2, 3]
    with pytest.raises(
        et.UsageError, match=r"only 5 training samples.*--minibatch 5.*keep_last=True"
    ):
        et.Trainer(net[2], (X[:5], Y[:5]))


def test_kept_last_sees_every_sample_once(net) -> None:
    seen: list[int] = []
    with et.Trainer(net[2], (X, Y), keep_last=True) as trainer:
        fill = trainer.source.fill

        def watch(indices, *args, **named) -> None:
            seen.extend(indices.tolist())
            fill(indices, *args, **named)

        trainer.source.fill = watch
        trainer.fit(epochs=1)
    assert sorted(seen) == list(range(60))


class Counting(et.Callback):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.total = 0.0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            self.calls.append(name)
        return super().__getattribute__(name)

    def on_step(self, trainer: et.Trainer, result: et.StepResult) -> None:
        self.total += result.loss

    def state(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state(self, state) -> None:
        self.total = state["total"]


def test_callbacks_are_called_in_order(net, tmp_path: Path) -> None:
    hook = Counting()
    settings = {"validation": TEST, "callbacks": [hook], "out": tmp_path / "run"}
    with et.Trainer(net[2], (X[:32], Y[:32]), **settings) as trainer:
        hook.calls.clear()
        trainer.fit(epochs=1, evaluate=True)
    assert hook.calls == [
        "on_fit_begin", "on_step", "on_step", "on_save", "on_evaluate", "on_epoch_end",
        "on_fit_end",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["arrays", "list", "keep_last"])
@pytest.mark.parametrize("cut", slow_except([1, 4, 6, 9], 1, 4))
def test_a_run_with_callbacks_resumes_bit_for_bit(net, tmp_path: Path, kind: str, cut: int) -> None:
    data = batches() if kind == "list" else (X, Y)

    def run(out: Path | None, stop_at: int = 0) -> tuple[Any, ...]:
        hook = Counting()
        stopping = et.EarlyStopping("accuracy", patience=2, min_delta=0.02)
        settings: dict[str, Any] = {"out": out, "save_steps": 1} if out else {}
        if kind == "keep_last":
            settings["keep_last"] = True
        ending = et.Callback(on_step=lambda t, r: t.steps == stop_at and t.interrupt())
        best = et.KeepBest("loss")
        with et.Trainer(
            net[2], data, validation=TEST, callbacks=[hook, stopping, best, ending], **settings
        ) as trainer:
            if out:
                trainer.resume()
            try:
                trainer.fit(epochs=8, evaluate=True)
            except et.errors.Interrupted:
                return ()
            return trainer.steps, weights(trainer), hook.total, stopping.state(), best.state()

    through = run(None)
    assert run(tmp_path / "run", stop_at=cut) == ()
    assert run(tmp_path / "run") == through


def test_early_stopping_ends_and_keep_best_restores(net, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    losses = iter([3.0, 1.0, 2.0, 2.5, 0.5])
    kept: dict[str, bytes] = {}

    def at_end(trainer: et.Trainer, event) -> None:
        event["evaluation"]["own"] = next(losses)
        if trainer.steps == 6:
            kept.update(weights(trainer))

    for out in (None, tmp_path / "run"):
        losses, kept = iter([3.0, 1.0, 2.0, 2.5, 0.5]), {}
        callbacks = [
            et.Callback(on_epoch_end=at_end),
            et.KeepBest("own"),
            et.EarlyStopping("own", patience=2),
        ]
        with et.Trainer(
            net[2], (X, Y), out, validation=TEST, callbacks=callbacks, on_event=events.append
        ) as trainer:
            trainer.fit(epochs=9, evaluate=True)
            assert trainer.steps == 12 and weights(trainer) == kept
    assert [e["reason"] for e in events if e["event"] == "stop"] == [
        "own has not improved for 2 epochs; best 1 at step 6"
    ] * 2


@pytest.mark.parametrize("kind", ["arrays", "loader", "dataset", "text", "source"])
def test_fit_takes_the_data(net, tmp_path: Path, kind) -> None:
    """Everything that Trainer accepts, with the same bits, for one call."""
    from torch.utils.data import DataLoader, TensorDataset

    tensors = TensorDataset(torch.tensor(X), torch.tensor(Y))
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    text = f"npz:{tmp_path / 'data.npz'}"
    given = {
        "arrays": lambda: (X, Y), "dataset": lambda: tensors, "text": lambda: text,
        "loader": lambda: DataLoader(tensors, batch_size=net[2].minibatch),
        "source": lambda: et.open_data(text),
    }[kind]  # fmt: skip
    with et.Trainer(net[2], given()) as trainer:
        trainer.fit(epochs=2)
        expected = weights(trainer)
    data = given()
    with et.Trainer(net[2]) as trainer:
        history = trainer.fit(data, epochs=1)
        trainer.fit(data, 1)
        assert weights(trainer) == expected and len(history["loss"]) == 1
        trainer.fit(1)
        with pytest.raises(et.UsageError, match="fit: this Trainer has data"):
            trainer.fit((X, Y), epochs=1)
        with pytest.raises(et.UsageError, match="fit: data 3: expected data"):
            trainer.fit(3, 3)


def test_a_resumed_run_is_given_its_data_before(net, tmp_path: Path) -> None:
    with et.Trainer(net[2], (X, Y), tmp_path) as trainer:
        trainer.fit(epochs=1)
    with et.Trainer(net[2], None, tmp_path) as trainer:
        assert trainer.resume()
        with pytest.raises(et.UsageError, match="Pass the data to Trainer"):
            trainer.fit((X, Y), epochs=2)


def test_resume_refuses_other_callbacks(net, tmp_path: Path) -> None:
    with et.Trainer(net[2], (X, Y), tmp_path, callbacks=et.EarlyStopping()) as trainer:
        trainer.fit(epochs=1)
    with (
        et.Trainer(net[2], (X, Y), tmp_path) as trainer,
        pytest.raises(et.CheckpointError, match="callbacks EarlyStopping; found none"),
    ):
        trainer.resume()


def test_monitor_of_no_metric_is_named(net) -> None:
    with pytest.raises(et.UsageError, match="monitor 'f1': .* loss, train_loss"):
        et.Trainer(net[2], (X, Y), callbacks=et.EarlyStopping("f1"))
    plain = et.Callback(on_epoch_end=lambda trainer, event: None)  # which might add it
    with (
        et.Trainer(net[2], (X, Y), callbacks=[plain, et.EarlyStopping("f1")]) as trainer,
        pytest.raises(et.UsageError, match="monitor 'f1': .* loss, train_loss"),
    ):
        trainer.fit(epochs=1)


def test_metrics_of_classes_against_plain_counts(net) -> None:
    x, y = TEST

    def spread(outputs: np.ndarray, targets: np.ndarray) -> float:
        assert outputs.shape == (30, CLASSES) and targets.shape == (30,)
        return float(outputs.std())

    asked = ["top2", "f1", "precision", "recall", "confusion", "perplexity", spread]
    with et.Trainer(net[2], (X, Y), metrics=asked) as trainer:
        trainer.fit(epochs=3)
        found = trainer.evaluate((x, y))
        outputs = trainer.predict(x)
        loader = [(x[k : k + 7], y[k : k + 7]) for k in range(0, 30, 7)]
        by_batches = trainer.evaluate(loader)
    said = outputs.argmax(axis=1)
    table = [[int(((y == a) & (said == b)).sum()) for b in range(3)] for a in range(3)]
    f1 = np.mean([2 * table[k][k] / ((y == k).sum() + (said == k).sum()) for k in range(3)])
    top2 = np.mean([label in np.argsort(-row)[:2] for row, label in zip(outputs, y, strict=True)])
    assert found["confusion"] == table
    assert found["accuracy"] == pytest.approx((said == y).mean())
    assert found["f1"] == pytest.approx(f1) and found["top2"] == pytest.approx(top2)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["spread"] == pytest.approx(outputs.std(), rel=1e-6)
    assert by_batches.keys() == found.keys()
    for name in ("loss", "accuracy", "f1", "top2", "spread"):
        assert by_batches[name] == pytest.approx(found[name], rel=1e-6), name


def pairs(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> float:
    """The area under a ROC curve, pair by pair."""
    won = total = 0.0
    for a in np.flatnonzero(positive):
        for b in np.flatnonzero(~positive):
            won += (
                weights[a] * weights[b] * ((scores[a] > scores[b]) + (scores[a] == scores[b]) / 2)
            )
            total += weights[a] * weights[b]
    return won / total


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighs", [False, True])
def test_miou_and_auc_against_pairs_of_samples(classes, weighs) -> None:
    """With four classes, the last never occurs; with two, scores are tied."""
    draw = np.random.default_rng(classes)
    outputs = draw.standard_normal((24, classes)).astype(np.float32)
    outputs = outputs.round() if classes == 2 else outputs
    truth = draw.integers(0, max(2, classes - 1), 24)
    weights = draw.integers(0, 4, 24).astype(np.float64) if weighs else np.ones(24)
    counted = Metrics("mIoU,AUC", Loss("cross_entropy"), (8, classes))
    for k in range(0, 24, 8):
        part = slice(k, k + 8)
        counted.update(outputs[part], truth[part], weights[part] if weighs else None)
    found, said = counted.results(0.0), outputs.argmax(axis=1)
    shares = np.exp(outputs.astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    of = [pairs(shares[:, k], truth == k, weights) for k in range(max(2, classes - 1))]
    overlap = []
    for k in range(classes):
        either = weights[(truth == k) | (said == k)].sum()
        if either:
            overlap.append(weights[(truth == k) & (said == k)].sum() / either)
    assert found == {
        "miou": pytest.approx(np.mean(overlap)),
        "auc": pytest.approx(of[1] if classes == 2 else np.mean(of)),
    }


def test_auc_of_pairs_of_classes() -> None:
    draw = np.random.default_rng(0)
    outputs, truth = draw.standard_normal((20, 1)), draw.integers(0, 2, (20, 1))
    counted = Metrics("auc", Loss("bce_with_logits"), (20, 1))
    counted.update(outputs, truth.astype(np.float32))
    expected = pairs(outputs[:, 0].astype(np.float32), truth[:, 0] == 1, np.ones(20))
    assert counted.results(0.0) == {"auc": pytest.approx(expected)}


def test_metrics_of_values_and_of_pairs_of_classes() -> None:
    draw = np.random.default_rng(0)
    outputs, targets = draw.standard_normal((20, 4)), draw.standard_normal((20, 4))
    counted = Metrics("mae,rmse", Loss.of("mse"), (8, 4))
    for k in range(0, 20, 8):
        counted.update(outputs[k : k + 8], targets[k : k + 8])
    away = outputs.astype(np.float32) - targets
    assert counted.results(0.0) == {
        "mae": pytest.approx(np.abs(away).mean()),
        "rmse": pytest.approx(np.sqrt((away**2).mean())),
    }
    binary = Metrics("accuracy,f1,confusion", Loss.of("bce_with_logits"), (8, 1))
    binary.update(np.array([[1.0], [-1], [2], [-2], [3]]), np.array([[1.0], [1], [0], [0], [1]]))
    assert binary.results(0.0) == {
        "accuracy": pytest.approx(0.6), "f1": pytest.approx(2 / 3), "confusion": [[1, 1], [1, 2]],
    }  # fmt: skip


def test_a_metric_that_fails_is_named(net) -> None:
    def broken(outputs: np.ndarray, targets: np.ndarray) -> float:
        raise ValueError("no")

    with (
        et.Trainer(net[2], (X, Y)) as trainer,
        pytest.raises(et.UsageError, match="metric broken: ValueError: no"),
    ):
        trainer.evaluate(TEST, metrics=broken)


def test_save_seconds_writes_between_epochs(net, tmp_path: Path) -> None:
    saved: list[int] = []
    hook = et.Callback(on_save=lambda trainer, path: saved.append(trainer.steps))
    settings = {"save_seconds": 1e-6, "callbacks": hook, "save_total_limit": None}
    with et.Trainer(net[2], (X, Y), tmp_path / "run", **settings) as trainer:
        trainer.fit(epochs=1)
    assert saved == [1, 2, 3, 3]


class Sized:
    """Single samples, as many as its length."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return iter(zip(X, Y, strict=True))

    def __len__(self) -> int:
        return len(X)


class Stream(torch.utils.data.IterableDataset):
    """The same for torch."""

    __iter__, __len__ = Sized.__iter__, Sized.__len__


@pytest.mark.parametrize(
    "data",
    [Sized(), Stream(), torch.utils.data.DataLoader(Samples(), batch_size=None)],
    ids=["iterable", "IterableDataset", "loader of samples"],
)
def test_the_length_of_single_samples_counts_samples(net, data) -> None:
    for keep_last, steps in ((False, 3), (True, 4)):
        with et.Trainer(net[2], data, keep_last=keep_last, total_steps=2 * steps) as trainer:
            assert trainer.steps_per_epoch == steps
            assert trainer.fit(epochs=2)["step"] == [steps, 2 * steps]


def test_perplexity_is_nan_if_no_target_counts(net) -> None:
    with et.Trainer(net[2]) as trainer:
        found = trainer.evaluate((X, np.full(len(X), -100)), metrics="perplexity")
    assert math.isnan(found["loss"]) and math.isnan(found["perplexity"])
