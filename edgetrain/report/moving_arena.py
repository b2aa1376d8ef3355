"""Animated arena: a veil covers later steps, and live values are drawn next to the chart."""

from collections.abc import Sequence

from ..program.account import COLOURS
from ..units import format_bytes
from .arena_chart import arena_chart
from .canvas import During, Line, Picture, Rect, Sweep, Text, text_width
from .scene import Arena, Box

_BESIDE, _GAP = 96, 24  # pixels of the column next to the chart, and the gap to it
_FRAMES, _BOXES = 240, 300  # maxima; more steps are skipped, smaller boxes left out
_EACH, _SHORTEST, _LONGEST = 0.25, 6.0, 24.0  # seconds per frame, and limits in total
_MOVES = 0.84  # moving part of the loop; then it stops


def moving_arena(arena: Arena, width: int = 960) -> Picture:
    """Draw an arena like `arena_chart`, animated over its steps (SVG only).

    If the reader prefers reduced motion, it shows all steps, and the values at the peak.
    """
    picture = arena_chart(arena, width, beside=_BESIDE)
    x0, sx, base, sy, top = (float(picture.data[k]) for k in ("x0", "sx", "y0", "sy", "top"))
    count = max(1, len(arena.steps))
    frames = [k * count // min(count, _FRAMES) for k in range(min(count, _FRAMES))]
    picture.seconds = min(_LONGEST, max(_SHORTEST, _EACH * len(frames)))
    picture.add(Sweep(x0, top, sx * count, base - top, len(frames), _MOVES))
    left, wide = x0 + sx * count + _GAP, _BESIDE - _GAP
    for box in sorted(arena.boxes, key=lambda box: -box.area)[:_BOXES]:
        picture.add(*_lives(box, frames, arena.peak[0], _rect(box, left, wide, base, sy)))
    picture.add(
        Line(left, base, left + wide, base), Text(left, base + 16, "live now", 11, fill="muted")
    )
    if arena.live:
        picture.add(*_said(arena, frames, left + wide, width))
    return picture


def _rect(box: Box, x: float, wide: float, base: float, sy: float) -> Rect:
    high = -box.nbytes * sy
    kind = box.kind if box.kind in COLOURS else "io"
    return Rect(x, base + box.offset * sy - high, wide, high, kind, stroke="edge")


def _lives(box: Box, frames: Sequence[int], peak: int, rect: Rect) -> list[During]:
    held = [k for k, step in enumerate(frames) if box.start <= step < box.stop]
    if not held:
        return []
    return [
        During((rect,), *_times(held[0], held[-1] + 1, len(frames)), box.start <= peak < box.stop)
    ]


def _said(arena: Arena, frames: Sequence[int], right: float, width: int) -> list[During]:
    """What each frame computes, and the live bytes."""
    room = int(width / 2 / text_width("m", 12))
    out = []
    for k, step in enumerate(frames):
        name = arena.steps[step] if step < len(arena.steps) else ""
        name = name if len(name) <= room else name[: room - 1] + "\N{HORIZONTAL ELLIPSIS}"
        words = Text(right, 22, f"{name}  {format_bytes(arena.live[step])} live", 12, "end")
        kept = step == arena.peak[0]
        out.append(During((words,), *_times(k, k + 1, len(frames)), kept))
    return out


def _times(start: int, stop: int, frames: int) -> tuple[float, float]:
    """Start and end of frames [start, stop) in the loop; the last frame stays until the loop
    restarts."""
    return _MOVES * start / frames, 1.0 if stop == frames else _MOVES * stop / frames
