"""GridSample: values at computed positions of the input (spatial transformers). Saved: the taps.

Positions are float32 whatever the precision. Each output is a weighted sum of neighbouring values,
called taps: one along each axis for nearest, two for linear, four for cubic.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from .composed import Nodes
from .integers import EXACT
from .onnx_ops import OnnxNode, images, onnx_rule
from .strides import contiguous, prod

_OLD = {"bilinear": "linear", "bicubic": "cubic"}  # modes up to opset 19
_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75  # coefficient of Keys 1981, as in torch and onnxruntime


class _Tap(NamedTuple):
    """Names of an index that is in range, and of its weight ("": 1)."""

    row: str
    weight: str


class _Positions(Nodes):
    """Nodes that compute positions, indices and weights along the axes of the input."""

    def __init__(self, context, node: OnnxNode, corners: bool, padding: str) -> None:
        super().__init__(context, node)
        self._corners, self._padding, self._count = corners, padding, 0

    def made(self, op: str, *inputs: str | float, **attrs) -> str:
        """Add a node without a name of its own; numbers become constants."""
        self._count += 1
        names = [
            value
            if isinstance(value, str)
            else self.constant(f"number{self._count}.{k}", np.float32(value))
            for k, value in enumerate(inputs)
        ]
        return self.add(f"made{self._count}", op, names, **attrs)

    def scaled(self, position: str, size: int) -> str:
        """Positions from -1 to 1 as multiples of elements."""
        factor = (size - 1) / 2 if self._corners else size / 2
        return self.made("Add", self.made("Mul", position, factor), (size - 1) / 2)

    def padded(self, position: str, size: int) -> str:
        """The position, moved into the input unless outside is zero."""
        if self._padding == "reflection":
            position = self._reflected(position, size)
        return position if self._padding == "zeros" else self._clipped(position, size)

    def _clipped(self, position: str, size: int) -> str:
        """Like torch, positions on the border have no gradient."""
        last = float(size - 1)
        above = self.made("Greater", position, 0.0)
        inside = self.made("And", above, self.made("Less", position, last))
        outside = self.made("Where", above, last, 0.0)
        return self.made("Where", inside, position, outside)

    def _reflected(self, position: str, size: int) -> str:
        first, span = (0.0, float(size - 1)) if self._corners else (-0.5, float(size))
        if span == 0:
            return self.made("Mul", position, 0.0)
        distance = self.made("Abs", self.made("Sub", position, first))
        turns = self.made("Floor", self.made("Div", distance, span))
        rest = self.made("Sub", distance, self.made("Mul", turns, span))
        whole = self.made("Mul", self.made("Floor", self.made("Mul", turns, 0.5)), 2.0)
        odd = self.made("Sub", turns, whole)
        back = self.made("Mul", odd, self.made("Sub", span, self.made("Mul", rest, 2.0)))
        return self.made("Add", self.made("Add", rest, back), first)

    def tap(self, index: str, weight: str, size: int) -> _Tap:
        """A tap at an index that may be outside or NaN; outside, it is zero."""
        first, last = (
            self.made("GreaterOrEqual", index, 0.0),
            self.made("LessOrEqual", index, float(size - 1)),
        )
        valid = self.made("And", first, last)
        index = self.made("Where", valid, index, 0.0)
        if self._padding == "zeros":
            known = self.made("Cast", valid, to=1)
            weight = self.made("Mul", weight, known) if weight else known
        return _Tap(index, weight)

    def taps(self, position: str, size: int, mode: str) -> list[_Tap]:
        """The taps along an axis for positions in elements."""
        if mode == "nearest":
            return [self.tap(self.made("Round", self.padded(position, size)), "", size)]
        if mode == "linear":
            position = self.padded(position, size)
            low = self.made("Floor", position)
            share = self.made("Sub", position, low)
            weights = [self.made("Sub", 1.0, share), share]
            return [self.tap(self.made("Add", low, float(k)), weights[k], size) for k in range(2)]
        low = self.made("Floor", position)
        share = self.made("Sub", position, low)
        places = [self.padded(self.made("Add", low, float(k - 1)), size) for k in range(4)]
        weights = self._cubic(share)
        return [self.tap(place, weights[k], size) for k, place in enumerate(places)]

    def _cubic(self, share: str) -> list[str]:
        """Weights of the elements from one before a position to two after it."""
        rest, a = self.made("Sub", 1.0, share), _CUBIC

        def near(x: str) -> str:  # ((a + 2) x - (a + 3)) x^2 + 1
            line = self.made("Add", self.made("Mul", x, a + 2), -(a + 3))
            return self.made("Add", self.made("Mul", self.made("Mul", x, x), line), 1.0)

        def far(x: str) -> str:  # of x + 1: ((a x - 2 a) x + a) x, for x from 0 to 1
            line = self.made("Add", self.made("Mul", x, a), -2 * a)
            return self.made("Mul", self.made("Add", self.made("Mul", line, x), a), x)

        return [far(share), near(share), near(rest), far(rest)]


def _sizes(node: OnnxNode, x: Sequence[int], grid: Sequence[int]) -> tuple[int, ...]:
    """Spatial sizes of the input."""
    rank = len(x) - 2
    if rank not in (1, 2, 3) or len(grid) != rank + 2 or grid[-1] != rank or grid[0] != x[0]:
        raise node.fail(
            f"a grid of shape {list(grid)} for input {list(x)}",
            "[samples, channels, ...] and [samples, ..., axes] with as many axes",
        )
    return tuple(x[2:])


@onnx_rule("GridSample", joined=images)
def grid_sample(context, node) -> None:
    """y[n, c, ...] = x[n, c] at the position grid[n, ...], which names the last axis first."""
    x, grid = context.value(node, 0), context.value(node, 1)
    sizes, mode = _sizes(node, x.shape, grid.shape), str(node.attrs.get("mode", "linear"))
    mode = _OLD.get(mode, mode)
    padding = str(node.attrs.get("padding_mode", "zeros"))
    if mode not in _MODES or padding not in _PADDINGS:
        raise node.fail(
            f"mode {mode!r}, padding_mode {padding!r}",
            f"one of {', '.join(_MODES)} and one of {', '.join(_PADDINGS)}",
        )
    if prod(sizes) > EXACT:
        raise node.fail(f"the input has {prod(sizes)} positions", f"at most {EXACT}")
    samples, channels, made = x.shape[0], x.shape[1], grid.shape[1:-1]
    count, rank = prod(made), len(sizes)
    positions = _Positions(context, node, bool(node.attrs.get("align_corners", 0)), padding)
    taps = []
    flat = positions.constant("flat", [samples, count])
    for axis, size in enumerate(sizes):
        which = positions.constant(f"at{axis}", rank - 1 - axis)
        along = positions.add(f"along{axis}", "Gather", [node.inputs[1], which], axis=-1)
        line = positions.made("Reshape", along, flat)
        taps.append(positions.taps(positions.scaled(line, size), size, mode))
    corners = [_corner(positions, corner, sizes) for corner in product(*taps)]
    column = positions.constant("column", [samples, count, 1])
    rows = [positions.made("Cast", c.row, to=7) for c in corners]
    indices = [positions.made("Reshape", row, column) for row in rows]
    weights = [positions.made("Reshape", c.weight, column) if c.weight else "" for c in corners]
    with context.in_float32():
        positions.run(*indices, *filter(None, weights))

    nodes = Nodes(context, node)
    last = nodes.add(
        "channels last", "Transpose", [node.inputs[0]], perm=[0, *range(2, rank + 2), 1]
    )
    shape = nodes.constant("rows", [samples, prod(sizes), channels])
    table = nodes.add("by position", "Reshape", [last, shape])
    total = ""
    for k, (index, weight) in enumerate(zip(indices, weights, strict=True)):
        term = nodes.add(f"tap{k}", "GatherND", [table, index], batch_dims=1)
        term = nodes.add(f"term{k}", "Mul", [term, weight]) if weight else term
        total = nodes.add(f"sum{k}", "Add", [total, term]) if total else term
    total = nodes.add("channels first", "Transpose", [total], perm=[0, 2, 1])
    nodes.add("", "Reshape", [total, nodes.constant("shape", [samples, channels, *made])])
    nodes.run()


def _corner(positions: _Positions, taps: Sequence[_Tap], sizes: Sequence[int]) -> _Tap:
    """The element at one tap along each axis, by its row number."""
    result = _Tap("", "")
    for tap, step in zip(taps, contiguous(sizes), strict=True):
        index = positions.made("Mul", tap.row, float(step)) if step > 1 else tap.row
        index = positions.made("Add", result.row, index) if result.row else index
        both = result.weight and tap.weight
        weight = positions.made("Mul", result.weight, tap.weight) if both else ""
        result = _Tap(index, weight or result.weight or tap.weight)
    return result
