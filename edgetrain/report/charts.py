"""Charts: plans by bytes and time, lines over steps, bars of bytes, confusion matrix."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..program.account import COLOURS
from ..units import format_bytes
from ..units.wording import counted
from .canvas import (
    SERIES,
    Dot,
    Line,
    Picture,
    Rect,
    Scale,
    Text,
    Track,
    legend,
    text_width,
)

_NARROW = 640
_DOTTED = 40  # most values of a series that is also drawn as dots
_LEGIBLE = 18  # smallest cell, in pixels, that shows its number


@dataclass(frozen=True)
class Point:
    """A plan: bytes, time relative to the fastest plan, and a description."""

    nbytes: int
    time: float
    group: str
    words: str


@dataclass(frozen=True)
class Series:
    """Values over steps; non-finite values are gaps."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def frontier_chart(
    points: Sequence[Point], chosen: int, budget: int | None = None, width: int = 960
) -> Picture:
    """Bytes and time of every plan, on logarithmic axes; marks the chosen and the smallest plan."""
    narrow = width < _NARROW
    left, right, tall = 58, width - 16, 260 if narrow else 320
    groups = list(dict.fromkeys(point.group for point in points))
    picture = Picture(
        width,
        0,
        f"{counted(len(points), 'plan')} from {format_bytes(points[0].nbytes)} to "
        f"{format_bytes(points[-1].nbytes)}; chosen {format_bytes(points[chosen].nbytes)}",
        data={"chart": "points", "data": "frontier"},
    )
    shown = groups[: len(SERIES)]
    swatches = [(SERIES[k % len(SERIES)], name) for k, name in enumerate(shown)]
    top = legend(picture, swatches, left, 16, right) + 6
    base = top + tall
    sizes = [point.nbytes for point in points]
    if budget is not None and sizes[0] <= budget <= 4 * sizes[-1]:
        sizes = [*sizes, budget]
    xs, ys = _logs(sizes), _logs([point.time for point in points])
    sx, sy = (right - left) / (xs[1] - xs[0]), tall / (ys[1] - ys[0])
    scale = Scale(left - sx * xs[0], sx, base + sy * ys[0], -sy)
    _log_axes(picture, scale, xs, ys, (left, right, top, base), narrow)
    if budget is not None and xs[0] <= math.log(budget) <= xs[1]:
        x, _ = scale(math.log(budget), 0)
        end = x + 110 > right
        picture.add(Line(x, top, x, base, "alarm", 1.6))
        words = f"budget {format_bytes(budget)}"
        across = x - 5 if end else x + 5
        picture.add(
            Text(across, top + 12, words, 11, "end" if end else "start", "alarm", halo=True)
        )
    places = [(math.log(point.nbytes), math.log(point.time)) for point in points]
    for k, name in enumerate(groups):
        mine = [p for p, point in zip(places, points, strict=True) if point.group == name]
        fill = SERIES[k % len(SERIES)]
        if len(mine) > 1:
            picture.add(Track(mine, scale, fill, 1))
        for x, y in mine:
            picture.add(Dot(*scale(x, y), 3.5, fill))
    least, taken = scale(*places[0]), scale(*places[chosen])
    picture.add(Dot(*taken, 9, "ink", hollow=True))
    _marked(picture, taken, "chosen", (right, top), -14)
    if chosen:
        picture.add(Dot(*least, 7, "muted", hollow=True))
        _marked(picture, least, "least", (right, top), 22)
    picture.height = round(base + 40)
    picture.data |= {
        "x0": f"{scale.x0:.8g}",
        "sx": f"{sx:.8g}",
        "y0": f"{scale.y0:.8g}",
        "sy": f"{-sy:.8g}",
    }
    return picture


def _marked(picture: Picture, where, word: str, frame, down: float) -> None:
    (x, y), (right, top) = where, frame
    end = x + 70 > right
    y = max(top + 12, y + down)
    across = x - 6 if end else x + 6
    picture.add(Text(across, y, word, 12, "end" if end else "start", bold=True, halo=True))


def _logs(values: Sequence[float]) -> tuple[float, float]:
    """The range of the logarithms, with a small margin."""
    low, high = math.log(min(values)), math.log(max(values))
    room = max(0.06 * (high - low), 0.08)
    return low - room, high + room


