"""What the README shows is what happens."""

import re
from pathlib import Path

import pytest

from benchmarks import docs
from edgetrain.cli.arguments import plan_table
from edgetrain.program.account import MEANINGS

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = "plan compile bundle train eval export parity inspect data completion ops warm doctor"
TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples in it, to write into."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_readme_commands_print_what_it_shows() -> None:
    """Every console block, its commands run in order; `make docs-figures` mends the first ones."""
    lines = [f"```\n{block}```" for block in blocks("console")]
    shown = "\n".join(lines).splitlines()
    assert sum(line.startswith("$ ") for line in shown) > 8
    assert list(docs.transcript(shown)) == shown


def test_readme_python_runs(folder: Path) -> None:
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert (folder / "trained-python.onnx").exists() and (folder / "digits.edge").exists()


def test_readme_names_every_command_kind_and_target() -> None:
    for command in COMMANDS.split():
        assert f"edgetrain {command}" in TEXT
    for kind in MEANINGS:
        assert f"| {kind} |" in TEXT
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"[ `]make ([a-z-]+)(?:`| +#)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for option in re.findall(r"--([a-z][a-z-]+)", TEXT):
        name = option.replace("-", "_")
        known = {"json", "picture", "report", "explain", "pareto", "prove", "out", "resume", "data",
                 "epochs",
                 "lr", "lr_schedule", "lr_gamma", "validation", "name", "size",
                 "cc", "augment", "balance_classes", "keep_last", "patience", "keep_best", "best",
                 "metrics", "monitor", "save_seconds", "label", "calibrate", "all"}  # fmt: skip
        assert name in known or name.removeprefix("no_") in plan_table(), option


def test_readme_example_adds_up() -> None:
    account = blocks("console")[0]
    rows = dict(re.findall(r"^  ([a-z]+) +([0-9,]+)", account, re.M))
    total = int(rows.pop("total").replace(",", ""))
    assert sum(int(value.replace(",", "")) for value in rows.values()) == total
    assert f"{total:,} bytes" in account
