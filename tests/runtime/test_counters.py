"""A restored state has its counters, and a repeated step the rates and callbacks it had."""

from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from tests.quick import slow_except
from tests.runtime.conftest import assert_same_bits
from tests.runtime.models import write_rows

CLASSES, N = 3, 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("counters") / "rows.onnx", classes=CLASSES)


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(0)
    return [
        (draw.standard_normal((N, 3, 8)).astype(np.float32), draw.integers(0, CLASSES, N))
        for _ in range(count)
    ]


def trainer(
    model: Path, out: Path | None = None, data=None, settings=None, **options
) -> et.Trainer:
    program = et.compile(model, minibatch=N, microbatch=N, threads=1, effort="quick", **options)
    return et.Trainer(program, data, out, verbose=False, **(settings or {}))


RESTORED = {
    "adam": {"optimizer": et.Adam(lr=0.01)},
    "scaled state": {
        "optimizer": et.SGD(lr=0.1, momentum=0.9), "precision": "fp16", "weights": "fp32",
    },
    "adagrad": {"optimizer": et.Adagrad(lr=0.1, lr_decay=0.1)},
}  # fmt: skip


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("case", RESTORED)
def test_the_best_state_has_its_counters(model, tmp_path, case, in_file) -> None:
    data = batches(45)

    def begun(out: Path | None) -> et.Trainer:
        made = trainer(model, out, **RESTORED[case])
        for batch in data[:3]:
            made.step(*batch)
        return made

    expected = begun(None)
    expected.step(*data[-1])
    found = begun(tmp_path / "run" if in_file else None)
    found.keep_best()
    for x, y in data[3:-1]:
        found.step(30 * x, y)
    scale = found.session.loss_scale
    found.restore_best()
    assert (found.steps, found.session.loss_scale) == (len(data) - 1, scale)
    found.step(*data[-1])
    if scale == expected.session.loss_scale:
        assert_same_bits(found.state_dict(), expected.state_dict())
    updates = found.session.counters()["updates"]
    assert updates == expected.session.counters()["updates"] == 4


def callbacks(name: str) -> list:
    made = {
        "none": [],
        "scheduler": [et.callbacks.LearningRateScheduler(lambda epoch: 0.02)],
        "plateau": [et.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=1e9)],
        "best": [et.KeepBest("loss", mode="max")],
        "stopping": [et.callbacks.EarlyStopping("loss", patience=2, min_delta=1e9)],
    }
    return made[name]


@pytest.mark.parametrize("every", slow_except([0, 1, 3, 6], 0, 3))
@pytest.mark.parametrize("name", ["none", "scheduler", "plateau", "best", "stopping"])
def test_a_rollback_keeps_what_callbacks_did(model, tmp_path, name, every) -> None:
    data = batches(4)
    data[2][0][0, 0] = np.inf
    found = []
    for fused in (False, True):
        rates: list[float] = []
        seen = et.Callback(on_step=lambda _, result, rates=rates: rates.append(result.lr))
        made = trainer(
            model, tmp_path / str(fused), data, optimizer=et.SGD(lr=0.1), fused_update=fused,
            settings={"callbacks": [*callbacks(name), seen], "save_steps": every},
        )  # fmt: skip
        made.fit(epochs=4, evaluate=False)
        if name == "best":
            made.restore_best()
        found.append((made.state_dict(), made.lr, made.steps, sorted({*rates})))
    assert_same_bits(found[1][0], found[0][0])
    assert found[1][1:] == found[0][1:]


def test_a_step_that_rolls_back_keeps_the_rate_set_before_it(model, tmp_path) -> None:
    data = batches(2)
    data[1][0][0, 0] = np.inf
    made = trainer(
        model, tmp_path / "run", optimizer=et.SGD(lr=0.1), fused_update=True,
        settings={"save_steps": 1},
    )  # fmt: skip
    made.step(*data[0])
    made.lr = 0.001
    assert made.step(*data[1]).skipped
    assert made.lr == pytest.approx(0.001)


def test_fit_after_steps_trains_all_its_steps(model) -> None:
    data = batches(5)
    made = trainer(model, data=data)
    for batch in data[:3]:
        made.step(*batch)
    made.fit(epochs=1, evaluate=False)
    assert made.steps == 8
    made.step(*data[0])
    made.fit(steps=5, evaluate=False)
    assert made.steps == 14
