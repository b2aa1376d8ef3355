"""The history of a run: bounded, written and read back, cut where a resumed run continues."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from edgetrain.history import COLUMNS, MOST_ROWS, History
from edgetrain.report.run_page import run_page
from edgetrain.runtime.loading.program import load_program
from tests.quick import slow_between


def event(step: int, **more) -> dict:
    return {"event": "step", "step": step, "loss": 1.0 / step, "lr": 0.1, "grad_norm": 2.0,
            "loss_scale": 1.0, "skipped": False, "reason": None, **more}  # fmt: skip


def filled(steps: int) -> History:
    history = History()
    for step in range(1, steps + 1):
        history.add(event(step))
    return history


@pytest.mark.parametrize("steps", [1, 100, 2 * MOST_ROWS + 1, 50_000])
def test_history_keeps_every_step_in_few_rows(steps: int) -> None:
    history = filled(steps)
    assert len(history.steps["step"]) < 2 * MOST_ROWS
    assert history.last == steps and sum(history.steps["n"]) == steps
    assert {len(column) for column in history.steps.values()} == {len(history.steps["n"])}
    pairs = zip(history.steps["loss"], history.steps["n"], strict=True)
    mean = sum(loss * n for loss, n in pairs) / steps
    assert mean == pytest.approx(sum(1 / k for k in range(1, steps + 1)) / steps, rel=1e-9)


def test_history_counts_skipped_steps_and_says_why() -> None:
    history = History()
    history.add(event(1))
    history.add(event(2, loss=math.nan, skipped=True, reason="gradients not finite"))
    assert history.steps["skipped"] == [0.0, 1.0]
    assert history.notes == [(2, "skipped: gradients not finite")]


def test_history_comes_back_from_its_file(tmp_path: Path) -> None:
    history = filled(10)
    history.add({"event": "epoch", "epoch": 1, "step": 10, "loss": 0.5, "seconds": 1.0})
    history.add({"event": "eval", "epoch": 1, "loss": 0.4, "samples": 9, "accuracy": 0.75,
                 "confusion": [[1, 0], [0, 2]]})  # fmt: skip
    history.add({"event": "warning", "message": "careful"})
    history.write(tmp_path / "history.json")
    found = History.read(tmp_path / "history.json")
    assert vars(found) == vars(history)
    assert found.epochs[0]["evaluation"] == {"loss": 0.4, "accuracy": 0.75}
    assert found.confusion == {"epoch": 1, "counts": [[1, 0], [0, 2]]}


def test_history_forgets_what_is_done_again() -> None:
    history = filled(10)
    history.add({"event": "epoch", "epoch": 1, "step": 10, "loss": 0.5, "seconds": 1.0})
    history.add({"event": "resume", "step": 6, "path": "run/step-6.ckpt"})
    assert history.last == 6 and history.epochs == []
    assert history.notes == [(6, "resumed at step 6")]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"version": 9}', '{"version": 1, "steps": {}}',
     '{"version": 1, "steps": {' + ", ".join(f'"{c}": [1]' for c in COLUMNS[1:])
     + ', "step": [1, 2]}, "epochs": [], "notes": [], "confusion": null}',
     '{"version": 1, "steps": {' + ", ".join(f'"{c}": ["x"]' for c in COLUMNS)
     + '}, "epochs": [], "notes": [], "confusion": null}'],
)  # fmt: skip
def test_a_damaged_history_is_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    assert History.read(path).last == 0 and History.read(tmp_path / "none").last == 0


def _set(where: str, value: object) -> Callable[[dict], None]:
    """Set the value at a path such as `epochs/0/loss`."""

    def change(kept: dict) -> None:
        *path, last = [int(part) if part.isdigit() else part for part in where.split("/")]
        for part in path:
            kept = kept[part]
        kept[last] = value

    return change


def _kept(path: Path) -> dict:
    history = filled(4)
    history.add({"event": "epoch", "epoch": 1, "step": 4, "loss": 0.5, "seconds": 1.0})
    history.add(
        {"event": "eval", "epoch": 1, "loss": 0.4, "accuracy": 0.75, "confusion": [[1, 0], [0, 2]]}
    )
    history.add({"event": "warning", "message": "careful"})
    history.write(path)
    return json.loads(path.read_bytes())


ODD = [None, [], {}, "x", math.inf, math.nan, 10**400, -1, True, [[1, 2]], 1.5]
PLACES = [
    "version", "steps", "epochs", "notes", "confusion", "steps/step", "steps/loss", "steps/n",
    "steps/step/0", "steps/step/3", "steps/n/0", "steps/skipped/1", "steps/loss/2", "steps/lr/0",
    "epochs/0", "epochs/0/step", "epochs/0/epoch", "epochs/0/loss", "epochs/0/evaluation",
    "epochs/0/evaluation/loss", "epochs/0/evaluation/accuracy", "confusion/counts",
    "confusion/epoch", "confusion/counts/0", "confusion/counts/1/1", "notes/0", "notes/0/0",
    "notes/0/1",
]  # fmt: skip


@pytest.mark.parametrize("where", slow_between(PLACES, 3))
def test_damage_to_a_history_ends_no_run(tmp_path: Path, where: str, digits_edge: Path) -> None:
    path, program = tmp_path / "history.json", load_program(digits_edge)
    for odd in [*ODD, "\ud800", 1e308, -1e308, 0, 2**53]:
        kept = _kept(path)
        _set(where, odd)(kept)
        path.write_text(json.dumps(kept))
        history = History.read(path)
        history.add({"event": "resume", "step": 4, "path": "run/step-4.ckpt"})
        history.add(event(5))
        run_page("net", program, history, "running").write(tmp_path / "page.html")


@pytest.mark.parametrize(
    ("where", "odd"),
    [("steps/step/0", None), ("epochs/0/evaluation", [1]), ("epochs/0/loss", "0.5"),
     ("notes/0/0", math.inf), ("epochs/0/epoch", 1.5), ("steps/step/1", 1.5)],
)  # fmt: skip
def test_a_history_of_other_types_is_an_empty_one(tmp_path: Path, where: str, odd: object) -> None:
    path = tmp_path / "history.json"
    kept = _kept(path)
    _set(where, odd)(kept)
    path.write_text(json.dumps(kept))
    assert vars(History.read(path)) == vars(History())


@pytest.mark.parametrize("odd", [{}, [], {"epoch": 1, "counts": [[1, 2]]}, {"counts": [[1]]}])
def test_a_damaged_table_leaves_the_rest_of_a_history(tmp_path: Path, odd: object) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({**_kept(path), "confusion": odd}))
    found = History.read(path)
    assert found.confusion is None and found.last == 4 and found.epochs


def test_an_endlessly_nested_history_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text("[" * 200_000)
    assert History.read(path).last == 0


def test_history_forgets_the_confusion_of_steps_that_are_done_again() -> None:
    history = filled(10)
    for epoch in (1, 2):
        history.add({"event": "epoch", "epoch": epoch, "step": 5 * epoch, "loss": 0.5,
                     "seconds": 1.0})  # fmt: skip
        history.add({"event": "eval", "epoch": epoch, "loss": 0.4, "confusion": [[epoch]]})
    history.cut(10)
    assert history.confusion == {"epoch": 2, "counts": [[2]]}
    history.cut(9)
    assert history.confusion is None
