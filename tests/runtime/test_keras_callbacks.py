"""Callbacks under Keras's names, and a callback with Keras's hooks."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgetrain as et
from edgetrain import callbacks
from edgetrain.program import Program
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(48)
TEST = drawn(16, 1)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compiled(exported(tmp_path_factory.mktemp("callbacks"))[1])


class Recorder:
    """A callback written for Keras that is not a subclass."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.model: Any = None

    def set_model(self, model: Any) -> None:
        self.model = model

    def set_params(self, params: dict[str, Any]) -> None:
        self.calls.append(("params", params))

    def on_train_begin(self, logs=None) -> None:
        self.calls.append(("train begins",))

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self.calls.append(("epoch begins", epoch))

    def on_train_batch_begin(self, batch, logs=None) -> None:
        self.calls.append(("batch begins", batch, self.model.steps))

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.calls.append(("batch ends", batch, sorted(logs)))

    def on_test_begin(self, logs=None) -> None:
        self.calls.append(("test begins",))

    def on_test_end(self, logs=None) -> None:
        self.calls.append(("test ends", sorted(logs)))

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.calls.append(("epoch ends", epoch, sorted(logs)))
        logs["own"] = 7.0

    def on_train_end(self, logs=None) -> None:
        self.calls.append(("train ends", logs["own"]))


def test_hooks_of_keras_are_called_in_its_order_with_its_arguments(net) -> None:
    first, seen = Recorder(), []
    second = et.Callback(on_epoch_end=lambda epoch, logs: seen.append((epoch, logs["own"])))
    old = et.Callback(on_epoch_end=lambda trainer, event: seen.append((trainer, event["epoch"])))
    with et.Trainer(net, (X, Y), validation=TEST, callbacks=[first, second, old]) as trainer:
        history = trainer.fit(epochs=2)
    epoch = ["learning_rate", "loss", "val_accuracy", "val_loss"]

    def passed(number: int) -> list[tuple[Any, ...]]:
        steps = [
            [("batch begins", k, 3 * number + k), ("batch ends", k, ["learning_rate", "loss"])]
            for k in range(3)
        ]
        return [
            ("epoch begins", number), *sum(steps, []), ("test begins",),
            ("test ends", ["accuracy", "loss"]), ("epoch ends", number, epoch),
        ]  # fmt: skip

    assert first.calls == [
        ("params", {"epochs": None, "steps": 6}), ("train begins",),
        *passed(0), *passed(1), ("train ends", 7.0),
    ]  # fmt: skip
    assert first.model is second.model is trainer and second.params["steps"] == 6
    assert seen == [(0, 7.0), (trainer, 1), (1, 7.0), (trainer, 2)]
    assert len(history["val_loss"]) == 2


def test_stop_training_ends_fit_after_the_step(net) -> None:
    class Stops(et.Callback):
        def on_train_batch_end(self, batch: int, logs: Any) -> None:
            self.model.stop_training = batch == 1

    with et.Trainer(net, (X, Y), callbacks=Stops()) as trainer:
        trainer.fit(epochs=9)
        assert trainer.steps == 2 and trainer.stop_training


def test_a_step_or_fit_in_a_hook_of_keras_is_refused(net) -> None:
    hooks: dict[str, Any] = {
        "on_train_batch_begin": lambda batch, logs: trainer.step(X[:4], Y[:4]),
        "on_train_batch_end": lambda batch, logs: trainer.step(X[:4], Y[:4]),
        "on_epoch_end": lambda epoch, logs: trainer.fit(epochs=1),
    }
    for name, hook in hooks.items():
        with (
            et.Trainer(net, (X, Y), callbacks=et.Callback(**{name: hook})) as trainer,
            pytest.raises(et.UsageError, match=f"callback's {name}"),
        ):
            trainer.fit(epochs=1)


def scripted(losses: list[float]) -> et.Callback:
    """Replace the losses of evaluations by these, also under a user-defined name."""
    left = iter(losses)

    def end(trainer: et.Trainer, event: Any) -> None:
        loss = next(left)
        event["evaluation"].update(loss=loss, own=-loss)

    return et.Callback(on_epoch_end=end)


