"""`--dump` writes a folder with the graph after every pass."""

from pathlib import Path

import pytest

from edgetrain.cli import main
from edgetrain.compiler.pipeline import EVALUATE, FORWARD, TRAIN

MODEL = str(Path(__file__).parents[2] / "examples" / "digits" / "model.onnx")


@pytest.mark.parametrize("command", ["plan", "compile"])
def test_every_pass_leaves_its_graph(command: str, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "m.edge")] if command == "compile" else []
    dump = tmp_path / "dump"
    asked = ["--precision", "fp16", "--dump", str(dump), "--dump-diff"]
    assert main([command, MODEL, *out, *asked]) == 0
    names = [path.stem for path in sorted(dump.glob("*.txt"))]
    lists = {"forward": FORWARD, "train": TRAIN, "evaluate": EVALUATE}
    passes = [f"{of}-{one.name}" for of, found in lists.items() for one in found]
    wanted = ["forward-bind", *passes, "tapes", "arena"]
    assert names == [f"{number:02}-{name}" for number, name in enumerate(wanted)]
    graphs = {path.stem for path in dump.glob("*.dot")}
    assert graphs == {path.stem for path in dump.glob("*.diff")} == set(names[:-2])
    (stored,) = dump.glob("*train-assign_storage.diff")
    assert "f16[" in stored.read_text()
    assert all(path.read_text().endswith("}\n") for path in dump.glob("*.dot"))
    (tapes,), (arena,) = dump.glob("*-tapes.txt"), dump.glob("*-arena.txt")
    assert "micro:" in tapes.read_text() and "update:" in tapes.read_text()
    assert arena.read_text().count("\n") > 10


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "kept").write_text("mine")
    assert main(["plan", MODEL, "--dump", str(tmp_path)]) == 2
    assert "not empty; expected a new or empty folder" in capsys.readouterr().err
    assert main(["plan", MODEL, "--dump-diff"]) == 2
    assert "--dump DIR" in capsys.readouterr().err
    assert main(["plan", MODEL, "--dump", str(tmp_path / "kept" / "below")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name == "kept") == ["kept"]
