"""The examples of uses, at small scale: what they learn, need and draw."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import edgetrain as et
from edgetrain.importer import load_onnx
from examples.anomaly import stream
from examples.fine_tuning import fine_tune
from examples.keywords import personalise
from examples.transfer import four_classes
from examples.zoo.keyword import KeywordNet

ROOT = Path(__file__).resolve().parents[2]


def test_a_speaker_is_understood_better(tmp_path: Path) -> None:
    program = personalise.compiled()
    before, after = personalise.personalised(program, tmp_path / "personal.onnx")
    assert before < 0.75 and after > before + 0.12
    assert program.arena_nbytes <= 150_000
    assert load_onnx(tmp_path / "personal.onnx").parameters
    assert personalise.SPEAKER.stat().st_size < 200_000


@pytest.mark.slow
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


def test_a_file_of_ten_classes_learns_four(tmp_path: Path) -> None:
    assert four_classes.main(str(tmp_path)) > 0.9
    trained = onnx.load(tmp_path / "commands.onnx")
    labels = {entry.key: entry.value for entry in trained.metadata_props}["edgetrain.labels"]
    assert json.loads(labels) == four_classes.NAMES.tolist()
    assert len(Path(four_classes.__file__).read_text().splitlines()) <= 40


def test_four_classes_learn_as_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty steps, with the net's dropout off on both sides."""
    monkeypatch.setattr(four_classes, "MODEL", et.load_onnx(four_classes.MODEL).without_dropout())
    program, (train, _) = four_classes.compiled(), four_classes.commands()
    x, y = train[0], np.searchsorted(four_classes.NAMES, train[1])
    net = KeywordNet(16, 2, 4).eval()
    state = {name: torch.tensor(array) for name, array in program.init.items()}
    net.load_state_dict(state, strict=False)
    moved = torch.optim.SGD(net.head.parameters(), lr=0.05, momentum=0.9)
    with et.Trainer(program) as trainer:
        for k in range(30):
            part = slice(10 * (k % 2), 10 * (k % 2) + 10)
            loss = torch.nn.functional.cross_entropy(
                net(torch.tensor(x[part])), torch.tensor(y[part])
            )
            moved.zero_grad()
            loss.backward()
            moved.step()
            # Sums of float32 in another order: a few units in the last place.
            assert abs(trainer.step(x[part], y[part]).loss - loss.item()) < 1e-5
        ours = trainer.parameters["head.weight"]
    np.testing.assert_allclose(ours, net.head.weight.detach().numpy(), atol=1e-5)


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
