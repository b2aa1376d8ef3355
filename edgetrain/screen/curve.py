"""Draws the loss of a run as a picture in the run directory.

It does not use edgetrain.report, to save memory: a device has 6 MB for all of training.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from ..history import History
from ..program.atomic import write_atomically

CURVE_FILE = "loss.svg"
_WIDE, _TALL, _LEFT, _RIGHT, _TOP, _BELOW = 640, 260, 56, 16, 34, 30
_COLOURS = "#2a6fbb", "#c2571a"  # training, evaluation
_HEAD = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_TALL}" role="img" '
    'font-family="sans-serif" font-size="12" fill="#555"><title>loss</title>'
    '<rect width="100%" height="100%" fill="#fff"/>'
)


def draw_curve(history: History, directory: Path) -> None:
    """Draw the training loss over steps, and the evaluation loss if there is one.

    Raises:
      RunError: the file cannot be written.
    """
    steps, columns = history.steps, history.columns
    if not steps["step"]:
        return
    lines = [("training loss", steps["step"], steps["loss"])]
    if "val_loss" in columns:
        lines.append(("evaluation loss", columns["step"], columns["val_loss"]))
    text = _svg(lines, max(history.last, 1)).encode()
    write_atomically(directory / CURVE_FILE, lambda file: file.writelines([text]))


def _svg(lines: Sequence[tuple[str, Sequence[float], Sequence[float]]], last: int) -> str:
    """Draw lines (name, steps, losses); non-finite values leave a gap."""
    known = [y for _, _, losses in lines for y in losses if math.isfinite(y)] or [0.0]
    low, high = min(known), max(known)
    wide, tall = _WIDE - _LEFT - _RIGHT, _TALL - _TOP - _BELOW

    def place(step: float, loss: float) -> str:
        along = _LEFT + wide * step / last
        return f"{along:.1f} {_TOP + tall * (high - loss) / ((high - low) or 1):.1f}"

    floor = _TOP + tall
    parts = [
        _HEAD,
        f'<path d="M{_LEFT} {_TOP}V{floor}H{_WIDE - _RIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{high:.4g}</text>',
        f'<text x="{_LEFT - 6}" y="{floor}" text-anchor="end">{low:.4g}</text>',
        f'<text x="{_LEFT}" y="{_TALL - 10}">0</text>',
        f'<text x="{_WIDE - _RIGHT}" y="{_TALL - 10}" text-anchor="end">step {last:,}</text>',
    ]
    for index, (name, steps, losses) in enumerate(lines):
        way, drawn = "", False
        for step, loss in zip(steps, losses, strict=True):
            if math.isfinite(loss):
                way += f"{'L' if drawn else 'M'}{place(step, loss)}"
            drawn = math.isfinite(loss)
        ends = 'stroke-width="1.5" stroke-linecap="round"'
        parts.append(f'<path d="{way}" fill="none" stroke="{_COLOURS[index]}" {ends}/>')
        parts.append(
            f'<text x="{_LEFT + 150 * index}" y="20" fill="{_COLOURS[index]}">{name}</text>'
        )
    return "".join(parts) + "</svg>\n"
