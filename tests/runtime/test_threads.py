"""Threads that share a Trainer or Session, and threads left over after it is forgotten."""

import gc
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.program import Program
from edgetrain.runtime import team
from edgetrain.runtime.fifo_lock import FifoLock
from edgetrain.runtime.run.checkpoint import latest
from edgetrain.runtime.training.signals import Deferral
from tests.runtime.conftest import Compile, assert_same_bits
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(320)
SECONDS = 60  # that nothing here needs unless it hangs


@pytest.fixture(scope="module", params=[1, 2])
def net(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compiled(exported(tmp_path_factory.mktemp("threads"))[1], threads=request.param)


def together(*functions: Callable[[], Any]) -> list[BaseException]:
    """Run the functions in threads of their own; return what they raised."""
    raised: list[BaseException] = []

    def run(function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return raised


def copied(trainer: et.Trainer) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in trainer.session.state().items()}


def test_predictions_amid_training_are_of_one_step_and_move_nothing(net, tmp_path: Path) -> None:
    steps, outputs, seen = 80, list[bytes](), set[bytes]()

    def after(trainer: et.Trainer, *_: Any) -> None:
        seen.add(trainer.predict(X[:40]).tobytes())

    with et.Trainer(net, (X, Y), callbacks=et.Callback(on_step=after)) as alone:
        after(alone)
        alone.fit(steps=steps)
        expected, metrics = copied(alone), alone.evaluate((X, Y))
    going_on = True
    with et.Trainer(net, (X, Y), tmp_path) as trainer:

        def fit() -> None:
            nonlocal going_on
            try:
                trainer.fit(steps=steps)
            finally:
                going_on = False

        def others(act: Callable[[], Any]) -> Callable[[], None]:
            def loop() -> None:
                while going_on:
                    act()

            return loop

        raised = together(
            fit,
            others(lambda: outputs.append(trainer.predict(X[:40]).tobytes())),
            others(lambda: trainer.evaluate((X[:64], Y[:64]))),
            others(trainer.save),
            others(trainer.state_dict),
            others(lambda: trainer.parameters["fc1.weight"]),
        )
        assert not raised and len(outputs) > 1 and {*outputs} <= seen
        assert_same_bits(copied(trainer), expected)
        assert trainer.evaluate((X, Y)) == metrics
    loaded = latest(tmp_path)
    assert loaded is not None
    assert_same_bits(loaded.tensors, expected)


def test_a_loop_of_training_starves_no_prediction_and_is_not_starved(net: Program) -> None:
    done: list[str] = []
    with et.Trainer(net, (X, Y), callbacks=et.Callback(on_step=lambda *_: done.append("s"))) as one:

        def predict() -> None:
            while len(done) < 400 and done.count("s") < 200:
                one.predict(X[:4])
                done.append("p")

        assert not together(lambda: one.fit(steps=200), predict, predict)
    middle = "".join(done)[20:200]
    assert "s" * 60 not in middle and "p" * 60 not in middle


def test_one_thread_at_a_time_is_in_fit_and_the_others_are_told(net: Program) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        inside.set()
        assert go_on.wait(SECONDS)

    with et.Trainer(net, (X, Y), callbacks=et.Callback(on_step=hold)) as trainer:
        first = threading.Thread(target=trainer.fit, kwargs={"steps": 3})
        first.start()
        assert inside.wait(SECONDS)
        raised = together(
            lambda: trainer.fit(steps=9), lambda: trainer.fit(steps=9),
            lambda: trainer.step(X[:4], Y[:4]), lambda: trainer.resume("nowhere"),
            trainer.restore_best,
        )  # fmt: skip
        assert len(raised) == 5 and all(type(error) is et.UsageError for error in raised)
        assert all("another thread" in str(error) for error in raised)
        go_on.set()
        first.join(SECONDS)
        assert trainer.steps == 3
        trainer.fit(steps=1)
        trainer.step(X[:4], Y[:4])
        assert trainer.steps == 5


def test_steps_of_several_threads_are_whole(net: Program) -> None:
    with et.Trainer(net) as trainer:

        def steps() -> None:
            for _ in range(50):
                trainer.step(X[:16], Y[:16])

        assert not together(steps, steps, steps)
        assert trainer.steps == 150
        several = copied(trainer)
    with et.Trainer(net) as alone:
        for _ in range(150):
            alone.step(X[:16], Y[:16])
        assert_same_bits(several, copied(alone))


@pytest.mark.parametrize("hook", ["on_step", "on_epoch_end", "on_save", "on_fit_begin"])
def test_callbacks_predict_evaluate_and_save_inside_fit(net, tmp_path: Path, hook: str) -> None:
    calls = 0

    def act(trainer: et.Trainer, *rest: Any) -> None:
        nonlocal calls
        calls += 1
        trainer.predict(X[:3])
        trainer.evaluate((X[:32], Y[:32]))
        trainer.state_dict()
        if hook != "on_save":
            trainer.save()

    with et.Trainer(net, (X, Y), tmp_path, callbacks=et.Callback(**{hook: act})) as trainer:
        assert not together(lambda: trainer.fit(steps=6))
        found = copied(trainer)
    with et.Trainer(net, (X, Y)) as alone:
        alone.fit(steps=6)
        assert_same_bits(found, copied(alone))
    assert calls


def test_a_generator_may_wait_for_a_thread_that_predicts(net: Program) -> None:
    with et.Trainer(net) as trainer:

        def samples():
            for k in range(0, 80, 16):
                assert not together(lambda: trainer.predict(X[:2]))
                yield X[k : k + 16], Y[k : k + 16]

        with et.Trainer(net, samples()) as other:
            trainer = other
            assert not together(lambda: other.fit(steps=5))


@pytest.mark.parametrize("what", ["predict", "evaluate", "step", "close"])
def test_a_source_cannot_use_the_session_that_it_fills(forked: Compile, what: str) -> None:
    trainer = et.Trainer(forked(), "digits")
    assert trainer.source is not None
    x = np.zeros((1, 1, 8, 8), np.float32)
    acts: dict[str, Callable[[], Any]] = {
        "predict": lambda: trainer.predict(x), "evaluate": trainer.evaluate,
        "step": lambda: trainer.step(x, [1]), "close": trainer.close,
    }  # fmt: skip
    read = trainer.source.read

    def reading(*given):
        acts[what]()
        return read(*given)

    trainer.source.read = reading  # type: ignore[method-assign]
    with pytest.raises(et.UsageError, match="called by the data"):
        trainer.fit(steps=1)
    trainer.source.read = read  # type: ignore[method-assign]
    trainer.fit(steps=1)
    trainer.close()


def test_close_waits_for_others_and_may_be_repeated(net: Program) -> None:
    started = threading.Event()
    callback = et.Callback(on_step=lambda *_: started.set())
    trainer = et.Trainer(net, (X, Y), callbacks=callback)

    def close() -> None:
        assert started.wait(SECONDS)
        trainer.close()
        trainer.close()

    raised = together(lambda: trainer.fit(steps=10**6), close)
    assert [type(error) for error in raised] == [et.UsageError] and "closed" in str(raised[0])


def test_turns_are_handed_on_in_order() -> None:
    turns, order, places = FifoLock(Deferral()), list[int](), list[threading.Thread]()
    with turns, turns:
        for number in range(8):

            def take(number: int = number) -> None:
                with turns, turns:
                    order.append(number)

            places.append(threading.Thread(target=take))
            places[-1].start()
            while len(turns._queue) <= number:
                time.sleep(0.001)
        with turns:
            assert not order
    for place in places:
        place.join(SECONDS)
    assert order == [*range(8)] and not turns._owner


# Leftover threads.


def threads_of_this_process(most: int) -> int:
    """Number of threads once the system has removed finished ones, or after a second."""
    for _ in range(100):
        count = len(os.listdir("/proc/self/task"))
        if count <= most:
            break
        time.sleep(0.01)
    return count


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
@pytest.mark.parametrize("kind", [team.Sleepers, team.Relay])
def test_trainers_that_are_forgotten_leave_no_thread(
    forked: Compile, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    monkeypatch.setattr(team, "Sleepers", kind)
    program = forked(threads=2)
    gc.collect()
    before = len(os.listdir("/proc/self/task"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(100):
            trainer = et.Trainer(program, "digits")
            if number % 10 == 0:
                trainer.fit(steps=1)
            if number % 25 == 0:
                trainer.close()
                trainer.close()
            del trainer
        gc.collect()
    assert threads_of_this_process(before) <= before


def test_a_team_that_gets_no_thread_leaves_none(forked: Compile, monkeypatch) -> None:
    def none(*given: Any) -> None:
        raise RuntimeError("can't start new thread")

    program = forked(threads=2)
    monkeypatch.setattr(team, "start_new_thread", none)
    with pytest.raises(et.errors.RunError, match="threads 2: the system"):
        et.Trainer(program)
    gc.collect()
