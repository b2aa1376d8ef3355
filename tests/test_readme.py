"""What the README shows is what happens."""

import re
import shlex
from pathlib import Path

import pytest

from edgetrain.cli import main
from edgetrain.cli.arguments import PLAN_OPTIONS
from edgetrain.cli.tables import KINDS

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = "plan compile train eval export parity inspect ops doctor"
TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples in it, to write into."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_readme_commands_end_as_they_say(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines()
             if line.startswith("$ ")]  # fmt: skip
    assert len(lines) > 8
    for line in lines:
        text, _, said = line.partition("# exits ")
        program, *argv = shlex.split(text)
        assert program == "edgetrain"
        status = main(argv)
        assert (line, status) == (line, int(said or 0)), capsys.readouterr().err
    assert (folder / "trained.onnx").stat().st_size > 10_000
    assert "accuracy" in capsys.readouterr().out


def test_readme_python_runs(folder: Path) -> None:
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert (folder / "trained-python.onnx").exists() and (folder / "digits.edge").exists()


def test_readme_names_every_command_kind_and_target() -> None:
    for command in COMMANDS.split():
        assert f"edgetrain {command}" in TEXT
    for kind in KINDS:
        assert f"| {kind} |" in TEXT
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"[ `]make ([a-z-]+)(?:`| +#)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for option in re.findall(r"--([a-z][a-z-]+)", TEXT):
        name = option.replace("-", "_")
        known = {"json", "picture", "explain", "pareto", "out", "resume", "data", "epochs", "lr",
                 "lr_schedule", "validation"}  # fmt: skip
        assert name in known or name in PLAN_OPTIONS, option


def test_readme_example_adds_up() -> None:
    account = blocks("console")[0]
    rows = dict(re.findall(r"^  ([a-z]+) +([0-9,]+)", account, re.M))
    total = int(rows.pop("total").replace(",", ""))
    assert sum(int(value.replace(",", "")) for value in rows.values()) == total
    assert f"{total:,} bytes" in account
