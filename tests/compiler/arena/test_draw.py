"""Pictures: well formed, complete, and refused by name where they cannot be made."""

import xml.etree.ElementTree as ElementTree

import pytest

from edgetrain.compiler.arena import Buffer, place
from edgetrain.compiler.arena.draw import draw
from edgetrain.errors import UsageError


def picture(path, budget=4096):
    buffers = [Buffer(0, 0, 9, 1000), Buffer(1, 2, 5, 500), Buffer(2, 5, 9, 300)]
    offsets, _ = place(buffers)
    draw(buffers, offsets, ["params", "saved", "odd"], ["w", "a<b", "z"], budget, path)
    return path


def test_draw_svg_shows_every_buffer_and_escapes_names(tmp_path):
    root = ElementTree.parse(picture(tmp_path / "plan.svg")).getroot()
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 3
    assert titles[1].startswith("a<b (saved): 500 B")


def test_draw_png_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    assert picture(tmp_path / "plan.png", None).read_bytes()[:4] == b"\x89PNG"


def test_draw_refuses_another_ending(tmp_path):
    with pytest.raises(UsageError, match=r"ending in \.svg or \.png"):
        picture(tmp_path / "plan.gif")
