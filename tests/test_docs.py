"""The tables of README and docs/: their markers, and the quick ones against new measurements."""

import re

import pytest

from benchmarks import depth, docs, executed, figure5, memory, nets, rewirings
from edgetrain.api import plan

HEADS = {"table3": memory, "depth": depth, "executed": executed, "figure5": figure5}


@pytest.mark.parametrize("name", docs.SECTIONS)
def test_sections_lie_between_their_markers(name: str) -> None:
    lines = docs.read(name)
    assert len(lines) > 4
    if name in HEADS:
        assert tuple(lines[:2]) == HEADS[name].HEAD
    if name not in ("first", "commands", "node-tests"):
        assert all(line.startswith("|") for line in lines if line)


def test_sections_are_replaced_and_nothing_else(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a\n<!-- begin one -->\n| old |\n<!-- end one -->\nb\n"
    (tmp_path / "doc.md").write_text(text)
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    made = docs.Section("doc.md", lambda old: iter([*old, "| new |"]))
    monkeypatch.setitem(docs.SECTIONS, "one", made)
    docs.write("one")
    expected = text.replace("| old |", "| old |\n| new |")
    assert (tmp_path / "doc.md").read_text() == expected
    for wrong in ("", text * 2, text.replace("begin", "x").replace("end", "begin")):
        with pytest.raises(ValueError, match="begin one"):
            docs.section(wrong, "one")


def test_transcripts_keep_times_and_show_what_changed() -> None:
    shown = ["text", "```console", "$ edgetrain ops --jsn # exits 2", "old", "```"]
    found = list(docs.transcript(shown))
    assert found[:3] == shown[:3] and found[3].startswith("edgetrain") and found[-1] == "```"
    with pytest.raises(AssertionError, match="status 2"):
        list(docs.transcript([*shown[:2], "$ edgetrain ops --jsn", "```"]))


def test_depth_table_is_what_the_shallowest_net_takes() -> None:
    """Bytes, recomputation and loss of 50 convolutions; times depend on the machine."""

    def facts(lines):
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        return [row[:4] + row[5:] for row in cells if row[0] == "50"]

    assert facts(depth.lines([50])) == facts(docs.read("depth"))


def test_options_table_is_what_is_declared() -> None:
    assert docs.read("options") == list(docs.options_table())


def test_rewirings_table_is_what_the_method_does() -> None:
    assert docs.read("rewirings") == list(rewirings.lines())
    # rewired every 100, 200, 400 and 800 updates until 6,250, 20,000, 35,000 and 47,500; here an
    # eighth as often at the densities of Table 4
    rows = docs.read("rewirings")[2:]
    assert [row.split(" | ")[5] for row in rows] == ["22", "22", "22", "46", "92", "92"]


@pytest.mark.slow
def test_figure5_is_what_the_planner_finds() -> None:
    assert docs.read("figure5") == list(figure5.lines())


def test_one_plan_has_the_same_bytes_on_every_page() -> None:
    """The digits within 256 KiB and without a budget: account, pictures, text, table."""
    pages = docs.ROOT / "docs"
    start, how, measured = ((pages / f"{n}.md").read_text() for n in ("start", "how", "measured"))
    account = re.search(r"^arena  ([\d,]+) bytes", start, re.M)
    fastest = re.search(r"^ +([\d,]+) .* 0.0 %  1.00", start, re.M)
    assert account is not None and fastest is not None
    chosen, most = (int(found[1].replace(",", "")) for found in (account, fastest))
    titles = [
        (pages / name).read_text() for name in ("arena.svg", "arena-fast.svg", "arena-moving.svg")
    ]
    assert all(f"arena {chosen / 1024:.1f} KiB" in titles[k] for k in (0, 2))
    assert f"arena {most / 1024:.1f} KiB" in titles[1]
    assert f"takes {(most - chosen) / 1024:.0f} KiB less" in how
    assert f"batch-norm, fp32 | {chosen:,} |" in measured


def test_tables_of_one_net_agree_in_the_documents() -> None:
    """README's table and text: the arena is inside the report's figure."""
    rows = [line.split("|")[1:-1] for line in docs.read("table3")[2:]]
    assert len(rows) == len(memory.ROWS)
    for row, cells in zip(memory.ROWS, rows, strict=True):
        assert float(cells[1]) == row.megabytes >= float(cells[2])


@pytest.mark.slow
def test_table3_is_what_the_planner_finds() -> None:
    """Arenas and recomputation, planned anew; the report allows 0.9."""
    model, rows = nets.wrn28_2(), [line.split("|")[1:-1] for line in docs.read("table3")[2:]]
    for row, cells in zip(memory.ROWS, rows, strict=True):
        found = memory.planned(plan(model, **memory.options(row)))
        assert found == (cells[2].strip(), cells[5].strip()), row
        assert float(found[1]) <= 0.9
