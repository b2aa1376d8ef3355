"""Data of an arena chart: values by step and address. Independent of plans and Programs."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import printable

MOST_BOXES = 10_000  # per picture; the smallest beyond it are left out, and counted
MOST_STEPS = 10_000  # columns per picture; with longer tapes, a column is several steps
MOST_NAME = 120  # characters
_PLAIN = ("model", "program")  # uninformative names


@dataclass(frozen=True, slots=True)
class Box:
    """The lifetime of a value: steps [start, stop), bytes [offset, offset + nbytes).

    Attributes:
      kind: kind in the memory account.
      module: the torch module it belongs to, or "".
      again: recomputed.
    """

    start: int
    stop: int
    offset: int
    nbytes: int
    kind: str
    name: str
    module: str = ""
    again: bool = False

    @property
    def area(self) -> int:
        return (self.stop - self.start) * self.nbytes


@dataclass(frozen=True, slots=True)
class Phase:
    """A run of steps [start, stop): inputs, forward, loss, backward, recompute, update."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Arena:
    """An arena over the steps of one microbatch and the update.

    Attributes:
      steps: name of each step.
      live: live bytes in each step.
      budget: bytes, or None.
      left_out: number of boxes that are too small to draw.
      repeats: microbatches per update.
      each: steps per column; everything else counts columns.
    """

    title: str
    nbytes: int
    boxes: tuple[Box, ...]
    steps: tuple[str, ...]
    phases: tuple[Phase, ...] = ()
    live: tuple[int, ...] = ()
    budget: int | None = None
    left_out: int = 0
    repeats: int = 1
    kinds: tuple[str, ...] = ()
    each: int = 1

    @property
    def peak(self) -> tuple[int, int]:
        """(step, bytes) of the peak of live bytes."""
        if not self.live:
            return 0, 0
        step = max(range(len(self.live)), key=self.live.__getitem__)
        return step, self.live[step]

    def at(self, step: int) -> list[Box]:
        """Values live in a step, largest first."""
        result = [box for box in self.boxes if box.start <= step < box.stop]
        return sorted(result, key=lambda box: -box.nbytes)


def make_arena(
    title: str,
    boxes: Sequence[Box],
    steps: Sequence[str],
    *,
    nbytes: int | None = None,
    phases: Sequence[Phase] = (),
    live: Sequence[int] = (),
    budget: int | None = None,
    repeats: int = 1,
) -> Arena:
    """An arena whose chart is limited in time and bytes, whatever the model.

    Args:
      nbytes: size of the arena; None: the end of the highest box.
      live: live bytes per step; empty: computed from the boxes.
      repeats: microbatches per update.
    """
    drawn = [_clean(box) for box in boxes if box.stop > box.start and box.nbytes > 0]
    height = max((box.offset + box.nbytes for box in drawn), default=1)
    counted = tuple(live) or live_bytes(drawn, len(steps))
    each = max(1, -(-len(steps) // MOST_STEPS))
    if each > 1:
        drawn = [replace(b, start=b.start // each, stop=-(-b.stop // each)) for b in drawn]
        phases = [replace(p, start=p.start // each, stop=-(-p.stop // each)) for p in phases]
        counted = tuple(max(counted[k : k + each]) for k in range(0, len(counted), each))
        steps = steps[::each]
    kept = drawn
    if len(drawn) > MOST_BOXES:
        order = sorted(range(len(drawn)), key=lambda k: -drawn[k].area)[:MOST_BOXES]
        kept = [drawn[k] for k in sorted(order)]
    return Arena(
        clean(title),
        nbytes or height,
        tuple(kept),
        tuple(clean(name) for name in steps),
        tuple(phases),
        counted,
        budget,
        len(drawn) - len(kept),
        repeats,
        tuple(dict.fromkeys(box.kind for box in drawn)),
        each,
    )


def live_bytes(boxes: Sequence[Box], steps: int) -> tuple[int, ...]:
    """Bytes covered by boxes in each step; overlapping boxes count once."""
    change = np.zeros(steps + 1, np.int64)
    for box in boxes:
        change[min(box.start, steps)] += box.nbytes
        change[min(box.stop, steps)] -= box.nbytes
    return tuple(np.cumsum(change)[:-1].tolist())


def _clean(box: Box) -> Box:
    name, module = clean(box.name), clean(box.module)
    if (name, module) == (box.name, box.module):
        return box
    return replace(box, name=name, module=module)


def escape(text: str) -> str:
    """Escape a text for HTML and SVG."""
    return html.escape(printable(text, kept="\n"))


def clean(text: str) -> str:
    """Make a name from a file printable: no control characters, limited length."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return shown if len(shown) <= MOST_NAME else shown[: MOST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"


def title_of(path: str | Path) -> str:
    """Title for a model file or run directory: `digits/model.onnx` gives digits."""
    path = Path(path)
    return path.parent.name if path.stem in _PLAIN and path.parent.name else path.stem


def module_of(node: str) -> str:
    """The torch module in an ONNX node's name: `block1/conv/Conv` is `block1.conv`."""
    parts = [part for part in node.split("/") if part]
    return ".".join(parts[:-1])
