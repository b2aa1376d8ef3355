"""Files, classes and public functions are named in the field's words, by what they do or are."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "edgetrain"
# Words that say nothing about a thing's purpose.
VAGUE = re.compile(r"^(given|touched|returns|returning|keeper|said|told|emit_(careful|apart))$")
NAMED_BY = {"intrinsics": "words"}  # new file name -> old name


def public_names(path: Path) -> set[str]:
    """Names of the file and of its public classes and functions."""
    tree = ast.parse(path.read_text())
    kinds = (ast.ClassDef, ast.FunctionDef)
    found = {path.stem}
    for node in tree.body:
        if isinstance(node, kinds):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {part.name for part in node.body if isinstance(part, kinds)}
    return {name.lower() for name in found if not name.startswith("_")}


ROOMS = sorted(p for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__")


def test_a_vague_name_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "parts.py"
    path.write_text("class Walk:\n    def given(self): ...\n\n\ndef keeper(): ...\n")
    assert {name for name in public_names(path) if VAGUE.match(name)} == {"given", "keeper"}


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_public_names_say_what_things_do(room: Path) -> None:
    wrong = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in room.rglob("*.py")
        for name in public_names(path)
        if VAGUE.match(name)
    }
    assert wrong == set()


def test_files_of_intrinsics_are_called_so() -> None:
    files = [path.stem for path in (PACKAGE / "kernels").rglob("*.py")]
    for name, before in NAMED_BY.items():
        assert files.count(name) >= 1 and before not in files