def test_early_stopping_takes_names_of_keras_and_restores_the_best(net, tmp_path: Path) -> None:
    for out, monitor in ((None, "val_loss"), (tmp_path / "run", "val_own")):
        mode = "auto" if monitor == "val_loss" else "max"
        kept: dict[int, bytes] = {}

        def keeps(epoch: int, logs: Any, kept=kept) -> None:
            kept[epoch] = trainer.parameters["fc1.weight"].tobytes()

        stopping = callbacks.EarlyStopping(
            monitor, patience=2, mode=mode, min_delta=0.5, restore_best_weights=True
        )
        given = [scripted([3.0, 1.0, 0.9, 2.0, 0.0]), et.Callback(on_epoch_end=keeps), stopping]
        with et.Trainer(net, (X, Y), out, validation=TEST, callbacks=given) as trainer:
            trainer.fit(epochs=9)
            assert trainer.steps == 12 and len(kept) == 4
            assert trainer.parameters["fc1.weight"].tobytes() == kept[1] != kept[3]
    with (
        et.Trainer(net, (X, Y), callbacks=et.EarlyStopping("val_loss")) as trainer,
        pytest.raises(et.UsageError, match="monitor 'val_loss': available are loss, train_loss"),
    ):
        trainer.fit(epochs=1)
    assert trainer.steps == 0  # found before the first epoch
    with pytest.raises(et.UsageError, match="monitor 'val_f1'"):
        et.Trainer(net, (X, Y), callbacks=et.EarlyStopping("val_f1"))


@pytest.mark.parametrize("name", ["accuracy", "acc", "top5", "top_3", "f1", "miou", "roc_auc"])
def test_more_of_these_metrics_is_better(name: str) -> None:
    watch = et.EarlyStopping(f"val_{name}")
    trainer: Any = type("Steps", (), {"steps": 1})()
    assert watch.better(trainer, {"loss": 1.0, "evaluation": {name: 0.5}})
    assert watch.better(trainer, {"loss": 1.0, "evaluation": {name: 0.6}})
    assert not watch.better(trainer, {"loss": 1.0, "evaluation": {name: 0.4}})
    for other in ("mae", "loss", "train_loss", "perplexity", "own"):
        watch = et.EarlyStopping(other)
        watch.better(trainer, {"loss": 2.0, "evaluation": {other: 2.0}})
        assert watch.better(trainer, {"loss": 1.0, "evaluation": {other: 1.0}}), other


def test_model_checkpoint_exports_epochs_or_the_best(net, tmp_path: Path) -> None:
    best, each = tmp_path / "best.onnx", tmp_path / "all" / "{epoch:02d}-{val_loss:.1f}.onnx"
    given = [
        scripted([3.0, 1.0, 2.0]),
        callbacks.ModelCheckpoint(best, "val_loss", save_best_only=True),
        callbacks.ModelCheckpoint(each),
        callbacks.ModelCheckpoint(tmp_path / "{batch}.onnx", save_freq=4),
    ]
    with et.Trainer(net, (X, Y), validation=TEST, callbacks=given) as trainer:
        trainer.fit(epochs=3)
    names = ["01-3.0.onnx", "02-1.0.onnx", "03-2.0.onnx"]
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == names
    assert best.read_bytes() == (tmp_path / "all" / names[1]).read_bytes()
    assert sorted(path.name for path in tmp_path.glob("?.onnx")) == ["1.onnx", "2.onnx"]
    onnx.checker.check_model(onnx.load(best))
    wrong = callbacks.ModelCheckpoint(tmp_path / "{nothing}.onnx")
    with (
        et.Trainer(net, (X, Y), callbacks=wrong) as trainer,
        pytest.raises(et.UsageError, match="nothing.*loss, learning_rate, epoch"),
    ):
        trainer.fit(epochs=1)


def rates_of(net: Program, losses: list[float], callback: Any) -> list[float]:
    """The learning rate after each epoch."""
    found: list[float] = []
    last = et.Callback(on_epoch_end=lambda trainer, event: found.append(trainer.lr))
    given = [scripted(losses), callback, last]
    with et.Trainer(net, (X, Y), validation=TEST, lr=1e-3, callbacks=given) as trainer:
        trainer.fit(epochs=len(losses))
    return found


def keras_plateau(
    losses: list[float], lr: float, factor: float, patience: int, delta: float, cooldown: int,
    min_lr: float,
) -> list[float]:  # fmt: skip
    """Keras's ReduceLROnPlateau.on_epoch_end, in mode min."""
    best, wait, cooling, found = math.inf, 0, 0, []
    for loss in losses:
        if cooling > 0:
            cooling, wait = cooling - 1, 0
        if loss < best - delta:
            best, wait = loss, 0
        elif cooling <= 0:
            wait += 1
            if wait >= patience and lr > min_lr:
                lr, cooling, wait = max(lr * factor, min_lr), cooldown, 0
        found.append(lr)
    return found


