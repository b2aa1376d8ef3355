"""README's output is real, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

from benchmarks import docs
from edgetrain.program.account import MEANINGS

from .test_options import commands

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (
    "demo plan advise compile migrate bundle serve train find-lr eval export parity inspect data "
    "completion ops warm"
)
README = (ROOT / "README.md").read_text()
PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXT = "\n".join([README, *(path.read_text() for path in PAGES)])
# Of other programs: make and benchmarks.
ELSEWHERE = {"only_torch", "speed", "clock", "no_steps", "device", "jobs", "update", "node_config",
             "digests", "net", "run", "write", "only", "torch_device"}  # fmt: skip


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 100
    assert (
        README.index("docs/arena-moving.svg") < README.index("```python") < README.index("table3")
    )


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(README, "python")
    assert sum(not line.startswith("import") for line in block.splitlines() if line) <= 3
    exec(compile(block, "README.md", "exec"), {})
    assert list((tmp_path / "runs" / "python").glob("*.ckpt"))


def test_readme_shows_what_its_command_prints() -> None:
    (block,) = blocks(README, "console")
    with docs.folder():
        shown = [*block.splitlines(), "```"]
        assert list(docs.replayed(shown)) == shown


def test_readme_sends_to_every_page() -> None:
    missing = [path.name for path in PAGES if f"docs/{path.name}" not in README]
    assert set(missing) <= {"figure5.md", "kills.md", "attacks.md"}  # of the pages that it names


def test_pages_name_every_command_and_kind() -> None:
    for command in [*COMMANDS.split(), "doctor"]:
        assert f"edgetrain {command}" in TEXT
    for kind in MEANINGS:
        assert f"| {kind} |" in TEXT


def test_pages_name_options_and_targets_that_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"[ `]make ([a-z-]+)(?:`| +#)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.M), target
    found = {option.replace("-", "_") for option in re.findall(r"--([a-z][a-z0-9-]+)", TEXT)}
    flags = {
        text.removeprefix("--").replace("-", "_")
        for parser in commands().values()
        for action in parser._actions
        for text in action.option_strings
    }
    assert found - flags - ELSEWHERE == set()


def test_the_first_account_adds_up() -> None:
    account = blocks((ROOT / "docs" / "start.md").read_text(), "console")[0]
    rows = dict(re.findall(r"^  ([a-z]+) +([0-9,]+)", account, re.M))
    total = int(rows.pop("total").replace(",", ""))
    assert sum(int(value.replace(",", "")) for value in rows.values()) == total
    assert f"{total:,} bytes" in account
