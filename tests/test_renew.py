"""benchmarks.renew: which tables are made, in which order, and what it reports as left."""

import re
import sys
import time
from pathlib import Path

import pytest

from benchmarks import docs, marks, renew
from benchmarks.marks import Mark
from benchmarks.renew import Table
from device_tests import targets_table

ROOT = Path(__file__).resolve().parents[1]


def _table(name: str, minutes: float, left: list[str], *code: str, pieces: bool = False) -> Table:
    """A table whose command runs `code`; `left` answers in turn and repeats its last answer."""
    command = ("-c", *code) if code else ("-c", "pass")
    answers = iter(left)
    last = left[-1]
    return Table(name, f"{name}.md", command, minutes, lambda: next(answers, last), pieces)


def test_every_marked_table_is_listed_the_cheapest_first() -> None:
    found = renew.tables()
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
        if any(marks.parse(line) for line in path.read_text().splitlines())
    }
    assert marked <= {table.document for table in found}
    assert {name for name, one in docs.SECTIONS.items() if one.follows} <= {t.name for t in found}
    assert [table.minutes for table in found] == sorted(table.minutes for table in found)
    assert all(re.fullmatch("[a-z0-9]+", table.name) for table in found)


def test_renew_makes_what_is_left_and_skips_what_is_current(tmp_path: Path) -> None:
    made = tmp_path / "made"
    write = f"open({str(made)!r}, 'w').close()"
    chosen = [
        _table("old", 1, ["never made", ""], write),
        _table("new", 1, [""], "raise SystemExit"),
    ]
    assert renew.renew(chosen, hours=1) == {}
    assert made.exists()


def test_renew_leaves_what_does_not_fit_into_the_hours() -> None:
    assert renew.renew([_table("long", 90, ["old"])], hours=1) == {"long": "old"}


def test_renew_stops_a_table_of_pieces_in_time() -> None:
    table = _table("pieces", 600, ["9 of 9", "4 of 9"], "import time; time.sleep(60)", pieces=True)
    start = time.monotonic()
    assert renew.renew([table], hours=0.5 / 3600) == {"pieces": "4 of 9"}
    assert time.monotonic() - start < 30


def test_renew_says_that_a_command_failed() -> None:
    left = renew.renew([_table("bad", 1, ["old"], "raise SystemExit(3)")], hours=1)
    assert left == {"bad": "its command ended with status 3"}


def test_list_names_documents_and_ends_with_1_while_something_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two = [_table("a", 1, [""]), _table("b", 2, ["never made"])]
    monkeypatch.setattr(renew, "tables", lambda: two)
    monkeypatch.setattr(sys, "argv", ["renew", "--list"])
    assert renew.main() == 1
    assert capsys.readouterr().out == "left: b (b.md), some 2 minutes: never made\n"
    monkeypatch.setattr(sys, "argv", ["renew", "--list", "a"])
    assert renew.main() == 0


def test_an_old_mark_names_what_changed_and_since_when() -> None:
    assert renew._older(None) == "never made"
    old = Mark("0123456", "m", {"kernels": "0" * 12})
    assert renew._older(old) == "kernels changed since 0123456"


def test_cells_of_targets_are_current_only_with_todays_sources() -> None:
    cell, *others = targets_table.cells()
    kept = {cell.target: {"kinds": {cell.row: {"sources": targets_table.sources()}}}}
    assert targets_table.waiting(kept) == [one for one in others if one != cell]
    kept[cell.target]["kinds"][cell.row]["sources"]["kernels"] = "older"
    assert targets_table.waiting(kept) == targets_table.cells()
    assert "1 of " in targets_table.made_at(kept) and "an earlier commit" in targets_table.made_at(
        kept
    )
