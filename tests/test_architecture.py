"""docs/ARCHITECTURE.md and CONTRIBUTING.md only refer to things that exist."""

import ast
import re
from pathlib import Path

import pytest

from benchmarks import docs, house

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/ARCHITECTURE.md").read_text()
PLACES = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where a line belongs")[2]
PLACES = PLACES.partition("\n## ")[0]
_STOP = re.compile(r"`([\w/]+\.py)` `(\w+)`")
WALKS = [
    walk.partition("\n\n|")[0] for walk in PAGE.partition("## Three walks")[2].split("\n**")[1:]
]


def defined(path: Path) -> set[str]:
    """Names that a file defines, at the top or nested."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            names = [leaf for target in node.targets for leaf in ast.walk(target)]
            found |= {leaf.id for leaf in names if isinstance(leaf, ast.Name)}
    return found


@pytest.mark.parametrize("walk", WALKS, ids=["rate", "sample", "budget"])
def test_every_stop_of_a_walk_is_there(walk: str) -> None:
    stops = _STOP.findall(walk)
    assert len(stops) >= 5 and len(re.findall(r"^\d\. ", walk, re.M)) <= 6
    for file, name in stops:
        assert name in defined(ROOT / "edgetrain" / file), f"{file}: no {name}"


def test_every_invariant_names_a_test_that_is_there() -> None:
    rows = PAGE.partition("## Invariants")[2].split("\n| ")[2:]
    assert len(rows) >= 16
    for row in rows:
        tests = _STOP.findall(row)
        assert tests, row
        for file, name in tests:
            assert name in defined(ROOT / file), f"{file}: no {name}"


def _is_base_lr(node: ast.AST | None) -> bool:
    return "BASE_LR" in (getattr(node, "attr", ""), getattr(node, "id", ""))


def _writes_base_lr(node: ast.AST) -> bool:
    """Whether the node sets the base rate: in the control block, or by a store in a kernel."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store) and _is_base_lr(node.slice)
    if isinstance(node, ast.Dict):
        return any(_is_base_lr(key) for key in node.keys)
    stores = isinstance(node, ast.Call) and re.search(r"\bst_\w+$", ast.unparse(node.func))
    return bool(stores) and any(_is_base_lr(operand) for operand in node.args)


def test_the_learning_rate_is_written_in_three_places() -> None:
    found = {
        path.relative_to(ROOT / "edgetrain").as_posix(): count
        for path in (ROOT / "edgetrain").rglob("*.py")
        if (count := sum(map(_writes_base_lr, ast.walk(ast.parse(path.read_text())))))
    }
    # When a Program starts, when a user sets the rate, and when a C library gets one.
    assert found == {
        "program/plan_block.py": 1, "runtime/session.py": 1, "kernels/device/rates.py": 1,
    }  # fmt: skip


def test_a_budget_is_parsed_where_people_give_it() -> None:
    asks = re.compile(r"\b(?:parse_bytes|budget_nbytes)\(")
    files = {
        path.relative_to(ROOT / "edgetrain").as_posix()
        for path in (ROOT / "edgetrain").rglob("*.py")
        if asks.search(path.read_text())
    }
    inside = {file for file in files if file.startswith(("compiler/", "runtime/", "kernels/"))}
    assert "api.py" in files and inside == set()


def test_ten_questions_have_answers_that_are_there() -> None:
    rows = [line for line in PLACES.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for row in rows:
        cited = re.findall(r"`([a-z_]+/[\w/.]*)`", row.split("|")[2])
        assert cited, row
        for place in cited:
            assert (ROOT / "edgetrain" / place).exists(), f"{row}: no {place}"


HELD = [row for row in house.COUNTS if row.most is not None]


@pytest.mark.parametrize("row", HELD, ids=lambda row: row.what)
def test_counts_stay_within_what_they_may_be(row: house.Count) -> None:
    assert row.now() <= row.most


def test_the_table_of_counts_has_every_row() -> None:
    shown = [line.split(" | ")[0].removeprefix("| ") for line in docs.read("house")[2:]]
    assert shown == [row.what for row in house.COUNTS]
