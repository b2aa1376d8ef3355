"""However a run ends, the state of its last complete minibatch is on disk, with the reason."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.program import Program
from edgetrain.runtime.run import checkpoint
from edgetrain.runtime.run.checkpoint import latest, step_files, step_of
from edgetrain.runtime.training import learner
from edgetrain.runtime.training.settings import SAVE_SECONDS
from tests.quick import slow_except
from tests.runtime.conftest import Compile, assert_same_bits
from tests.runtime.online_net import compiled, drawn, exported


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compiled(exported(tmp_path_factory.mktemp("out"))[1])


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    x, y = drawn(16 * count)
    return [(x[k : k + 16], y[k : k + 16]) for k in range(0, 16 * count, 16)]


def state_after(program: Program, steps: int) -> dict[str, np.ndarray]:
    with et.Trainer(program, batches(40)) as trainer:
        trainer.fit(steps=steps)
        return {name: array.copy() for name, array in trainer.session.state().items()}


class Gone(Exception):
    """Raised by a user's code."""


RAISED = (Gone("no"), ValueError("no"), OSError(errno.EIO, "no"), KeyboardInterrupt("no"),
          SystemExit(3), MemoryError("no"), et.DataError("no"), GeneratorExit("no"))  # fmt: skip


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "way", slow_except(["stream", "source", "event", "callback"], "source", "callback")
)
def test_the_state_is_saved_on_the_way_out_of_any_exception(
    net: Program, tmp_path: Path, error: BaseException, way: str
) -> None:
    whole = state_after(net, 12)
    given = batches(40)

    def stream() -> Iterator[Any]:
        yield from given[:7]
        raise error

    def at_7(event: Any) -> None:
        if way == "event" and event["event"] == "step" and event["step"] == 7:
            raise error

    def on_step(trainer: et.Trainer, result: Any) -> None:
        if way == "callback" and trainer.steps == 7:
            raise error

    def batch(k: int) -> Iterator[Any]:
        if way == "source" and k == 7:
            raise error
        return given[k]

    class Listed:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, k: int) -> Any:
            return batch(k)

    data = stream() if way == "stream" else Listed()
    hook = et.Callback(on_step=on_step)
    trainer = et.Trainer(net, data, tmp_path, on_event=at_7, callbacks=hook)
    with pytest.raises(type(error)) as caught:
        trainer.fit(steps=12)
    trainer.close()
    assert caught.value is error or str(caught.value) == str(error)
    assert [path.name for path in step_files(tmp_path)] == ["step-00000007.ckpt"]
    with et.Trainer(net, given, tmp_path, callbacks=et.Callback(on_step=print)) as again:
        assert again.resume()
        again.fit(steps=12)
        assert_same_bits(again.session.state(), whole)


def test_a_source_that_raises_amid_a_minibatch_leaves_the_last_whole_one(
    forked: Compile, tmp_path: Path
) -> None:
    program = forked()
    trainer = et.Trainer(program, "digits", tmp_path)
    assert trainer.source is not None
    read, calls = trainer.source.read, 0

    def failing(*args):
        nonlocal calls
        calls += 1
        if calls == 12:  # the second microbatch of step 6
            raise OSError(errno.EIO, "the disk of the data is gone")
        return read(*args)

    trainer.source.read = failing  # type: ignore[method-assign]
    with pytest.raises(et.DataError, match="the disk of the data is gone"):
        trainer.fit(steps=9)
    trainer.close()
    with et.Trainer(program, "digits") as other:
        other.fit(steps=5)
        loaded = latest(tmp_path)
        assert loaded is not None and loaded.meta["step"] == 5
        assert_same_bits(loaded.tensors, other.session.state())


