"""The arena chart: steps on the x axis, addresses on the y axis, a box for each value's
lifetime."""

import math
from collections.abc import Sequence
from typing import Any

from ..program.account import COLOURS
from ..units import format_bytes
from .canvas import (
    Boxes,
    Dot,
    Line,
    Picture,
    Scale,
    Text,
    Track,
    legend,
    text_width,
)
from .charts import step_ticks
from .scene import Arena, Box

_UNITS = 4096  # units of a box's corners in the arena's height
_NAMED = 14  # number of boxes (the largest) labelled with their names
_NARROW = 640
_LINE, _TRIED = 14, 8  # pixels of a line of text; positions to try along each side
_CHARACTERS, _SHORTEST = 500_000, 16  # of all names in the page's data; of a shortened one
_EDGED = 3  # pixels; smaller boxes get no edges


def arena_chart(
    arena: Arena,
    width: int = 960,
    *,
    titled: bool = True,
    beside: int = 0,
    kinds: Sequence[str] = (),
) -> Picture:
    """Draw an arena.

    The chart labels the peak step, draws live bytes and the budget as lines, hatches recomputed
    values and shows the phases below.

    Args:
      titled: draw the arena's title above; pages have their own.
      beside: pixels to leave free on the right.
      kinds: further kinds for the legend, besides the arena's own.
    """
    narrow = width < _NARROW
    left, right = 64 if narrow else 76, width - 12 - beside
    words = _label(arena)
    picture = Picture(width, 0, words, data={"chart": "arena"})
    top = 16.0
    if titled:
        picture.add(Text(left, 22, _title(arena), 15, bold=True))
        top = 46
    top = legend(picture, _swatches(arena, kinds), left, top, right) - 4
    tall = 300 if narrow else 400
    steps = max(1, len(arena.steps))
    height = _top_of(arena)
    unit = max(1, -(-height // _UNITS))
    sx, sy = (right - left) / steps, tall / height
    base = top + tall
    boxes = Scale(left, sx, base, -sy * unit)
    _draw_boxes(picture, arena, boxes, unit)
    pixels = Scale(left, sx, base, -sy)
    _axes(picture, height, (steps, arena.each), pixels, (left, right, top, base), narrow)
    _live(picture, arena, pixels)
    _names(picture, arena, pixels)
    _budget(picture, arena, pixels, (left, right, height))
    _call_out(picture, arena, pixels, (left, right, top))
    below = _phases(picture, arena, pixels, base + 26)
    picture.height = round(below + 6)
    picture.data |= {
        "x0": f"{left:g}",
        "sx": f"{sx:.8g}",
        "y0": f"{base:g}",
        "sy": f"{-sy:.8g}",
        "top": f"{top:g}",
    }
    return picture


def arena_data(arena: Arena) -> dict[str, Any]:
    """Data for the page's script, which describes the step and box under the pointer."""
    names: dict[str, int] = {}

    def number(text: str) -> int:
        return names.setdefault(text, len(names))

    kinds = list(arena.kinds)
    rows = [
        [
            b.start,
            b.stop,
            b.offset,
            b.nbytes,
            kinds.index(b.kind),
            number(b.name),
            number(b.module),
            int(b.again),
        ]
        for b in arena.boxes
    ]
    steps = [number(name) for name in arena.steps]
    return {
        "boxes": [number for row in rows for number in row],
        "kinds": kinds,
        "steps": steps,
        "phases": [[p.name, p.start, p.stop] for p in arena.phases],
        "each": arena.each,
        "live": list(arena.live),
        "names": _shortened(list(names)),
    }


def _shortened(names: list[str]) -> list[str]:
    """Cut the middle of long names if all names together have too many characters."""
    most = max(_SHORTEST, _CHARACTERS // max(1, len(names)))
    if sum(map(len, names)) <= _CHARACTERS:
        return names
    half = (most - 1) // 2
    short = (f"{name[: most - 1 - half]}\N{HORIZONTAL ELLIPSIS}{name[-half:]}" for name in names)
    return [s if len(name) > most else name for name, s in zip(names, short, strict=True)]


def _title(arena: Arena) -> str:
    text = f"arena {format_bytes(arena.nbytes)}"
    if arena.budget is not None:
        text += f" of a budget of {format_bytes(arena.budget)}"
    return f"{arena.title}: {text}" if arena.title else text


def _label(arena: Arena) -> str:
    step, live = arena.peak
    return (
        f"The arena over {len(arena.steps) * arena.each} steps: {_title(arena)}; peak "
        f"{format_bytes(live)} live at step {step * arena.each}"
    )


def _swatches(arena: Arena, more: Sequence[str] = ()) -> list[tuple[str, str]]:
    result = [kind for kind in COLOURS if kind in arena.kinds or kind in more]
    result += [kind for kind in arena.kinds if kind not in COLOURS]
    rows = [(_colour_of(kind), kind) for kind in result]
    if any(box.again for box in arena.boxes):
        rows.append(("muted", "hatched: recomputed"))
    return rows


def _top_of(arena: Arena) -> int:
    """Bytes at the top of the chart; a budget far above the arena is not shown."""
    height, budget = arena.nbytes, arena.budget
    if budget is not None and height < budget <= 1.6 * height:
        height = budget
    return max(1, int(1.12 * height))


def _draw_boxes(picture: Picture, arena: Arena, scale: Scale, unit: int) -> None:
    rows: dict[tuple[str, bool, bool], list[tuple[int, int, int, int]]] = {}
    for box in arena.boxes:
        low, high = box.offset // unit, -(-(box.offset + box.nbytes) // unit)
        row = box.start, low, box.stop - box.start, max(1, high - low)
        edged = min(row[2] * scale.sx, -row[3] * scale.sy) >= _EDGED
        rows.setdefault((box.kind, box.again, edged), []).append(row)
    known = {kind: k for k, kind in enumerate(COLOURS)}
    order = sorted(rows.items(), key=lambda row: (known.get(row[0][0], len(known)), row[0]))
    for (kind, again, edged), found in order:
        picture.add(Boxes(tuple(found), scale, _colour_of(kind), again, edged))


def _colour_of(kind: str) -> str:
    return kind if kind in COLOURS else COLOURS["io"]


def _axes(picture: Picture, height: int, columns, scale: Scale, frame, narrow: bool) -> None:
    (steps, each), (left, right, top, base) = columns, frame
    picture.add(Line(left, base, right, base), Line(left, top, left, base))
    for nbytes in byte_ticks(height):
        _, y = scale(0, nbytes)
        picture.add(Line(left - 4, y, left, y))
        picture.add(Text(left - 7, y + 4, format_bytes(nbytes), 11, "end", "muted"))
    for step, words, anchor in step_ticks(steps, 4 if narrow else 8, each):
        x, _ = scale(step, 0)
        picture.add(Line(x, base, x, base + 4), Text(x, base + 16, words, 11, anchor, "muted"))


def byte_ticks(top: int, most: int = 6) -> list[int]:
    """Round numbers of bytes from 0 to `top`."""
    unit = 1
    while top / unit > most:
        unit *= 2
    # Between powers of two, ten times a unit reads as well as eight.
    return list(range(0, top + 1, unit))


def _names(picture: Picture, arena: Arena, scale: Scale) -> None:
    for box in sorted(arena.boxes, key=lambda box: -box.area)[:_NAMED]:
        wide, tall = (box.stop - box.start) * scale.sx, -box.nbytes * scale.sy
        for text in (f"{box.name}  {format_bytes(box.nbytes)}", box.name):
            if tall >= _LINE and wide >= text_width(text, 11) + 6:
                place = _clear_of_live(arena, scale, box, text_width(text, 11) + 6)
                if place is not None:
                    picture.add(Text(place[0], place[1] + 4, text, 11, "middle", halo=True))
                break


def _clear_of_live(arena: Arena, scale: Scale, box: Box, wide: float) -> tuple[float, float] | None:
    """Centre of a line of text in a box that avoids the curve of live bytes: the box's centre, or
    the nearest free point; None if there is none."""
    left, right = scale(box.start, 0)[0], scale(box.stop, 0)[0]
    low, high = scale(0, box.offset)[1], scale(0, box.offset + box.nbytes)[1]
    middle = (left + right) / 2, (low + high) / 2
    free = right - left - wide, low - high - _LINE
    shares = [k / _TRIED for k in range(_TRIED + 1)]
    places = [
        (left + wide / 2 + free[0] * a, high + _LINE / 2 + free[1] * b)
        for a in shares
        for b in shares
    ]
    places.sort(key=lambda place: abs(place[0] - middle[0]) + abs(place[1] - middle[1]))
    for x, y in (middle, *places):
        if not crosses_live(arena, scale, (x - wide / 2, x + wide / 2, y - 7, y + 7)):
            return x, y
    return None


def crosses_live(arena: Arena, scale: Scale, area: tuple[float, float, float, float]) -> bool:
    """Whether the line of live bytes crosses an area (left, right, top, bottom) in pixels."""
    left, right, top, bottom = area
    if len(arena.live) < 2:
        return False
    first = max(0, math.floor((left - scale.x0) / scale.sx) - 1)
    last = min(len(arena.live) - 1, math.floor((right - scale.x0) / scale.sx) + 1)
    heights = [scale(0, nbytes)[1] for nbytes in arena.live[first : last + 1]]
    inside = [
        scale(first + k + 1, 0)[0] >= left and scale(first + k, 0)[0] <= right
        for k in range(len(heights))
    ]
    for k, y in enumerate(heights):
        if inside[k] and top <= y <= bottom:
            return True
        joint = scale(first + k + 1, 0)[0]  # the line moves to the next step's height here
        if k + 1 < len(heights) and left <= joint <= right:
            ends = sorted((y, heights[k + 1]))
            if ends[0] <= bottom and ends[1] >= top:
                return True
    return False


def _live(picture: Picture, arena: Arena, scale: Scale) -> None:
    if len(arena.live) < 2:
        return
    points: list[tuple[float, float]] = []
    for step, nbytes in enumerate(arena.live):
        if not points or points[-1][1] != nbytes:
            points += [(step, points[-1][1])] if points else []
            points.append((step, nbytes))
    points.append((len(arena.live), arena.live[-1]))
    picture.add(Track(points, scale, "paper", 3.5), Track(points, scale, "ink", 1.4))


def _budget(picture: Picture, arena: Arena, scale: Scale, frame) -> None:
    left, right, height = frame
    if arena.budget is not None and arena.budget <= height:
        _, y = scale(0, arena.budget)
        picture.add(Line(left, y, right, y, "alarm", 1.6))
        text = f"budget {format_bytes(arena.budget)}"
        early = 2 * arena.peak[0] < len(arena.steps)  # keep clear of the peak's label
        across, anchor = (right - 6, "end") if early else (left + 6, "start")
        picture.add(Text(across, y - 5, text, 11, anchor, "alarm", halo=True))


def _call_out(picture: Picture, arena: Arena, scale: Scale, frame) -> None:
    left, right, top = frame
    if not arena.live:
        return
    step, live = arena.peak
    x, y = scale(step + 0.5, live)
    name = arena.steps[step] if step < len(arena.steps) else ""
    head = f"peak {format_bytes(live)}, step {step * arena.each:,}"
    room = int((right - left) / text_width("m", 11)) - 2
    words = name if len(name) <= room else name[: room - 1] + "\N{HORIZONTAL ELLIPSIS}"
    wide = max(text_width(head, 12), text_width(words, 11))
    left_of = x + 10 + wide > right
    across = max(left + wide, x - 10) if left_of else x + 10
    anchor = "end" if left_of else "start"
    low = max(top + 14, y - 34)
    edges = (across, across + wide) if anchor == "start" else (across - wide, across)
    line = scale(0, arena.budget)[1] if arena.budget is not None else -math.inf
    below = [low, line + 16, top + 14, *(y + 20 + 14 * k for k in range(12))]

    def is_free(across: float) -> bool:
        area = across - 12, across + 18
        budget = area[0] <= line <= area[1]
        return across >= top + 12 and not budget and not crosses_live(arena, scale, (*edges, *area))

    low = next(filter(is_free, below), low)
    picture.add(
        Line(x, top, x, scale(0, 0)[1], "ink", 1, "4 3"),
        Dot(x, y, 4, "ink"),
        Text(across, low, head, 12, anchor, bold=True, halo=True),
        Text(across, low + 14, words, 11, anchor, halo=True),
    )


def _phases(picture: Picture, arena: Arena, scale: Scale, y: float) -> float:
    """Draw a ribbon of phases and its legend; returns the y below."""
    if not arena.phases:
        return y
    rows: dict[str, list[tuple[int, int, int, int]]] = {}
    for phase in arena.phases:
        rows.setdefault(phase.name, []).append((phase.start, 0, phase.stop - phase.start, 1))
    ribbon = Scale(scale.x0, scale.sx, y, 10)
    for name, found in rows.items():
        picture.add(Boxes(tuple(found), ribbon, name))
    words = [(name, name) for name in rows if name != "inputs"]
    right = scale(len(arena.steps), 0)[0]
    below = legend(picture, words, scale.x0, y + 30, right)
    if arena.repeats > 1:
        text = f"{arena.repeats:,} microbatches, then one update"
        picture.add(Text(scale.x0, below, text, 12, fill="muted"))
        below += 16
    return below


def largest(arena: Arena, most: int = 10) -> list[Box]:
    """The `most` largest values at the peak."""
    return arena.at(arena.peak[0])[:most]
