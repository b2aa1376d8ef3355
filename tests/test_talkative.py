"""Python prints what the shell prints, in scripts, notebooks and loggers, unless told not to."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.screen.levels import levels
from edgetrain.screen.progress import sparkline

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "examples" / "digits" / "model.onnx"
SCRIPT = f"""
import edgetrain as et
program = et.compile({str(MODEL)!r}, optimizer=et.SGD(lr=0.1, momentum=0.9), minibatch=32,
                     microbatch=8, budget="256KiB")
trainer = et.Trainer(program, data="digits", out="runs/python")
history = trainer.fit(epochs=2, evaluate=True)
trainer.evaluate()
print(trainer.out, history["step"], len(history["val_accuracy"]))
"""


def script(text: str, folder: Path, *options: str, quiet: bool = False) -> tuple[str, str]:
    """Output of a script that runs in `folder`; Python warnings are errors."""
    environment = {k: v for k, v in os.environ.items() if k != "EDGETRAIN_PROGRESS"}
    environment |= {"PYTHONPATH": str(ROOT)} | ({"EDGETRAIN_PROGRESS": "0"} if quiet else {})
    command = [sys.executable, "-W", "error", *options, "-c", text]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_script_shows_plan_warnings_and_progress_and_runs_twice(tmp_path: Path) -> None:
    out, said = script(SCRIPT, tmp_path)
    assert out == "runs/python [44, 88] 2\n"
    lines = said.splitlines()
    assert any(line.startswith("arena  ") and "262,144" in line for line in lines)
    assert any("batch-norm" in line and "8 of the 32 samples" in line for line in lines)
    assert any(line.startswith("29 of 1437 samples are dropped") for line in lines)
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert len(epochs) == 4 and "accuracy" in epochs[1]
    assert not set("▁█") & set(epochs[0]) and {*"▁█"} <= set(epochs[2])
    assert "360 samples" in lines[-1]

    out, said = script(SCRIPT, tmp_path)
    assert out == "runs/python-2 [44, 88] 2\n"
    assert "runs/python already contains a run, so this one is written to runs/python-2" in said
    found = {path.name for path in (tmp_path / "runs" / "python").iterdir()}
    assert {"loss.svg", "history.json"} <= found

    resumed = SCRIPT.replace('"runs/python")', '"runs/python", resume=True)')
    out, said = script(resumed, tmp_path)
    assert out == "runs/python [44, 88] 2\n"
    assert "nothing to do" in said and "88 steps" in said
    out, said = script(resumed.replace("epochs=2", "epochs=3"), tmp_path)
    assert out == "runs/python [44, 88, 132] 3\n" and "resumed at step 88" in said


@pytest.mark.parametrize(
    ("before", "options", "quiet"),
    [
        ("", ", verbose=False", False),
        ("import logging; logging.getLogger('edgetrain').setLevel(logging.ERROR)", "", False),
        ("import logging; logging.disable(logging.CRITICAL)", "", False),
        ("", "", True),
    ],
)
def test_nothing_is_said_where_that_is_asked(
    tmp_path: Path, before: str, options: str, quiet: bool
) -> None:
    text = SCRIPT.replace('"256KiB")', f'"256KiB"{options})')
    text = text.replace('"runs/python")', f'"runs/python"{options})')
    out, said = script(f"{before}\n{text}", tmp_path, quiet=quiet)
    assert out.startswith("runs/python") and said == ""


def test_a_logger_at_the_level_of_warnings_has_those_alone(tmp_path: Path) -> None:
    text = "import logging; logging.getLogger('edgetrain').setLevel(logging.WARNING)\n" + SCRIPT
    script(text, tmp_path)
    _, said = script(text, tmp_path)
    lines = said.splitlines()
    assert len(lines) == 2 and "batch-norm" in lines[0] and "already contains a run" in lines[1]


def test_handlers_of_the_logger_get_the_lines(tmp_path: Path) -> None:
    text = (
        "import logging, sys\nlogger = logging.getLogger('edgetrain')\n"
        "handler = logging.StreamHandler(sys.stdout)\n"
        "handler.setFormatter(logging.Formatter('%(levelname)s|%(message)s'))\n"
        "logger.addHandler(handler); logger.setLevel(logging.INFO); logger.propagate = False\n"
    )
    out, said = script(text + SCRIPT, tmp_path)
    assert said == "" and out.count("INFO|epoch ") == 4


def test_levels_of_verbose_environment_and_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGETRAIN_PROGRESS", "0")
    assert levels(None) == (False, False) and levels(True) == (True, True)
    monkeypatch.delenv("EDGETRAIN_PROGRESS")
    assert levels(None) == (True, True) and levels(False) == (False, False)


def test_a_sparkline_spans_its_values_and_leaves_gaps() -> None:
    assert sparkline([3.0, 2.0, float("nan"), 1.0]) == "█▅ ▁"
    assert sparkline([1.0, 1.0]) == "▁▁" and sparkline([]) == ""


def test_progress_in_a_terminal_is_a_bar(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    text = (
        "import os, pty, sys\n"
        "def read(fd):\n    data = os.read(fd, 65536); return data\n"
        f"status = pty.spawn([sys.executable, '-c', {SCRIPT!r}], read)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(status))\n"
    )
    out, _ = script(text, tmp_path)
    assert "━" in out and "step" in out and "epoch 2: test loss" in out


NOTEBOOK = """
import json, nbformat, sys
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
found = nbformat.v4.new_notebook(cells=cells)
NotebookClient(found, timeout=300, kernel_name="python3").execute()
print(json.dumps([cell["outputs"] for cell in found.cells]))
"""


@pytest.mark.skipif(
    not all(map(find_spec, ("nbclient", "ipykernel", "rich"))), reason="needs nbclient, ipykernel"
)
def test_a_notebook_shows_progress(tmp_path: Path) -> None:
    """Rich's bar is an HTML table, updated under one display id; other lines are text."""
    cells = [SCRIPT.replace("trainer.evaluate()\n", ""), "trainer.fit(epochs=1, verbose=False)"]
    environment = {k: v for k, v in os.environ.items() if k != "EDGETRAIN_PROGRESS"}
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], input=json.dumps(cells), cwd=tmp_path, text=True,
        env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = json.loads(done.stdout.splitlines()[-1])
    text = "".join(output["text"] for output in first if output["output_type"] == "stream")
    assert "arena  " in text and "epoch 2: test loss" in text and "runs/python [44, 88] 2" in text
    bars = [output for output in first if output["output_type"] == "display_data"]
    assert len(bars) == 1
    assert "88/88" in bars[0]["data"]["text/plain"] and "<pre" in bars[0]["data"]["text/html"]
    assert "ipywidgets" not in done.stdout
    (shown,) = second
    assert shown["data"]["text/plain"].startswith("History(1 epoch, last: loss ")


