"""The examples to build on, at small scale: what they learn, what they take, what they draw."""

import json
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.importer import load_onnx
from examples.anomaly import stream
from examples.fine_tuning import fine_tune
from examples.keywords import personalise

ROOT = Path(__file__).resolve().parents[2]


def test_a_speaker_is_understood_better(tmp_path: Path) -> None:
    program = personalise.compiled()
    before, after = personalise.personalised(program, tmp_path / "personal.onnx")
    assert before < 0.75 and after > before + 0.12
    assert program.arena_nbytes <= 150_000
    assert load_onnx(tmp_path / "personal.onnx").parameters
    assert personalise.SPEAKER.stat().st_size < 200_000


def test_more_bytes_learn_more_of_another_camera(tmp_path: Path) -> None:
    model = fine_tune.upright_net(tmp_path / "upright.onnx")
    before = fine_tune.before(model)
    results = list(fine_tune.fine_tuned(model))
    accuracies = [result.accuracy for result in results]
    assert before < 0.3 and accuracies == sorted(accuracies) and accuracies[0] > before + 0.2
    for way, program, _ in results:
        assert program.arena_nbytes <= way.budget
    trained = [result.program.account["training"]["trained"]["numbers"] for result in results]
    assert trained == sorted(trained)


def test_what_is_strange_in_a_stream_is_found() -> None:
    program = stream.compiled()
    with et.Trainer(program) as trainer:
        found = stream.watch(trainer, stream.windows(1500))
    assert found.errors[-300:].mean() < found.errors[:50].mean() / 5
    assert found.recall > 0.8 and found.false_alarms < 0.05
    assert program.arena_nbytes <= 160 * 1024


@pytest.mark.parametrize("example", [stream, fine_tune, personalise])
@pytest.mark.slow
def test_examples_say_their_account_and_draw_their_arena(example, tmp_path, capsys) -> None:
    given = ("1000",) if example is stream else ()
    assert example.main(*given, str(tmp_path)) == 0
    said = capsys.readouterr().out
    pictures = sorted(tmp_path.glob("*.svg"))
    assert said.count("arena ") == len(pictures) >= 1
    assert all(path.read_text().startswith("<svg") for path in pictures)


def test_the_notebook_runs_from_the_top_down(tmp_path, monkeypatch, capsys) -> None:
    notebook = json.loads((ROOT / "examples" / "anomaly" / "anomaly.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert notebook["nbformat"] == 4 and all(not c.get("outputs") for c in notebook["cells"])
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    for text in cells:
        exec(compile(text.replace("windows(3000)", "windows(800)"), "anomaly.ipynb", "exec"), known)
    assert "false alarms" in capsys.readouterr().out and (tmp_path / "anomaly.onnx").exists()
    assert known["arena_svg"](known["program"], "x")._repr_svg_().startswith("<svg")