def _log_axes(picture: Picture, scale: Scale, xs, ys, frame, narrow: bool) -> None:
    left, right, top, base = frame
    picture.add(Line(left, base, right, base), Line(left, top, left, base))
    last = -math.inf
    for nbytes in _log_ticks(*map(math.exp, xs), binary=True):
        x, _ = scale(math.log(nbytes), 0)
        if x - last < 74:
            continue
        last = x
        picture.add(Line(x, top, x, base, "grid"))
        picture.add(Text(x, base + 16, format_bytes(round(nbytes)), 11, "middle", "muted"))
    last = math.inf
    for time in _log_ticks(*map(math.exp, ys), binary=False):
        _, y = scale(0, math.log(time))
        if last - y < 18:
            continue
        last = y
        picture.add(Line(left, y, right, y, "grid"))
        picture.add(Text(left - 6, y + 4, f"{time:g}\N{MULTIPLICATION SIGN}", 11, "end", "muted"))
    words = "bytes" if narrow else "arena bytes; upwards: time relative to the fastest plan"
    picture.add(Text((left + right) / 2, base + 33, words, 12, "middle", "muted"))


def _log_ticks(low: float, high: float, *, binary: bool) -> list[float]:
    """Round numbers between two values, finer for a small range."""
    if binary:
        result: list[float] = []
        power = 2.0 ** math.floor(math.log2(low))
        while power <= high:
            result += [power * k / 8 for k in range(8, 16)]
            power *= 2
        inside = [v for v in result if low <= v <= high]
        for each in (8, 4, 2, 1):
            kept = [v for v in inside if round(v / 2 ** math.floor(math.log2(v)) * 8) % each == 0]
            if len(kept) >= 3:
                return kept
        return inside
    choices = (1, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 8)
    result = [c * 10.0**p for p in range(-2, 6) for c in choices]
    return [v for v in result if low <= v <= high]


def line_chart(
    series: Sequence[Series],
    name: str,
    width: int = 960,
    *,
    log: bool = False,
    tall: int = 180,
    last: float = 0,
) -> Picture:
    """Values over steps; short series are also drawn as dots.

    Args:
      name: name of the chart's data in the page.
      log: logarithmic axis; values of 0 and below are gaps.
      last: last step on the x axis, so that all charts of a run align.
    """
    left, right = 58, width - 16
    swatches = [(SERIES[k % len(SERIES)], line.name) for k, line in enumerate(series)]
    title = f"{', '.join(line.name for line in series)} over steps"
    data = {"chart": "lines", "data": name} | ({"log": "1"} if log else {})
    picture = Picture(width, 0, title, data=data)
    top = legend(picture, swatches, left, 16, right) + 2
    base = top + tall

    def known(value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not log)

    values = [y for line in series for y in line.y if known(y)] or [1.0]
    low, high = _range(values, log)
    last = max([last, 1.0, *(x for line in series for x in line.x)])
    sx, sy = (right - left) / last, tall / (high - low)
    scale = Scale(left, sx, base + sy * low, -sy)
    for value in _ticks(low, high, log):
        _, y = scale(0, math.log10(value) if log else value)
        picture.add(Line(left, y, right, y, "grid"))
        picture.add(Text(left - 6, y + 4, f"{value:.4g}", 11, "end", "muted"))
    picture.add(Line(left, base, right, base), Line(left, top, left, base))
    for step, words, anchor in step_ticks(round(last), 4 if width < _NARROW else 8):
        across = scale(step, 0)[0]
        picture.add(Line(across, base, across, base + 4))
        picture.add(Text(across, base + 16, words, 11, anchor, "muted"))
    for k, line in enumerate(series):
        for run in _runs(line, known):
            points = [(x, math.log10(y) if log else y) for x, y in run]
            colour = SERIES[k % len(SERIES)]
            picture.add(Track(points, scale, colour, 1.6))
            if len(line.x) <= _DOTTED:
                picture.add(*(Dot(*scale(*point), 3, colour) for point in points))
    picture.height = round(base + 24)
    picture.data |= {
        "x0": f"{scale.x0:.8g}",
        "sx": f"{sx:.8g}",
        "top": f"{top:g}",
        "base": f"{base:g}",
    }
    return picture


