"""Skipped steps: the mean loss, the samples at fault, the record, and what is saved afterwards."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.data.order.permute import permuted
from edgetrain.data.source import Source
from edgetrain.program import Program
from edgetrain.runtime.run.checkpoint import latest, save_step, step_files
from edgetrain.runtime.training import skipped
from edgetrain.runtime.training.skipped import (
    MOST_INDICES,
    MOST_STEPS,
    RECORD_FILE,
    Fed,
    SkippedSteps,
)
from tests.runtime.conftest import Compile, assert_same_bits
from tests.runtime.online_net import compiled, drawn, exported

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Program]:
    path = exported(tmp_path_factory.mktemp("skipped"), norm=True)[1]
    return lambda **options: compiled(path, **options)


def source(bad: dict[int, float], n: int = 80) -> Source:
    x, y = drawn(n)
    for index, value in bad.items():
        x[index, 2] = value
    return et.open_data((x, y), allow_nonfinite=True)


def record(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / RECORD_FILE).read_text())["steps"]


def run(program: Program, data: Any, out: Path | None, epochs: int = 1, **settings):
    """A run's events, and its final state."""
    events: list[dict] = []
    with et.Trainer(program, data, out, on_event=events.append, **settings) as trainer:
        if out is not None:
            trainer.resume()
        trainer.fit(epochs=epochs)
        state = {name: array.copy() for name, array in trainer.session.state().items()}
    return events, state


