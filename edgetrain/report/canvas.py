"""Basic shapes of pictures, and how to write them as SVG.

Animation uses only a style sheet, so it works wherever the picture is shown.

A colour is a name: in THEME (light and dark variants), of a kind of bytes in the memory account, or
of a phase. Pictures on a page reference large shapes in the page's shared definitions, so the wide
and the narrow version of a chart share them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..program.account import COLOURS
from .scene import escape

# name -> (light, dark)
THEME = {
    "paper": ("#ffffff", "#14171c"),
    "ink": ("#1b1f24", "#e6e9ee"),
    "muted": ("#59626e", "#9aa4b1"),
    "grid": ("#dfe3e8", "#2c333d"),
    "alarm": ("#b3261e", "#ff8a80"),
    "accent": ("#0072b2", "#56b4e9"),
    "edge": ("#ffffff", "#14171c"),
}
# All of one hue, which no kind of bytes uses: each colour has one meaning.
PHASES = {
    "inputs": "#e4dff5",
    "forward": "#b9aee6",
    "loss": "#2f1f66",
    "backward": "#7a66c2",
    "recompute": "#d3cbf0",
    "update": "#4b3795",
}
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def colour(name: str, dark: bool = False) -> str:
    """The value of a named colour."""
    if name in THEME:
        return THEME[name][dark]
    return COLOURS.get(name) or PHASES.get(name) or name


def variables() -> str:
    """CSS variables for the colours of THEME."""
    light, dark = ("".join(f"--{k}:{v[d]};" for k, v in THEME.items()) for d in (0, 1))
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )


@dataclass(frozen=True)
class Scale:
    """Converts data coordinates to pixels: x = x0 + sx * data."""

    x0: float
    sx: float
    y0: float
    sy: float

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        return self.x0 + self.sx * x, self.y0 + self.sy * y


@dataclass(frozen=True)
class Boxes:
    """Rectangles (x, y, width, height) in integer data coordinates, drawn as one shape."""

    rows: Sequence[tuple[int, int, int, int]]
    scale: Scale
    fill: str
    hatched: bool = False
    edged: bool = True


@dataclass(frozen=True)
class Track:
    """A line through points in data coordinates."""

    points: Sequence[tuple[float, float]]
    scale: Scale
    stroke: str
    width: float = 1.5
    dash: str = ""


@dataclass(frozen=True)
class Rect:
    """A rectangle in pixels, with an optional tooltip."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    title: str = ""
    stroke: str = ""
    opacity: float = 1.0


@dataclass(frozen=True)
class Line:
    """A straight line in pixels."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: str = "muted"
    width: float = 1.0
    dash: str = ""


@dataclass(frozen=True)
class Dot:
    """A circle in pixels; filled unless `hollow`."""

    x: float
    y: float
    radius: float
    fill: str
    hollow: bool = False
    title: str = ""


@dataclass(frozen=True)
class Text:
    """A line of text; y is its baseline."""

    x: float
    y: float
    text: str
    size: float = 12
    anchor: str = "start"
    fill: str = "ink"
    bold: bool = False
    halo: bool = False


Still = Boxes | Track | Rect | Line | Dot | Text


@dataclass(frozen=True)
class During:
    """Shapes shown during [start, stop) of an animation's loop, from 0 to 1.

    Attributes:
      kept: also show them if motion is disabled.
    """

    shapes: tuple[Still, ...]
    start: float
    stop: float
    kept: bool = False


@dataclass(frozen=True)
class Sweep:
    """A veil over later steps. Its left edge moves across the frame in `jumps` jumps during the
    first `part` of the loop. It is hidden for the rest of the loop, and if motion is disabled."""

    x: float
    y: float
    width: float
    height: float
    jumps: int
    part: float


Shape = Still | During | Sweep


@dataclass
class Picture:
    """Shapes in drawing order.

    Attributes:
      label: description for screen readers.
      data: attributes for the page's script, by name.
      seconds: duration of the animation's loop; 0 for a still picture.
    """

    width: int
    height: int
    label: str
    shapes: list[Shape] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, *shapes: Shape) -> None:
        """Draw on top of the existing shapes."""
        self.shapes += shapes


def text_width(text: str, size: float = 12) -> float:
    """Approximate width of a text, in pixels."""
    return 0.56 * size * len(text)


class Definitions:
    """Shapes shared by several pictures of a page, by their path."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def use(self, path: str) -> str:
        """The id of a path."""
        return self._ids.setdefault(path, f"d{len(self._ids)}")

    def svg(self) -> str:
        """The definitions, as an SVG element without size."""
        paths = "".join(
            f'<path id="{name}" vector-effect="non-scaling-stroke" d="{d}"/>'
            for d, name in self._ids.items()
        )
        return (
            f'<svg class="defs" width="0" height="0" aria-hidden="true"><defs>{paths}</defs></svg>'
        )


