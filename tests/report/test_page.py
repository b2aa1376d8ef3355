"""Pages: one file of bounded size, in which foreign names are only text."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from edgetrain.program.account import Account
from edgetrain.report.charts import Point
from edgetrain.report.page import Page, script_json
from edgetrain.report.plan_page import Frontier, plan_page
from edgetrain.report.scene import Arena, Box, make_arena

EVIL = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script>",
    "' onload='alert(1)",
    "]]>&#0;\x00\x1b[31m\u2028",
    "\ud800",
)
VOID = {"meta", "br", "img", "link", "input"}
ACCOUNT = {
    "arena_nbytes": 4000, "budget_nbytes": 5000, "min_budget_nbytes": 3000, "minibatch": 4,
    "microbatch": 2, "extra_forward_flops": 0.25, "by_kind": {"params": 1000, "saved": 3000},
    "training": {"trained": {"count": 1, "numbers": 250, "nbytes": 1000, "names": ["w"]}},
}  # fmt: skip


class _Reader(HTMLParser):
    """Elements and attributes of a page; checks that they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(arena: Arena, name: str = "net", command: str = "edgetrain plan net.onnx") -> str:
    points = [Point(3000, 2.0, "microbatch 1", name), Point(4000, 1.0, "microbatch 2", "b")]
    beside = [(name, {"params": 2000}), ("this plan", {"params": 1000, "saved": 3000})]
    return plan_page(name, arena, ACCOUNT, Frontier(points, 1), beside, command).html()


@pytest.mark.parametrize("evil", EVIL)
def test_names_of_others_stay_text(evil: str) -> None:
    arena = make_arena(evil, [Box(0, 2, 0, 64, "params", evil, evil)], [evil, evil])
    text = page_of(arena, evil, evil)
    found, plain = _Reader(text), _Reader(page_of(make_arena("", [Box(0, 2, 0, 64, "params", "a",
                                                            "a")], ["a", "a"])))  # fmt: skip
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]
    assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)
    data = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert data is not None and "<" not in data[1]
    assert json.loads(data[1])["arena"]["boxes"][:4] == [0, 2, 0, 64]
    text.encode("utf-8", "replace")


def test_a_page_fetches_nothing_and_runs_no_other_script(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    page = Page("net", "of nothing")
    page.write(path)
    text = path.read_text()
    assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\((?!#)|@import|\bfetch\(|\bimport\(|innerHTML|eval\(", text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert len(scripts) == 1 and f"script-src 'sha256-{digest}'" in text
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("steps", [10_000, 65_000])
def test_a_page_of_many_instructions_is_small(steps: int) -> None:
    draw = np.random.default_rng(0)
    starts = draw.integers(0, steps, 30_000)
    boxes = [
        Box(int(s), int(s + w), int(at) * 64, int(n) * 64, "saved",
            f"encoder.layers.{k}.attention.value_{k}", f"encoder.layers.{k // 40}", k % 3 == 0)
        for k, (s, w, at, n) in enumerate(zip(starts, draw.integers(1, 900, 30_000),
            draw.integers(0, 10**6, 30_000), draw.integers(1, 4000, 30_000), strict=True))
    ]  # fmt: skip
    names = [f"encoder.layers.{k}.attention.value_{k}.grad.matmul_grad" for k in range(steps)]
    arena = make_arena("net", boxes, names)
    assert arena.left_out == 20_000
    assert max(box.stop for box in arena.boxes) * arena.each <= steps + 1000
    assert len(page_of(arena).encode()) <= 2_000_000


def test_script_json_is_strict() -> None:
    assert json.loads(script_json({"a": [float("nan"), 1.5, "<&>"]})) == {"a": [None, 1.5, "<&>"]}
    assert list(Account.__dataclass_fields__)[:1] == ["params"]
