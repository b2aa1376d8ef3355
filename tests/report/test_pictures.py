"""Pictures: well formed, complete, the same shapes in SVG and PNG."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from edgetrain.errors import UsageError
from edgetrain.report.arena_chart import arena_chart, byte_ticks, crosses_live
from edgetrain.report.canvas import COLOURS, PHASES, Picture, Scale, Text, svg, text_width
from edgetrain.report.charts import (
    Point,
    Series,
    bars_chart,
    frontier_chart,
    line_chart,
    matrix_chart,
    share_chart,
    step_ticks,
)
from edgetrain.report.moving_arena import moving_arena
from edgetrain.report.scene import MOST_NAME, Arena, Box, Phase, clean, make_arena, module_of
from edgetrain.report.writing import write_picture

WIDTHS = (360, 960)
NAN = float("nan")
SVG = "{http://www.w3.org/2000/svg}"


def small_arena(name: str = "w") -> Arena:
    boxes = [
        Box(0, 9, 0, 1000, "params", name, "layer"),
        Box(2, 5, 1024, 500, "saved", "a<b"),
        Box(5, 9, 1024, 300, "odd", "z", again=True),
    ]
    phases = [Phase("forward", 0, 5), Phase("backward", 5, 9)]
    return make_arena("net", boxes, [f"step{k}" for k in range(9)], phases=phases, budget=2048)


def pictures(width: int) -> dict[str, Picture]:
    points = [Point(100, 3.0, "microbatch 1", "a"), Point(200, 1.0, "microbatch 2", "b")]
    series = [Series("loss", [1, 2, 3, 4], [1.0, NAN, 0.1, 0.0])]
    return {
        "arena": arena_chart(small_arena(), width),
        "moving": moving_arena(small_arena(), width),
        "frontier": frontier_chart(points, 1, 150, width),
        "one plan": frontier_chart(points[:1], 0, None, width),
        "lines": line_chart(series, "loss", width),
        "logarithms": line_chart(series, "loss", width, log=True),
        "nothing": line_chart([Series("loss", [], [])], "loss", width),
        "bars": bars_chart([("one", {"params": 10, "saved": 30}), ("two", {})], width, 35),
        "shares": share_chart([("w", 0.3, "3 of 10")], width),
        "matrix": matrix_chart([[3, 0], [1, 2]], ["no", "yes"], width),
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_every_picture_is_well_formed_and_inside_its_frame(width: int) -> None:
    for name, picture in pictures(width).items():
        root = ElementTree.fromstring(svg(picture))
        assert root.get("viewBox") == f"0 0 {width} {picture.height}", name
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            assert -1 <= float(text.get("x", "nan")) <= width, (name, text.text)
            assert 0 <= float(text.get("y", "nan")) <= picture.height + 1, (name, text.text)


def test_arena_shows_names_phases_and_the_peak(tmp_path: Path) -> None:
    arena = small_arena("a & <w>")
    path = tmp_path / "plan.svg"
    write_picture(arena_chart(arena), path)
    words = [n.text for n in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert "a & <w>  1000 B" in words and "peak 1.5 KiB, step 2" in words and "step2" in words
    assert {"params", "saved", "hatched: recomputed", "forward", "backward"} <= set(words)
    assert arena.peak == (2, 1500) and arena.at(2)[0].name == "a & <w>"


@pytest.mark.parametrize("name", [name for name in pictures(960) if name != "moving"])
def test_every_picture_is_drawn_as_png(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"
    write_picture(pictures(960)[name], path)
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_pictures_refuse_another_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"plan\.gif.*\.svg or \.png"):
        write_picture(Picture(10, 10, ""), tmp_path / "plan.gif")


def test_kinds_are_told_apart_by_the_colour_blind() -> None:
    """Colours of areas also differ for deuteranopes and protanopes (Vienot et al. 1999)."""
    seen = [
        [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
        [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    ]
    kinds = [kind for kind in COLOURS if kind not in ("padding", "io")]
    rgb = {k: [int(COLOURS[k][i : i + 2], 16) / 255 for i in (1, 3, 5)] for k in kinds}
    for matrix in seen:
        as_seen = {
            k: [sum(m * c**2.2 for m, c in zip(row, v, strict=True)) for row in matrix]
            for k, v in rgb.items()
        }
        for k, one in enumerate(kinds):
            for other in kinds[k + 1 :]:
                pairs = zip(as_seen[one], as_seen[other], strict=True)
                assert sum(abs(a - b) for a, b in pairs) > 0.15, (one, other)


def test_names_are_cleaned_and_modules_found() -> None:
    assert clean("a\x00b\u202e\n") == "a\ufffdb\ufffd\ufffd"
    assert len(clean("x" * 1000)) == MOST_NAME
    assert [module_of(n) for n in ("a/b/Conv", "/a/Conv", "Conv", "")] == ["a.b", "a", "", ""]
    assert byte_ticks(0) == [0] and byte_ticks(700)[1] == 128


def test_a_moving_arena_shows_each_value_while_it_lives() -> None:
    text = svg(moving_arena(small_arena()))
    style = re.search(r"<style>(@keyframes.*?)</style>", text)
    assert style is not None and "prefers-reduced-motion:reduce" in style[1]
    assert "<script" not in text and "<animate" not in text
    moving = 100 * 0.84  # percent of the loop; of nine steps
    for start, stop in ((2, 5), (0, 1), (8, 9)):
        first, last = f"{moving * start / 9:.2f}%", f"{moving * stop / 9:.2f}%"
        shown = f"{first}{{opacity:1}}" + ("" if stop == 9 else f"{last}{{opacity:0}}")
        assert shown in style[1], (start, stop)
    assert "steps(9,end)" in style[1]
    root = ElementTree.fromstring(text)
    names = {g.get("class") for g in root.iter(f"{SVG}g")}
    assert {
        f"moves t{k}" for k in ("0-10000", "1867-4667")
    } <= names  # a weight; a value live from 2 to 5
    kept = [g for g in root.iter(f"{SVG}g") if "moves t" in g.get("class", "")]
    at_peak = [g for g in kept if g.get("opacity") is None]
    assert len(at_peak) == len(small_arena().at(small_arena().peak[0])) + 1  # and its label


def test_a_moving_arena_of_a_long_tape_stays_small() -> None:
    boxes = [Box(k, k + 3, 64 * (k % 40), 64, "saved", f"v{k}") for k in range(6000)]
    arena = make_arena("net", boxes, [f"step{k}" for k in range(6003)])
    assert len(svg(moving_arena(arena))) < 600_000


@pytest.mark.parametrize("last", [1, 2, 9, 38, 264, 1000, 54_321])
@pytest.mark.parametrize("most", [4, 8])
def test_steps_below_an_axis_are_round_and_do_not_touch(last: int, most: int) -> None:
    rows = step_ticks(last, most)
    steps = [step for step, *_ in rows]
    assert steps == sorted(set(steps)) and steps[0] == 0 and steps[-1] == last
    assert rows[-1][1] == f"{last:,} steps" and len(rows) <= 1.5 * most + 2
    unit = steps[1]
    assert len(steps) == 2 or f"{unit}".rstrip("0") in "125"


def test_a_confusion_matrix_says_recall_and_precision() -> None:
    text = svg(matrix_chart([[3, 0], [1, 2]], ["no", "yes"]))
    for words in ("100%", "67%", "75%", ">recall<", ">precision<", ">predicted<"):
        assert words in text, words


def test_the_line_of_live_bytes_runs_through_no_label() -> None:
    """A large box whose middle is crossed by the line."""
    boxes = [Box(0, 40, 0, 4000, "params", "weights"), Box(10, 30, 4096, 3000, "saved", "values")]
    live = [*[1990] * 20, *[2010] * 10, *[7000] * 5, *[4000] * 5]
    arena = make_arena("net", boxes, [f"s{k}" for k in range(40)], live=live)
    picture = arena_chart(arena)
    scale = Scale(float(picture.data["x0"]), float(picture.data["sx"]),
                  float(picture.data["y0"]), float(picture.data["sy"]))  # fmt: skip
    labels = [s for s in picture.shapes if isinstance(s, Text) and "0 B" in s.text or
              isinstance(s, Text) and "KiB" in s.text and s.anchor == "middle"]  # fmt: skip
    assert labels
    for label in labels:
        half = text_width(label.text, 11) / 2
        area = (label.x - half, label.x + half, label.y - 9, label.y + 2)
        assert not crosses_live(arena, scale, area), label.text
    assert crosses_live(arena, scale, (80, 900, *sorted(scale(0, b)[1] for b in (1900, 2100))))


def test_one_palette_has_one_legend() -> None:
    assert not {*PHASES.values()} & {*COLOURS.values()}
    rows = [("one", {"params": 10, "saved": 30, "indices": 3})]
    keyed, plain = (svg(bars_chart(rows, keyed=keyed)) for keyed in (True, False))
    assert ">saved<" in keyed and ">saved<" not in plain
    assert ">indices<" in svg(arena_chart(small_arena(), kinds=["indices"]))