def _runs(item: Series, known) -> list[list[tuple[float, float]]]:
    """Parts of a series without gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(item.x, item.y, strict=True):
        if known(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _range(values: Sequence[float], log: bool) -> tuple[float, float]:
    """Range of an axis, with a small margin that doesn't cross 0 or, for shares, 1."""
    least, most = min(values), max(values)
    low, high = (math.log10(least), math.log10(most)) if log else (least, most)
    room = 0.05 * (high - low) or max(abs(high) * 0.1, 0.05)
    low, high = low - room, high + room
    if not log and least >= 0 and low < 0.3 * high:
        low = 0.0
    if not log and 0.8 <= most <= 1 < high:
        high = 1.0
    return low, high


def step_ticks(last: int, most: int, each: int = 1) -> list[tuple[int, str, str]]:
    """(step, text, anchor) of the ticks on an axis from 0 to `last`: round numbers and the end.

    Args:
      most: approximate maximum number of ticks.
      each: multiply steps by this in the texts.
    """
    unit = max(1, int(_ticks(0, max(4, last * each), False)[1]) * 4 // most)
    unit = next(k * 10**p for p in range(19) for k in (1, 2, 5) if k * 10**p >= unit)
    end = last * each
    # Drop ticks too close to the end.
    result = [k for k in range(0, end, unit) if k == 0 or end - k > 0.6 * unit]
    rows = [(round(k / each), f"{k:,}", "middle") for k in result]
    return [*rows, (last, f"{end:,} steps", "end")]


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        result = [
            c * 10.0**p for p in range(math.floor(low), math.ceil(high) + 1) for c in (1, 2, 5)
        ]
        inside = [v for v in result if low <= math.log10(v) <= high]
        tens = [v for v in inside if abs(math.log10(v) - round(math.log10(v))) < 1e-9]
        return tens[:: 1 + len(tens) // 7] if len(tens) > 2 else inside
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(k for k in (1, 2, 2.5, 5, 10) if (high - low) / (step * k) <= 5)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step) + 1)]


def kinds_of(rows: Sequence[tuple[str, Mapping[str, int]]]) -> list[str]:
    """Kinds of bytes in any row of a bar chart, in colour order."""
    return [kind for kind in COLOURS if any(parts.get(kind) for _, parts in rows)]


def bars_chart(
    rows: Sequence[tuple[str, Mapping[str, int]]],
    width: int = 960,
    budget: int | None = None,
    *,
    keyed: bool = True,
) -> Picture:
    """Stacked bars, one per row (name, bytes by kind), from zero.

    Args:
      keyed: draw a legend; not needed if the page already has one for these colours.
    """
    narrow = width < _NARROW
    most = max([sum(parts.values()) for _, parts in rows] or [1])
    most = max(most, budget or 0)
    kinds = kinds_of(rows)
    picture = Picture(width, 0, "; ".join(f"{n} {format_bytes(sum(p.values()))}" for n, p in rows))
    left = 12 if narrow else 24 + max(text_width(name) for name, _ in rows)
    right = width - 86
    y = legend(picture, [(k, k) for k in kinds], left, 16, width - 12) + 4 if keyed else 16.0
    top, scale = y, (right - left) / most
    if budget is not None:
        x = left + budget * scale
        below = top + len(rows) * (46 if narrow else 30) - 4
        picture.add(Line(x, top - 2, x, below, "alarm", 1.6))
    for name, parts in rows:
        if narrow:
            y += 16
            picture.add(Text(left, y - 4, name, 12))
        else:
            picture.add(Text(left - 10, y + 15, name, 12, "end"))
        x = float(left)
        for kind in kinds:
            wide = parts.get(kind, 0) * scale
            if wide > 0:
                title = f"{kind}: {format_bytes(parts[kind])}"
                picture.add(Rect(x, y, wide, 20, kind, title, "paper"))
                x += wide
        picture.add(
            Text(x + 6, y + 15, format_bytes(sum(parts.values())), 12, fill="muted", halo=True)
        )
        y += 30
    if budget is not None:
        x = left + budget * scale
        end = x + 110 > width
        words = f"budget {format_bytes(budget)}"
        picture.add(Text(x, y + 10, words, 11, "end" if end else "middle", "alarm"))
        y += 18
    picture.height = round(y + 4)
    return picture


