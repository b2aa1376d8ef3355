"""A picture of an arena: address over time, coloured by kind. SVG is written here, png is not."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from edgetrain.errors import UsageError
from edgetrain.program.account import COLOURS
from edgetrain.program.atomic import write_atomically
from edgetrain.units import format_bytes

from .problem import Buffer

_OTHERS = ("#6cc5b0", "#ff8ab7", "#c0a16b", "#7a8f3c")
_WIDTH, _HEIGHT, _LEFT, _TOP = 1000, 560, 84, 64


def draw(
    buffers: Sequence[Buffer],
    offsets: Sequence[int],
    kinds: Sequence[str],
    names: Sequence[str],
    budget: int | None,
    path: str | Path,
) -> None:
    """Draw a placement: time to the right, address upwards, one box for each buffer.

    The step with the most live bytes is marked, the budget is a line, the largest buffers are
    named.

    Args:
      buffers, offsets: the placement, in steps and bytes.
      kinds: one word for each buffer; chooses its colour.
      names: what to call each buffer.
      budget: bytes, or None.
      path: ends in .svg or .png; png needs matplotlib.
    Raises:
      UsageError: another ending, or lists of different lengths.
      RunError: the file cannot be written.
    """
    path = Path(path)
    if not len(buffers) == len(offsets) == len(kinds) == len(names):
        raise UsageError("draw: buffers, offsets, kinds and names must have equal lengths.")
    if path.suffix == ".svg":
        text = _svg(buffers, offsets, kinds, names, budget).encode()
        write_atomically(path, lambda file: file.writelines([text]))
    elif path.suffix == ".png":
        _png(buffers, offsets, kinds, names, budget, path)
    else:
        raise UsageError(f"picture {path.name!r}: expected a name ending in .svg or .png.")


def palette(kinds: Sequence[str]) -> dict[str, str]:
    """A colour for each kind that occurs, the known ones first."""
    others = sorted(set(kinds) - COLOURS.keys())
    extra = {kind: _OTHERS[k % len(_OTHERS)] for k, kind in enumerate(others)}
    return {kind: colour for kind, colour in COLOURS.items() if kind in kinds} | extra


def _peak(buffers: Sequence[Buffer]) -> tuple[int, int]:
    """(step, bytes) where the most bytes are live."""
    last = max((b.stop for b in buffers), default=0)
    change = np.zeros(last + 1, np.int64)
    for b in buffers:
        if b.stop > b.start:
            change[b.start] += b.nbytes
            change[b.stop] -= b.nbytes
    live = np.cumsum(change)
    return int(live.argmax()), int(live.max(initial=0))


def _named(buffers: Sequence[Buffer], most: int = 14) -> list[int]:
    """The buffers worth a name: those of the largest areas."""
    order = sorted(range(len(buffers)), key=lambda k: -buffers[k].nbytes * _span(buffers[k]))
    return order[:most]


def _span(buffer: Buffer) -> int:
    return max(1, buffer.stop - buffer.start)


def _extent(buffers, offsets, budget: int | None) -> tuple[int, int, int]:
    """(last step, height in bytes, top of the picture in bytes)."""
    last = max((b.stop for b in buffers), default=1)
    height = max((at + b.nbytes for b, at in zip(buffers, offsets, strict=True)), default=1)
    far = budget is not None and budget > 1.6 * height
    top = height if budget is None or far else max(height, budget)
    return last, max(1, height), max(1, int(top * 1.06))


def _svg(buffers, offsets, kinds, names, budget: int | None) -> str:
    last, height, top = _extent(buffers, offsets, budget)
    colours = palette(kinds)
    dx, dy = _WIDTH / last, _HEIGHT / top

    def y(nbytes: float) -> float:
        return _TOP + _HEIGHT - nbytes * dy

    out = [_head()]
    for b, at, kind, name in zip(buffers, offsets, kinds, names, strict=True):
        if b.stop > b.start and b.nbytes:
            label = f"{name} ({kind}): {format_bytes(b.nbytes)} at {at}, steps {b.start}-{b.stop}"
            out.append(
                f'<rect x="{_LEFT + b.start * dx:.2f}" y="{y(at + b.nbytes):.2f}" '
                f'width="{(b.stop - b.start) * dx:.2f}" height="{b.nbytes * dy:.2f}" '
                f'fill="{colours[kind]}"><title>{escape(label)}</title></rect>'
            )
    for k in _named(buffers):
        b, at = buffers[k], offsets[k]
        wide, tall = (b.stop - b.start) * dx, b.nbytes * dy
        text = f"{names[k]} {format_bytes(b.nbytes)}"
        if tall >= 9 and wide >= 5.6 * len(text):
            out.append(
                f'<text class="n" x="{_LEFT + (b.start + b.stop) / 2 * dx:.1f}" '
                f'y="{y(at + b.nbytes / 2) + 3.5:.1f}">{escape(text)}</text>'
            )
    out += _axes(last, top, dx, y)
    out += _marks(buffers, height, budget, top, dx, y)
    out += _legend(kinds, colours)
    return "\n".join([*out, "</svg>\n"])


def _head() -> str:
    wide, tall = _LEFT + _WIDTH + 24, _TOP + _HEIGHT + 48
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" '
        f'width="{wide}" height="{tall}" font-family="sans-serif" font-size="12">\n'
        "<style>rect{stroke:#fff;stroke-width:.4}.n{font-size:10px;text-anchor:middle;"
        "fill:#000;paint-order:stroke;stroke:#fff;stroke-width:2.2px;stroke-opacity:.7}"
        ".e{text-anchor:end}.m{text-anchor:middle}line{stroke:#555}</style>\n"
        f'<rect width="{wide}" height="{tall}" fill="#fff"/>'
    )


def _axes(last: int, top: int, dx: float, y) -> list[str]:
    base = y(0)
    out = [f'<line x1="{_LEFT}" y1="{base}" x2="{_LEFT + _WIDTH}" y2="{base}"/>']
    out.append(f'<line x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{base}"/>')
    for k in range(6):
        nbytes, step = top * k / 5, last * k // 5
        out.append(
            f'<text class="e" x="{_LEFT - 6}" y="{y(nbytes) + 4:.1f}">'
            f"{format_bytes(int(nbytes))}</text>"
        )
        out.append(f'<text class="m" x="{_LEFT + step * dx:.1f}" y="{base + 18}">{step}</text>')
    out.append(f'<text class="m" x="{_LEFT + _WIDTH / 2}" y="{base + 38}">step</text>')
    return out


def _marks(buffers, height: int, budget: int | None, top: int, dx: float, y) -> list[str]:
    step, live = _peak(buffers)
    x = _LEFT + (step + 0.5) * dx
    out = [
        f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{y(0):.1f}" '
        'style="stroke:#000;stroke-dasharray:4 3"/>',
        f'<text x="{min(x + 5, _LEFT + _WIDTH - 190):.1f}" y="{_TOP + 10}">'
        f"peak {format_bytes(live)} live at step {step}</text>",
    ]
    if budget is not None and budget <= top:
        out.append(
            f'<line x1="{_LEFT}" y1="{y(budget):.1f}" x2="{_LEFT + _WIDTH}" '
            f'y2="{y(budget):.1f}" style="stroke:#c00;stroke-width:1.6"/>'
        )
    title = f"arena {format_bytes(height)}"
    if budget is not None:
        title += f", budget {format_bytes(budget)}"
    out.append(f'<text x="{_LEFT}" y="20" font-size="15" font-weight="bold">{title}</text>')
    return out


def _legend(kinds: Sequence[str], colours: dict[str, str]) -> list[str]:
    out, x = [], _LEFT
    for kind, colour in colours.items():
        out.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 17}" y="44">{escape(kind)}</text>')
        x += 34 + 7 * len(kind)
    return out


def _png(buffers, offsets, kinds, names, budget: int | None, path: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"picture {path.name!r}: png needs matplotlib, which is not installed. "
            "Install edgetrain[plot], or ask for .svg."
        ) from error
    last, height, top = _extent(buffers, offsets, budget)
    colours = palette(kinds)
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    mib = 2.0**20
    for kind, colour in colours.items():
        chosen = [k for k, other in enumerate(kinds) if other == kind]
        axes.bar(
            [buffers[k].start for k in chosen],
            [buffers[k].nbytes / mib for k in chosen],
            width=[buffers[k].stop - buffers[k].start for k in chosen],
            bottom=[offsets[k] / mib for k in chosen],
            align="edge",
            color=colour,
            edgecolor="white",
            linewidth=0.2,
            label=kind,
        )
    for k in _named(buffers):
        b = buffers[k]
        if b.nbytes > 0.02 * top and b.stop - b.start > 0.008 * last * len(names[k]):
            middle = (b.start + b.stop) / 2, (offsets[k] + b.nbytes / 2) / mib
            axes.text(*middle, names[k], ha="center", va="center", fontsize=7)
    step, live = _peak(buffers)
    axes.axvline(step + 0.5, color="black", linestyle="--", linewidth=0.8)
    title = f"arena {format_bytes(height)}, peak {format_bytes(live)} live at step {step}"
    if budget is not None:
        title += f", budget {format_bytes(budget)}"
        if budget <= top:
            axes.axhline(budget / mib, color="#c00", linewidth=1.2)
    axes.set(xlim=(0, last), ylim=(0, top / mib), xlabel="step", ylabel="address, MiB")
    axes.set_title(title, loc="left")
    axes.legend(ncols=9, loc="upper left", fontsize=8, frameon=False)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=120))