def of_kind(events: list[dict], kind: str) -> list[dict]:
    return [event for event in events if event["event"] == kind]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_bad_samples_are_said_and_recorded_and_every_state_is_saved(
    net, tmp_path: Path, precision: str
) -> None:
    program, bad = net(precision=precision), {7: NAN, 30: INF, 31: -INF}
    events, _ = run(program, source(bad), tmp_path, 2, save_steps=1, save_total_limit=None)
    steps = of_kind(events, "step")
    assert {path.name for path in step_files(tmp_path)} == {
        f"step-{number:08d}.ckpt" for number in range(1, 11)
    }
    fed = {k: permuted(0, k // 5, np.arange(16) + k % 5 * 16, 80).tolist() for k in range(10)}
    wanted = {k + 1: {i for i in bad if i in fed[k]} for k in range(10) if {*bad} & {*fed[k]}}
    found = {row["step"]: row for row in record(tmp_path)}
    assert {step: {*found[step]["bad"]} for step in wanted} == wanted
    assert all(row["samples"] == fed[row["step"] - 1] for row in found.values())
    assert all(row["epoch"] == (row["step"] - 1) // 5 for row in found.values())
    told = {event["step"]: event for event in of_kind(events, "skip")}
    assert {step: {*event["samples"]} for step, event in told.items()} == wanted
    for step, event in told.items():
        assert all(f"sample {i}" in event["message"] for i in wanted[step])
    for epoch in of_kind(events, "epoch"):
        own = [s for s in steps if epoch["step"] - 5 < s["step"] <= epoch["step"]]
        assert epoch["skipped"] == sum(s["skipped"] for s in own) > 0
        assert epoch["loss"] == pytest.approx(np.mean([s["loss"] for s in own if not s["skipped"]]))


def test_a_stream_with_one_bad_batch_is_saved_to_its_end(net, tmp_path: Path) -> None:
    x, y = drawn(160)
    x[50, 0] = NAN  # row 2 of batch 3
    batches = [(x[k : k + 16], y[k : k + 16]) for k in range(0, 160, 16)]
    events, state = run(net(), iter(batches), tmp_path, save_steps=2)
    loaded = latest(tmp_path)
    assert loaded is not None and loaded.meta["step"] == 10
    assert record(tmp_path) == [
        {"step": 4, "epoch": 0, "batch": 3, "samples": [*range(16)], "bad": [2]}
    ]
    assert "batch 3, sample 2" in of_kind(events, "skip")[0]["message"]
    others = [*batches[:3], (x[48:64] * 0 + INF, y[48:64]), *batches[4:]]
    assert_same_bits(run(net(), iter(others), None)[1], state)  # inspecting changed nothing


def test_a_skipped_run_resumes_to_the_same_bits_and_record(net, tmp_path: Path) -> None:
    data, program = source({7: NAN, 30: INF}), net()
    _, whole = run(program, data, tmp_path / "whole", 3)
    for epochs in (1, 3):
        _, parts = run(program, data, tmp_path / "parts", epochs)
    assert_same_bits(parts, whole)
    assert record(tmp_path / "parts") == record(tmp_path / "whole")


def test_fused_updates_name_the_samples_once_they_went_back(forked: Compile, tmp_path) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((64, 1, 8, 8)).astype(np.float32)
    x[7] = INF
    data = et.open_data((x, draw.integers(0, 10, 64)), allow_nonfinite=True)
    program = forked(optimizer=et.SGD(lr=0.01), microbatch=16, fused_update=True)
    events, _ = run(program, data, tmp_path, save_steps=1)
    assert [event["samples"] for event in of_kind(events, "skip")] == [[7]]
    assert [row["bad"] for row in record(tmp_path)] == [[7]]


def test_a_sample_handed_over_is_named_by_its_row(net) -> None:
    events: list[dict] = []
    x, y = drawn(10)
    x[4, 1] = NAN
    with et.Trainer(net(), on_event=events.append) as trainer:
        assert trainer.step(x, y).skipped
    assert [event["samples"] for event in of_kind(events, "skip")] == [[4]]


def test_samples_are_not_blamed_for_the_weights(net, tmp_path: Path) -> None:
    events: list[dict] = []
    with et.Trainer(net(), source({}), tmp_path, on_event=events.append) as trainer:
        trainer.session.values["fc2.weight"].flat[0] = NAN
        with pytest.raises(et.RunError, match="25 steps in a row"):
            trainer.fit(epochs=9)
    (event,) = of_kind(events, "skip")  # reported once
    assert event["samples"] == [] and "no checked sample" in event["message"]
    assert [row["bad"] for row in record(tmp_path)] == [[]] * 25


def test_an_input_that_is_never_finite_is_named(net) -> None:
    x, y = drawn(16)
    x[:, 1] = NAN
    trainer = et.Trainer(net(), [(x, y)] * 30, verbose=False)
    with pytest.raises(et.RunError, match="input '.*' of their samples is not finite; corr"):
        trainer.fit(epochs=1)
    trainer.close()


def test_a_source_that_cannot_be_read_again_ends_nothing(net) -> None:
    data, events, seen = source({7: NAN}), list[dict](), set[int]()
    read = data.read

    def once(names, indices, key, train) -> dict[str, np.ndarray]:
        if 7 in indices and trainer:
            seen.add(trainer[0].steps)
            if len(seen) == 2:  # the step is over
                raise OSError("gone")
        return read(names, indices, key, train)

    data.read, trainer = once, list[et.Trainer]()  # type: ignore[method-assign]
    with et.Trainer(net(), data, on_event=events.append) as one:
        trainer.append(one)
        one.fit(steps=5)
    assert [step["skipped"] for step in of_kind(events, "step")].count(True) == 1
    (event,) = of_kind(events, "skip")
    assert "read again" in event["message"] and "gone" in event["message"]


@pytest.mark.parametrize("sum_", [NAN, INF, None])
def test_a_checkpoint_whose_mean_is_not_finite_is_resumed(net, tmp_path: Path, sum_) -> None:
    program, data = net(), source({})
    run(program, data, tmp_path)
    loaded = latest(tmp_path)
    assert loaded is not None
    position = {"epoch": 0, "done": 3, "ended": False, "loss": sum_, "counted": 3}
    meta = loaded.meta | {"step": 3, "position": position}
    os.remove(loaded.used)
    edit_and_save(tmp_path, loaded.tensors, meta)
    events, _ = run(program, data, tmp_path, 2)
    own = of_kind(events, "step")[:2]
    assert of_kind(events, "epoch")[0]["loss"] == pytest.approx(np.mean([s["loss"] for s in own]))


def edit_and_save(folder: Path, tensors: dict, meta: dict) -> None:
    """A checkpoint as older builds may have written it."""
    path = save_step(folder, 3, tensors, meta | {"position": {}})
    skipped_save = json.dumps(meta)
    from edgetrain.program.container import write_container
    from edgetrain.runtime.run.checkpoint import KIND, VERSION

    write_container(path, tensors, {"state": skipped_save}, kind=KIND, version=VERSION)


# The record.


def kept(tmp_path: Path, steps: range, samples: int) -> tuple[list[dict], list[dict]]:
    """The record after these steps, and the events."""
    events: list[dict] = []

    class Session:
        step, ints = 0, [0] * 64
        program = SimpleNamespace(microbatch=2**20)
        buffers = staticmethod(lambda tape: {})

    class Folder:
        path = tmp_path

    result = et.runtime.session.StepResult(0.5, NAN, True, False, 1, 0.1)
    skips = SkippedSteps(Session(), Folder(), events.append)  # type: ignore[arg-type]
    for Session.step in steps:
        skips.note(result, 0, Fed(np.arange(samples), lambda rows: None, str))
    return record(tmp_path), events


def test_the_record_keeps_the_newest_steps(tmp_path: Path) -> None:
    rows, _ = kept(tmp_path, range(1, 100), 3)
    assert [row["step"] for row in rows] == [*range(100 - MOST_STEPS, 100)]
    rows, _ = kept(tmp_path, range(80, 82), 3)  # repeated after going back
    assert [row["step"] for row in rows] == [*range(100 - MOST_STEPS, 82)]


def test_the_record_is_bounded(tmp_path: Path) -> None:
    rows, _ = kept(tmp_path, range(1, 9), MOST_INDICES // 3)
    assert [row["step"] for row in rows] == [6, 7, 8]
    rows, _ = kept(tmp_path, range(9, 10), 2 * MOST_INDICES)
    assert [len(row["samples"]) for row in rows] == [MOST_INDICES]
    assert (tmp_path / RECORD_FILE).stat().st_size < 1_500_000


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "steps": []}', '{"version": 1, "steps": [1]}',
             "directory", "[" * 10**5, " " * (2**22 + 1)],
    ids=range(8),
)  # fmt: skip
def test_a_record_that_cannot_be_read_begins_anew_and_that_is_said(tmp_path: Path, text) -> None:
    path = tmp_path / RECORD_FILE
    if text == "directory":
        path.mkdir()
    else:
        path.write_text(text)
    events: list[dict] = []
    if text == "directory":
        skips = SkippedSteps(None, None, events.append)  # type: ignore[arg-type]
        assert skips._read(path) == [] and len(events) == 1
        return
    rows, events = kept(tmp_path, range(1, 2), 3)
    assert [row["step"] for row in rows] == [1]
    assert "Starting a new one" in events[0]["message"]


def test_a_link_in_place_of_the_record_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / RECORD_FILE).symlink_to(tmp_path / "mine")
    events: list[dict] = []
    with pytest.raises(ValueError):  # the link's target is not a record
        kept(tmp_path, range(1, 2), 3)
    assert (tmp_path / "mine").read_text() == "mine" and not events


def test_looking_for_samples_is_bounded(net) -> None:
    calls = 0
    with et.Trainer(net()) as trainer:
        session, evaluate = trainer.session, trainer.session.evaluate

        def counted(*args):
            nonlocal calls
            calls += 1
            return evaluate(*args)

        session.evaluate = counted  # type: ignore[method-assign]
        x, y = drawn(64)
        given = trainer._handed_over
        for bad, most in (([], 16), ([5], 16 + 4), ([*range(64)], 3 * skipped.MOST_BAD)):
            x[bad] = NAN
            calls = 0
            found = skipped.bad_rows(session, given.fed(given.samples(x, y)), True)
            assert found == bad[: skipped.MOST_BAD] and calls <= most
    assert math.isnan(x[0, 0])