def share_chart(rows: Sequence[tuple[str, float, str]], width: int = 960) -> Picture:
    """A bar from 0 to 1 for each row (name, share, text)."""
    narrow = width < _NARROW
    picture = Picture(width, 0, "; ".join(f"{name} {share:.3f}" for name, share, _ in rows))
    left = 12 if narrow else min(420, 24 + max(text_width(name) for name, *_ in rows))
    right, y = width - (100 if narrow else 180), 8.0
    for name, share, words in rows:
        if narrow:
            y += 14
            picture.add(Text(left, y - 4, name, 11))
        else:
            picture.add(Text(left - 10, y + 11, name, 12, "end"))
        wide = (right - left) * min(1.0, max(0.0, share))
        picture.add(Rect(left, y, right - left, 14, "grid"), Rect(left, y, wide, 14, "accent"))
        text = f"{share:.3f}" if narrow else words
        picture.add(Text(right + 8, y + 11, text, 11, fill="muted"))
        y += 22
    picture.height = round(y + 4)
    return picture


def matrix_chart(
    counts: Sequence[Sequence[float]], names: Sequence[str], width: int = 960
) -> Picture:
    """Confusion matrix: targets down, predictions across; colours are shares of a row's samples."""
    n = len(counts)
    wide = max(text_width(name, 11) for name in names)
    left, top = min(110.0, 16 + max(wide, text_width("precision", 11))), 40.0
    shares = 56.0  # pixels for shares: recall at the right, precision below
    cell = min(46.0, (min(width - 12, 576) - left - shares) / n)
    right, base = left + n * cell, top + n * cell
    legible = cell >= _LEGIBLE
    picture = Picture(
        width,
        round(base + (26 if legible else 6)),
        f"Confusion matrix of {n} classes: "
        f"{sum(row[k] for k, row in enumerate(counts)):,} on the diagonal",
    )
    picture.add(Text((left + right) / 2, 12, "predicted", 11, "middle", "muted"))
    picture.add(Text(left - 6, top - 6, "target", 11, "end", "muted"))
    if legible:
        picture.add(Text(right + shares - 6, top - 6, "recall", 11, "end", "muted"))
        picture.add(Text(left - 6, base + 15, "precision", 11, "end", "muted"))
    for k, row in enumerate(counts):
        total, y, x = sum(row), top + k * cell, left + k * cell
        if cell >= 11:
            picture.add(Text(left - 6, y + cell / 2 + 4, names[k], 11, "end", "muted"))
            words = _fitting(names[k], cell)
            picture.add(Text(x + cell / 2, top - 6, words, 11, "middle", "muted"))
        if legible:
            where = right + shares - 6, y + cell / 2 + 4
            picture.add(Text(*where, _percent(row[k], total), 11, "end"))
            predicted = _percent(row[k], sum(item[k] for item in counts))
            picture.add(Text(x + cell / 2, base + 15, predicted, 11, "middle"))
        for j, count in enumerate(row):
            share, x = count / total if total else 0.0, left + j * cell
            title = f"target {names[k]}, predicted {names[j]}: {count:,} ({100 * share:.1f} %)"
            picture.add(Rect(x, y, cell - 1, cell - 1, "grid", title, opacity=0.5))
            if count:
                fill, strong = "accent" if j == k else "alarm", 0.15 + 0.85 * share
                picture.add(Rect(x, y, cell - 1, cell - 1, fill, title, opacity=strong))
                if cell >= 24:
                    across = x + cell / 2, y + cell / 2 + 4
                    picture.add(Text(*across, f"{count:,}", 11, "middle", halo=True))
    return picture


def _percent(count: float, total: float) -> str:
    return f"{100 * count / total:.0f}%" if total else "-"


def _fitting(name: str, wide: float) -> str:
    """A name, cut to fit the column."""
    room = max(1, int(wide / text_width("m", 11)))
    return name if len(name) <= room else name[: room - 1] + "\N{HORIZONTAL ELLIPSIS}"
