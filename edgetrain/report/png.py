"""Writes pictures as PNG with matplotlib, in light colours."""

from collections.abc import Callable
from typing import Any, BinaryIO

from ..errors import UsageError
from .canvas import Boxes, Dot, Line, Picture, Rect, Scale, Text, Track, colour

_DPI = 100  # one pixel is 1/100 inch
_DENSITY = 1.5
Look = dict[str, Any]
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def write_png(picture: Picture, file: BinaryIO, name: str) -> None:
    """Write a picture as PNG.

    Args:
      name: name of the file in error messages.
    Raises:
      UsageError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"picture {name!r}: png needs matplotlib, which is not installed. "
            "Run: pip install matplotlib, or choose .svg."
        ) from error
    figure = Figure(figsize=(picture.width / _DPI, picture.height / _DPI), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
    axes.set_axis_off()
    for order, shape in enumerate(picture.shapes):
        _DRAWN[type(shape)](axes, shape, order)
    figure.savefig(file, format="png", dpi=_DENSITY * _DPI)


def _points(width: float) -> float:
    """Pixels as typographic points."""
    return width * 72 / _DPI


def _boxes(axes, shape: Boxes, order: int) -> None:
    from matplotlib.collections import PolyCollection

    corners = []
    for x, y, w, h in shape.rows:
        (x0, y0), (x1, y1) = shape.scale(x, y), shape.scale(x + w, y + h)
        corners.append([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
    look: Look = {"facecolors": colour(shape.fill), "linewidths": 0.3 if shape.edged else 0}
    look |= {"edgecolors": "white"} if shape.edged else {}
    axes.add_collection(PolyCollection(corners, zorder=order, **look))
    if shape.hatched:
        hatch: Look = {
            "facecolors": "none",
            "edgecolors": "white",
            "linewidths": 0,
            "hatch": "////",
        }
        axes.add_collection(PolyCollection(corners, zorder=order, **hatch))


def _track(axes, shape: Track, order: int) -> None:
    points = [shape.scale(x, y) for x, y in shape.points]
    dash = tuple(_points(float(n)) for n in shape.dash.split())
    axes.plot(
        *zip(*points, strict=True),
        color=colour(shape.stroke),
        linewidth=_points(shape.width),
        linestyle=(0, dash) if dash else "-",
        zorder=order,
    )


def _rect(axes, shape: Rect, order: int) -> None:
    from matplotlib.patches import Rectangle

    edge = colour(shape.stroke) if shape.stroke else "none"
    look: Look = {"facecolor": colour(shape.fill), "edgecolor": edge, "alpha": shape.opacity}
    axes.add_patch(
        Rectangle((shape.x, shape.y), shape.width, shape.height, zorder=order, linewidth=1, **look)
    )


def _line(axes, shape: Line, order: int) -> None:
    ends = (shape.x1, shape.y1), (shape.x2, shape.y2)
    _track(axes, Track(ends, Scale(0, 1, 0, 1), shape.stroke, shape.width, shape.dash), order)


def _dot(axes, shape: Dot, order: int) -> None:
    from matplotlib.patches import Circle

    fill, edge = ("none", colour(shape.fill)) if shape.hollow else (colour(shape.fill), "none")
    axes.add_patch(
        Circle((shape.x, shape.y), shape.radius, facecolor=fill, edgecolor=edge, zorder=order)
    )


def _text(axes, shape: Text, order: int) -> None:
    from matplotlib import patheffects

    result = axes.text(
        shape.x,
        shape.y,
        shape.text,
        fontsize=_points(shape.size),
        color=colour(shape.fill),
        ha=_ANCHORS[shape.anchor],
        va="baseline",
        zorder=order,
        parse_math=False,
        fontweight="bold" if shape.bold else "normal",
    )
    if shape.halo:
        stroke = patheffects.withStroke(linewidth=2, foreground="white", alpha=0.8)
        result.set_path_effects([stroke])


_DRAWN: dict[type, Callable[..., None]] = {
    Boxes: _boxes,
    Track: _track,
    Rect: _rect,
    Line: _line,
    Dot: _dot,
    Text: _text,
}