@pytest.mark.parametrize("cooldown", [0, 1, 3])
@pytest.mark.parametrize("patience", [1, 2])
def test_reduce_lr_on_plateau_is_that_of_keras(net, patience: int, cooldown: int) -> None:
    losses = [3.0, 2.0, 2.5, 1.99995, 2.0, 1.0, 1.5, 1.6, 1.7, 0.5, 0.6, 0.7]
    callback = callbacks.ReduceLROnPlateau(
        "val_loss", factor=0.5, patience=patience, cooldown=cooldown, min_lr=2e-4
    )
    expected = keras_plateau(losses, 1e-3, 0.5, patience, 1e-4, cooldown, 2e-4)
    assert rates_of(net, losses, callback) == expected


def test_learning_rate_scheduler_takes_both_kinds_of_functions(net) -> None:
    halves = callbacks.LearningRateScheduler(lambda epoch, lr: lr if epoch < 1 else lr / 2)
    assert rates_of(net, [1.0] * 3, halves) == [1e-3, 5e-4, 2.5e-4]
    steps = callbacks.LearningRateScheduler(lambda epoch: np.float32(2.0**-epoch))
    assert rates_of(net, [1.0] * 3, steps) == [1.0, 0.5, 0.25]
    wrong = callbacks.LearningRateScheduler(lambda epoch: "fast")  # type: ignore[arg-type,return-value]
    with pytest.raises(et.UsageError, match="LearningRateScheduler: learning rate"):
        rates_of(net, [1.0], wrong)


def test_csv_logger_writes_rows_and_goes_on_in_a_resumed_run(net, tmp_path: Path) -> None:
    def run(epochs: int, out: Path, file: Path) -> list[dict[str, str]]:
        logger = callbacks.CSVLogger(file)
        with et.Trainer(
            net, (X, Y), out, validation=TEST, callbacks=logger, resume=out.exists()
        ) as trainer:
            trainer.fit(epochs=epochs)
        return list(csv.DictReader(file.read_text().splitlines()))

    whole = run(3, tmp_path / "a", tmp_path / "a.csv")
    run(2, tmp_path / "b", tmp_path / "b.csv")
    with (tmp_path / "b.csv").open("a") as file:
        file.write("2,9,9,9,9\n")  # of an epoch whose checkpoint was lost
    assert run(3, tmp_path / "b", tmp_path / "b.csv") == whole
    assert [*whole[0]] == ["epoch", "learning_rate", "loss", "val_accuracy", "val_loss"]
    assert [row["epoch"] for row in whole] == ["0", "1", "2"]


def test_a_run_with_callbacks_of_keras_resumes_bit_for_bit(net, tmp_path: Path) -> None:
    def run(out: Path | None, stop_at: int = 0) -> Any:
        lower = callbacks.ReduceLROnPlateau("train_loss", patience=1, min_delta=0.05, factor=0.5)
        sets = callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.9)
        ends = et.Callback(on_step=lambda t, r: t.steps == stop_at and t.interrupt())
        settings: dict[str, Any] = {"save_steps": 1} if out else {}
        with et.Trainer(net, (X, Y), out, callbacks=[lower, sets, ends], **settings) as trainer:
            if out:
                trainer.resume()
            try:
                trainer.fit(epochs=6)
            except et.errors.Interrupted:
                return None
            return trainer.lr, trainer.parameters["fc1.weight"].tobytes(), lower.state()

    through = run(None)
    for cut in (1, 6, 8):
        assert run(tmp_path / str(cut), stop_at=cut) is None
        assert run(tmp_path / str(cut)) == through


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: callbacks.ModelCheckpoint("best.keras"), "best.keras: .* .onnx"),
        (lambda: callbacks.ModelCheckpoint("a.onnx", save_freq=0), "save_freq 0"),
        (lambda: callbacks.ModelCheckpoint("a.onnx", save_freq=2, save_best_only=True), "epoch"),
        (lambda: callbacks.ReduceLROnPlateau(factor=1.5), "factor 1.5"),
        (lambda: callbacks.ReduceLROnPlateau(patience=0), "patience 0"),
        (lambda: callbacks.LearningRateScheduler(0.1), "schedule 0.1"),  # type: ignore[arg-type]
        (lambda: callbacks.CSVLogger("a.csv", separator="--"), "separator '--'"),
        (lambda: callbacks.EarlyStopping(mode="best"), "mode 'best'"),
        (lambda: callbacks.LambdaCallback(on_predict_begin=print), "on_predict_begin"),
    ],
)
def test_arguments_of_callbacks_are_checked(make, message: str) -> None:
    with pytest.raises(et.UsageError, match=message):
        make()