def test_history_is_columns_and_a_table_of_pandas(digits: et.Program) -> None:
    with et.Trainer(digits, "digits", validation=0.2) as trainer:
        history = trainer.fit(epochs=2)
    assert len(history["loss"]) == len(history["val_accuracy"]) == 2
    assert history["loss"][1] < history["loss"][0] and "val_loss" in history
    assert dict(history).keys() == {*history.keys()} and np.isfinite(history["val_loss"]).all()
    with pytest.raises(et.UsageError, match=r"history\['acc'\].*no such column"):
        history["acc"]
    pandas = pytest.importorskip("pandas")
    table = history.to_pandas()
    assert isinstance(table, pandas.DataFrame) and [*table.index] == [1, 2]
    assert table["val_accuracy"].tolist() == history["val_accuracy"]


def test_history_without_an_evaluation_says_how_to_have_one(digits: et.Program) -> None:
    with et.Trainer(digits, "digits") as trainer:
        history = trainer.fit(steps=3)
    with pytest.raises(et.UsageError, match="val_accuracy.*evaluate=True"):
        history["val_accuracy"]


def test_history_is_drawn(digits: et.Program) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    with et.Trainer(digits, "digits") as trainer:
        axes = trainer.fit(epochs=2, evaluate=True).plot()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["loss", "loss per epoch", "val_loss per epoch"]
    pyplot.close(axes.figure)


def test_summaries_have_layers_shapes_and_totals(
    digits: et.Program, capsys: pytest.CaptureFixture
) -> None:
    found = et.summary(MODEL)
    said = capsys.readouterr().out
    assert said.rstrip("\n") == str(found) and "parameters: 5,026" in said
    assert ("conv1/Conv", "Conv", ("n", 8, 8, 8), 72) in found.rows
    with et.Trainer(digits) as trainer:
        weights = trainer.summary()
    assert "arena  " in capsys.readouterr().out
    assert sum(numbers for *_, numbers, what in weights.rows if what == "trained") == 5026