def test_a_save_that_fails_on_the_way_out_hides_nothing(
    net: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise et.errors.RunError("the disk is full")

    def stream() -> Iterator[Any]:
        yield from batches(3)
        monkeypatch.setattr(checkpoint, "save_checkpoint", full)
        raise Gone("first")

    events: list[dict] = []
    trainer = et.Trainer(net, stream(), tmp_path, on_event=events.append)
    with pytest.raises(Gone, match="first"):
        trainer.fit(steps=9)
    trainer.close()
    (message,) = [event["message"] for event in events if event["event"] == "warning"]
    assert "step 3" in message and "Gone" in message and "not saved: the disk is full" in message


def test_a_full_disk_is_tried_once(net: Program, tmp_path: Path, monkeypatch) -> None:
    tries = 0

    def full(*args: Any, **options: Any) -> None:
        nonlocal tries
        tries += 1
        raise et.errors.RunError("the disk is full")

    monkeypatch.setattr(checkpoint, "save_checkpoint", full)
    with pytest.raises(et.errors.RunError, match="full"):
        et.Trainer(net, batches(9), tmp_path, save_steps=4).fit(steps=9)
    assert tries == 1


def test_events_that_cannot_be_told_do_not_stop_the_save(net: Program, tmp_path: Path) -> None:
    def broken(event: dict) -> None:
        if event.get("step", 0) >= 3:
            raise BrokenPipeError(errno.EPIPE, "broken")

    with pytest.raises(BrokenPipeError):
        et.Trainer(net, batches(9), tmp_path, on_event=broken).fit(steps=9)
    assert [path.name for path in step_files(tmp_path)] == ["step-00000003.ckpt"]


def test_samples_handed_over_are_kept_where_the_block_is_left(net: Program, tmp_path) -> None:
    with pytest.raises(Gone), et.Trainer(net, out=tmp_path) as trainer:
        for x, y in batches(5):
            trainer.step(x, y)
        raise Gone
    assert [path.name for path in step_files(tmp_path)] == ["step-00000005.ckpt"]


def test_nothing_is_written_where_nothing_was_done(net: Program, tmp_path: Path) -> None:
    def stream() -> Iterator[Any]:
        raise Gone
        yield

    with pytest.raises(Gone), et.Trainer(net, stream(), tmp_path) as trainer:
        trainer.fit(steps=2)
    assert not step_files(tmp_path)
    with et.Trainer(net, batches(3), tmp_path / "other") as trainer:
        trainer.fit(steps=3)
    before = step_files(tmp_path / "other")[0].stat()
    with pytest.raises(Gone), et.Trainer(net, stream(), tmp_path / "other") as trainer:
        trainer.resume()
        trainer.fit(steps=5)
    assert step_files(tmp_path / "other")[0].stat().st_mtime_ns == before.st_mtime_ns


def test_weights_of_a_failed_step_are_not_saved(forked: Compile, tmp_path: Path) -> None:
    program = forked(optimizer=et.SGD(lr=0.01), microbatch=16, fused_update=True)
    x = np.random.default_rng(0).standard_normal((64, 1, 8, 8)).astype(np.float32)
    x[40:] = np.inf

    def stream() -> Iterator[Any]:
        for k in range(0, 64, 16):
            yield x[k : k + 16], np.arange(16) % 10

    trainer = et.Trainer(program, stream(), tmp_path, save_steps=1)
    with pytest.raises(et.errors.RunError, match="generator can.t restart"):
        trainer.fit(steps=4)
    with pytest.raises(et.errors.RunError, match="a failed step"):
        trainer.save()
    trainer.close()
    loaded = latest(tmp_path)
    assert loaded is not None and loaded.meta["step"] == 2
    assert all(np.isfinite(array).all() for array in loaded.tensors.values())


# By time.


def saved_at(program: Program, data: Any, out: Path, seconds: float, monkeypatch, **settings):
    """Steps that were saved if each step takes `seconds`."""

    class Clock:
        now = 0.0
        monotonic = staticmethod(lambda: Clock.now)

    def on_step(trainer: et.Trainer, result: Any) -> None:
        Clock.now = trainer.steps * seconds

    settings |= {"save_total_limit": None, "callbacks": et.Callback(on_step=on_step)}
    monkeypatch.setattr(learner, "time", Clock)
    with et.Trainer(program, data, out, **settings) as trainer:
        trainer.fit(steps=12)
    return [step_of(path) for path in step_files(out)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, [4, 8, 12]), ({"save_seconds": 0}, [12]), ({"save_seconds": 450}, [3, 6, 9, 12]),
     ({"save_steps": 5}, [5, 10, 12]), ({"save_steps": 5, "save_seconds": 300}, None)],
)  # fmt: skip
@pytest.mark.parametrize("way", ["stream", "epochs"])
def test_streams_and_long_epochs_are_saved_by_time(
    net: Program, tmp_path: Path, monkeypatch, settings: dict, expected, way: str
) -> None:
    data: Callable[[], Any] = {"stream": lambda: iter(batches(40)), "epochs": lambda: batches(40)}[
        way
    ]
    found = saved_at(net, data(), tmp_path, SAVE_SECONDS / 4, monkeypatch, **settings)
    assert found == (expected or [2, 4, 5, 7, 9, 10, 12])


def test_short_epochs_are_saved_at_their_ends_alone(net, tmp_path: Path, monkeypatch) -> None:
    assert saved_at(net, batches(4), tmp_path, 1.0, monkeypatch) == [4, 8, 12]