def test_callbacks_are_a_module_of_the_package() -> None:
    assert et.callbacks is callbacks and et.callbacks.EarlyStopping is et.EarlyStopping
    assert "callbacks" in dir(et)


class _Loader:
    """Minibatches of unknown number."""

    def __iter__(self):
        return iter([(X[k : k + 16], Y[k : k + 16]) for k in (0, 16, 32)])


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
@pytest.mark.parametrize("data", [(X, Y), _Loader()], ids=["arrays", "loader"])
def test_fit_trains_an_epoch_after_a_callback_stopped_the_last(net, data, stop):
    at = et.Callback(on_step=lambda trainer, result: trainer.steps == stop and trainer.stop())
    with et.Trainer(net, data, callbacks=at, verbose=False) as trainer:
        trainer.fit(epochs=5)
        found = [trainer.steps]
        for _ in range(2):
            trainer.fit(epochs=1)
            found.append(trainer.steps)
    assert net.minibatch == 16 and found == [stop, stop + 3, stop + 6]


def test_early_stopping_has_its_patience_again_in_another_fit(net):
    stopping = et.EarlyStopping("loss", patience=2, min_delta=1e9)
    with et.Trainer(net, (X, Y), callbacks=stopping, verbose=False) as trainer:
        assert [len(trainer.fit(epochs=9)["loss"]) for _ in range(3)] == [3, 2, 2]


def parted(net: Program, out: Path, make: Any, stop_at: int, epochs: int = 3) -> None:
    """A run that was interrupted after a step, and resumed with another callback of `make`."""
    for cut in (stop_at, 0):
        ends = et.Callback(on_step=lambda t, _, cut=cut: t.steps == cut and t.interrupt())
        with et.Trainer(net, (X, Y), out, callbacks=[make(), ends], save_steps=1) as trainer:
            trainer.resume()
            if cut:
                with pytest.raises(et.errors.Interrupted):
                    trainer.fit(epochs=epochs)
            else:
                trainer.fit(epochs=epochs)


def test_model_checkpoint_keeps_its_epoch_in_a_resumed_run(net, tmp_path: Path) -> None:
    path = tmp_path / "{epoch}-{batch}.onnx"
    parted(net, tmp_path / "run", lambda: callbacks.ModelCheckpoint(path, save_freq=1), 5, 2)
    assert sorted(path.stem for path in tmp_path.glob("*.onnx")) == [
        f"{epoch}-{batch}" for epoch in (1, 2) for batch in (1, 2, 3)
    ]


@pytest.mark.parametrize("stop_at", [2, 4])
def test_csv_logger_appends_to_older_rows_in_a_resumed_run(net, tmp_path: Path, stop_at) -> None:
    file = tmp_path / "a.csv"
    file.write_text("epoch,learning_rate,loss\n0,0.1,9\n1,0.1,9\n2,0.1,9\n")
    parted(net, tmp_path / "run", lambda: callbacks.CSVLogger(file, append=True), stop_at)
    rows = [*csv.DictReader(file.read_text().splitlines())]
    assert [row["epoch"] for row in rows] == ["0", "1", "2"] * 2
    assert [row["loss"] == "9" for row in rows] == [True] * 3 + [False] * 3


def test_csv_logger_keeps_older_rows_if_the_first_epoch_failed(net, tmp_path: Path) -> None:
    file, failing = tmp_path / "a.csv", [True]
    file.write_text("epoch,learning_rate,loss\n0,0.1,9\n")

    def fails(trainer: et.Trainer, event: Any) -> None:
        if failing.pop():
            raise ZeroDivisionError

    given = [et.Callback(on_epoch_end=fails), callbacks.CSVLogger(file, append=True)]
    with et.Trainer(net, (X, Y), callbacks=given) as trainer:
        with pytest.raises(ZeroDivisionError):
            trainer.fit(epochs=1)
        failing.append(False)
        trainer.fit(epochs=1)
    rows = csv.DictReader(file.read_text().splitlines())
    assert [row["epoch"] for row in rows] == ["0", "0"]


def test_a_callback_whose_state_is_no_method_is_refused(net) -> None:
    class Counts(et.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.state: Any = {"n": 0}

    with pytest.raises(et.UsageError, match="callback Counts: .*'state' is a dict.*method"):
        et.Trainer(net, (X, Y), callbacks=Counts())