def svg(picture: Picture, definitions: Definitions | None = None, css_class: str = "") -> str:
    """A picture as SVG text.

    Args:
      definitions: shared definitions of the page that contains it; None: a separate file.
    """
    out = [_head(picture, definitions is None, css_class)]
    hatched = [shape for shape in picture.shapes if isinstance(shape, Boxes) and shape.hatched]
    hatches = {scale: k for k, scale in enumerate(dict.fromkeys(box.scale for box in hatched))}
    tag = f"h{picture.width}-{abs(hash_of(picture.label))}"
    for scale, k in hatches.items():
        out.append(_hatch(f"{tag}-{k}", scale))
    if picture.seconds:
        out.append(motion(picture.shapes, picture.seconds))
    for shape in picture.shapes:
        hatch = hatches.get(shape.scale) if isinstance(shape, Boxes) and shape.hatched else None
        pattern = "" if hatch is None else f"url(#{tag}-{hatch})"
        out.append(_WRITERS[type(shape)](shape, definitions, pattern))
    return "\n".join([*out, "</svg>"])


def hash_of(text: str) -> int:
    """A number for a text, the same in every process."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % 1_000_003
    return value


def _head(picture: Picture, alone: bool, css_class: str) -> str:
    wide, tall = picture.width, picture.height
    data = "".join(f' data-{k}="{escape(v)}"' for k, v in picture.data.items())
    named = f' class="{css_class}"' if css_class else ""
    size = f' width="{wide}" height="{tall}"' if alone else ""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}"{size}{named}{data} '
        f'role="img" aria-label="{escape(picture.label)}" font-family="{_FONT}">'
    )
    if not alone:
        return head
    paper = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    return f"{head}\n<style>{variables()}</style>\n{paper}"


def _hatch(name: str, scale: Scale) -> str:
    """Hatching over a path in data coordinates, not distorted by its scale."""
    sx, sy = 1 / scale.sx, 1 / scale.sy
    return (
        f'<defs><pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="scale({sx:.6g} {sy:.6g}) rotate(45)">'
        '<rect width="2" height="6" fill="var(--paper)" fill-opacity=".75"/></pattern></defs>'
    )


def _fill(name: str) -> str:
    return f"var(--{name})" if name in THEME else colour(name)


def _path(d: str, attributes: str, scale: Scale, definitions: Definitions | None) -> str:
    matrix = f"{scale.sx:.6g} 0 0 {scale.sy:.6g} {scale.x0:.6g} {scale.y0:.6g}"
    where = f'transform="matrix({matrix})" {attributes}'
    if definitions is None:
        return f'<path d="{d}" vector-effect="non-scaling-stroke" {where}/>'
    return f'<use href="#{definitions.use(d)}" {where}/>'


def _boxes(shape: Boxes, definitions: Definitions | None, pattern: str) -> str:
    d = "".join(f"M{x} {y}h{w}v{h}h{-w}z" for x, y, w, h in shape.rows)
    edge = 'stroke="var(--edge)" stroke-width=".5"' if shape.edged else ""
    out = _path(d, f'fill="{_fill(shape.fill)}" {edge}', shape.scale, definitions)
    return out + _path(d, f'fill="{pattern}"', shape.scale, definitions) if pattern else out


def _track(shape: Track, definitions: Definitions | None, pattern: str) -> str:
    d = "M" + "L".join(f"{x:g} {y:g}" for x, y in shape.points)
    dash = f' stroke-dasharray="{shape.dash}"' if shape.dash else ""
    look = f'fill="none" stroke="{_fill(shape.stroke)}" stroke-width="{shape.width:g}"{dash}'
    return _path(d, f'{look} stroke-linejoin="round"', shape.scale, definitions)


def _rect(shape: Rect, definitions: Definitions | None, pattern: str) -> str:
    stroke = f' stroke="{_fill(shape.stroke)}"' if shape.stroke else ""
    faint = f' fill-opacity="{shape.opacity:.3g}"' if shape.opacity < 1 else ""
    return (
        f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{max(0, shape.width):.1f}" '
        f'height="{max(0, shape.height):.1f}" fill="{_fill(shape.fill)}"{stroke}{faint}'
        f"{_closed('rect', shape.title)}"
    )


def _line(shape: Line, definitions: Definitions | None, pattern: str) -> str:
    dash = f' stroke-dasharray="{shape.dash}"' if shape.dash else ""
    return (
        f'<line x1="{shape.x1:.1f}" y1="{shape.y1:.1f}" x2="{shape.x2:.1f}" y2="{shape.y2:.1f}" '
        f'stroke="{_fill(shape.stroke)}" stroke-width="{shape.width:g}"{dash}/>'
    )


def _dot(shape: Dot, definitions: Definitions | None, pattern: str) -> str:
    fill = "none" if shape.hollow else _fill(shape.fill)
    edge = f'stroke="{_fill(shape.fill)}" stroke-width="2"' if shape.hollow else ""
    return (
        f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:g}" fill="{fill}" {edge}'
        f"{_closed('circle', shape.title)}"
    )


def _text(shape: Text, definitions: Definitions | None, pattern: str) -> str:
    look = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
    look += ' font-weight="600"' if shape.bold else ""
    if shape.halo:
        look += ' paint-order="stroke" stroke="var(--paper)" stroke-width="3" stroke-opacity=".8"'
    return (
        f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size:g}" '
        f'fill="{_fill(shape.fill)}"{look}>{escape(shape.text)}</text>'
    )


def _closed(tag: str, title: str) -> str:
    return f"><title>{escape(title)}</title></{tag}>" if title else "/>"


def motion(shapes: Sequence[Shape], seconds: float) -> str:
    """Style sheet that animates the shapes; it respects "prefers reduced motion"."""
    rules = {f"t{_parts(shape)}": _there(shape) for shape in shapes if isinstance(shape, During)}
    for shape in shapes:
        if isinstance(shape, Sweep):
            away = f"transform:translateX({shape.width:.1f}px)"
            timing = f"animation-timing-function:steps({shape.jumps},end)"
            rules["sweep"] = (
                f"0%{{transform:none;{timing}}}{100 * shape.part:.2f}%{{{away}}}100%{{{away}}}"
            )
    frames = "".join(f"@keyframes {name}{{{rule}}}" for name, rule in rules.items())
    named = "".join(f".{name}{{animation-name:{name}}}" for name in rules)
    return (
        f"<style>{frames}.moves{{animation:{seconds:g}s step-end infinite}}{named}"
        "@media(prefers-reduced-motion:reduce){.moves{animation:none}}</style>"
    )


def _parts(shape: During) -> str:
    return f"{10000 * shape.start:.0f}-{10000 * shape.stop:.0f}"


def _there(shape: During) -> str:
    first, last = f"{100 * shape.start:.2f}%", f"{100 * shape.stop:.2f}%"
    before = "0%{opacity:0}" if shape.start > 0 else ""
    after = f"{last}{{opacity:0}}100%{{opacity:0}}" if shape.stop < 1 else ""
    return f"{before}{first}{{opacity:1}}{after or '100%{opacity:1}'}"


def _during(shape: During, definitions: Definitions | None, pattern: str) -> str:
    inner = "".join(_WRITERS[type(item)](item, definitions, "") for item in shape.shapes)
    hidden = "" if shape.kept else ' opacity="0"'
    return f'<g class="moves t{_parts(shape)}"{hidden}>{inner}</g>'


def _sweep(shape: Sweep, definitions: Definitions | None, pattern: str) -> str:
    size = f'y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
    frame = f'<clipPath id="swept"><rect x="{shape.x:.1f}" {size}/></clipPath>'
    edge = Line(shape.x, shape.y, shape.x, shape.y + shape.height, "ink", 1.6)
    veil = f'<rect x="{shape.x:.1f}" {size} fill="var(--paper)" fill-opacity=".86"/>'
    return (
        f'<defs>{frame}</defs><g clip-path="url(#swept)"><g class="moves sweep" '
        f'style="transform:translateX({shape.width:.1f}px)">{veil}{_line(edge, None, "")}</g></g>'
    )


_WRITERS: dict[type, Callable[..., str]] = {
    Boxes: _boxes,
    Track: _track,
    Rect: _rect,
    Line: _line,
    Dot: _dot,
    Text: _text,
    During: _during,
    Sweep: _sweep,
}


def legend(
    picture: Picture, rows: Iterable[tuple[str, str]], x: float, y: float, right: float
) -> float:
    """Draw (colour, words) swatches, wrapped to the width; returns the y below them."""
    left = x
    for fill, words in rows:
        wide = 30 + text_width(words)
        if left > x and left + wide > right:
            left, y = x, y + 19
        picture.add(Rect(left, y - 10, 11, 11, fill), Text(left + 16, y, words, fill="muted"))
        left += wide
    return y + 19
