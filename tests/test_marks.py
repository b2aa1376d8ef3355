"""Measured tables name the code they were made with; `benchmarks.renew` finds outdated ones.

An outdated table is not an error: it names its commit. Figures that are cheap to recompute have
tests of their own (tests/test_readme.py, tests/compiler).
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import docs, kernels, marks
from benchmarks.marks import Mark
from device_tests import parity_report

FOLLOWED = [name for name, section in docs.SECTIONS.items() if section.follows]
REPORTS = sorted(parity_report.REPORTS.glob("*_parity.json"))


def measured() -> Iterator[tuple[str, Mark | None, tuple[str, ...], str]]:
    """(table, its mark, the sources it depends on, the command that makes it)."""
    for name in FOLLOWED:
        how = f"make docs-figures FIGURES={name}"
        yield name, docs.mark_of(name), docs.SECTIONS[name].follows, how
    lines = kernels.DOCUMENT.read_text().splitlines()
    found = [mark for mark in map(marks.parse, lines) if mark is not None]
    yield "kernels.md", found[0] if found else None, kernels.FOLLOWS, "make bench-kernels"
    for path in REPORTS:
        made = json.loads(path.read_text()).get("made")
        mark = None if made is None else Mark(**made)
        how = f"python -m device_tests.parity_report --device {path.stem.split('_')[0]}"
        yield path.name, mark, parity_report.FOLLOWS, how


TABLES = list(measured())
IDS = [row[0] for row in TABLES]


@pytest.mark.parametrize("name, mark, follows, how", TABLES, ids=IDS)
def test_a_measured_table_says_with_what(
    name: str, mark: Mark | None, follows: tuple[str, ...], how: str
) -> None:
    assert mark is not None, how
    assert tuple(mark.digests) == follows and follows
    assert mark.commit and mark.machine


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree of one file, whose digest is not cached."""
    monkeypatch.setattr(marks, "SOURCES", {"kernels": ("room",)})
    monkeypatch.setattr(marks, "digest", marks.digest.__wrapped__)
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text('"""Text."""\n\n\ndef f(x):\n    return x + 1\n')
    return tmp_path


@pytest.mark.parametrize(
    "text, same",
    [
        ('"""Other text."""\n\n\ndef f(x):\n    return x + 1\n', True),
        ('def f(x):\n    """Says what."""\n    # why\n    return (x +\n            1)\n', True),
        ("def f(x):\n    return x + 2\n", False),
        ("def f(x, y=1):\n    return x + 1\n", False),
        ("def f(x):\n    return 'x' + 1\n", False),
    ],
)
def test_a_mark_is_of_the_code_alone(sources: Path, text: str, same: bool) -> None:
    mark = Mark("0123456", "a machine, 2 threads", {"kernels": marks.digest("kernels", sources)})
    assert mark.stale(sources) == []
    (sources / "room" / "a.py").write_text(text)
    assert mark.stale(sources) == ([] if same else ["kernels"])


def test_a_family_of_kernels_has_the_files_that_its_code_is_made_of() -> None:
    root = marks.ROOT / "edgetrain"
    found = {path.relative_to(root).as_posix() for path in marks.files_of("convolutions")}
    kernels = {"conv/csr.py", "winograd/product.py", "language/tile.py"}
    assert {"formats/fp16.py", *(f"kernels/{name}" for name in kernels)} <= found
    assert not [name for name in found if name.startswith(("kernels/losses/", "kernels/cache/"))]
    assert marks.now(["convolutions"]).stale() == []


def test_a_new_file_makes_a_mark_stale(sources: Path) -> None:
    mark = Mark("0123456", "m", {"kernels": marks.digest("kernels", sources)})
    (sources / "room" / "b.py").write_text("X = 1\n")
    assert mark.stale(sources) == ["kernels"]


def test_a_mark_comes_back_from_its_line() -> None:
    mark = marks.now(["kernels", "planner"])
    assert marks.parse(mark.line()) == mark and mark.stale() == []
    assert mark.machine == marks.machine() and "threads" in mark.machine
    other = dataclasses.replace(mark, machine="a board, of 1.5 GHz. Its own")
    assert marks.parse(other.line()) == other
    assert marks.parse("| 1 | 2 |") is None


def test_a_section_is_written_with_a_mark_and_read_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "doc.md").write_text("<!-- begin one -->\n| old |\n<!-- end one -->\n")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    made = docs.Section("doc.md", lambda old: iter([*old, "| new |"]), follows=("kernels",))
    monkeypatch.setitem(docs.SECTIONS, "one", made)
    monkeypatch.setattr(marks.OtherWork, "processors", lambda others: 0.0)
    assert docs.mark_of("one") is None
    for rows in (["| old |", "| new |"], ["| old |", "| new |", "| new |"]):
        docs.write("one")
        assert docs.read("one") == rows
        assert docs.mark_of("one") == marks.now(["kernels"])


def test_stale_sections_alone_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Mark("0123456", "m", {"kernels": "0" * 12}).line()
    (tmp_path / "doc.md").write_text(
        f"<!-- begin one -->\n| a |\n\n{old}\n<!-- end one -->\n"
        f"<!-- begin two -->\n| b |\n\n{marks.now(['kernels']).line()}\n<!-- end two -->\n"
        "<!-- begin three -->\n| c |\n<!-- end three -->\n"
    )
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    made: list[str] = []

    def section(name: str, *follows: str) -> docs.Section:
        return docs.Section("doc.md", lambda old: made.append(name) or iter(old), follows=follows)

    found = {"one": section("one", "kernels"), "two": section("two", "kernels")}
    monkeypatch.setattr(docs, "SECTIONS", found | {"three": section("three")})
    for names, expected in (["--stale"], ["one"]), (["--stale"], []), ([], ["one", "two", "three"]):
        made.clear()
        monkeypatch.setattr("sys.argv", ["docs", *names])
        docs.main()
        assert made == expected


def test_a_mark_says_that_the_machine_had_other_work(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 9000 0 0 0 0 0 0\ncpu0 50 0 25 4500 0 0 0 0 0 0\n")
    others = marks.OtherWork(stat)
    assert marks.now(("runtime",), others).machine == marks.machine()
    stat.write_text("cpu  999999 0 50 9000 0 0 0 999 0 0\n")
    mark = marks.now(("runtime",), others)
    assert mark.machine.startswith(f"{marks.machine()}, ")
    assert mark.machine.endswith(" of them busy with other work")
    assert marks.parse(mark.line()) == mark


def test_without_figures_of_the_system_no_other_work_is_told(tmp_path: Path) -> None:
    others = marks.OtherWork(tmp_path / "stat")
    assert marks.now(("runtime",), others).machine == marks.machine()
