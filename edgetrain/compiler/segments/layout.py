"""Where time is in an array: the vocabulary of cutting along it.

A value that runs along `steps` steps of time is [outer, steps, inner] in row-major order, whatever
its shape; its layout is `inner`, the elements of one step. So [time, batch, features],
[batch, time, features] and [batch * time, features] are alike for every rule, and a view keeps its
layout. A part of it is [outer, count, inner].
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...ops.strides import prod


class Axis(NamedTuple):
    """The dimension of a shape that holds time: its size is before * steps * after."""

    place: int
    before: int
    after: int


class Span(NamedTuple):
    """Steps [start, start + length) of `steps`."""

    start: int
    length: int
    steps: int

    def of(self, size: int) -> int:
        """Elements of this part of a whole with `size` elements."""
        return size // self.steps * self.length


def axis_of(shape: Sequence[int], inner: int, steps: int) -> Axis | None:
    """The dimension that contains time; None if time is spread over several."""
    below = 1
    for index in range(len(shape) - 1, -1, -1):
        size = shape[index]
        if size % steps == 0 and inner % below == 0:
            after = inner // below
            if size % (steps * after) == 0:
                return Axis(index, size // (steps * after), after)
        below *= size
        if below > inner:
            return None
    return None


def inner_of(shape: Sequence[int], axis: Axis) -> int:
    """The layout of an array whose time is in the dimension `axis`."""
    return axis.after * prod(shape[axis.place + 1 :])


def part_shape(shape: Sequence[int], inner: int, span: Span) -> tuple[int, ...] | None:
    """The shape of a part; None if time is spread over several dimensions."""
    axis = axis_of(shape, inner, span.steps)
    if axis is None:
        return None
    return (*shape[: axis.place], span.of(shape[axis.place]), *shape[axis.place + 1 :])


class Move(NamedTuple):
    """One walk of a `copy`, as in ops/movement.py."""

    source: int
    xo: int
    yo: int
    dims: tuple[int, ...]
    xs: tuple[int, ...]
    ys: tuple[int, ...]

    def turned(self) -> "Move":
        """The walk with its two sides exchanged."""
        return Move(self.source, self.yo, self.xo, self.dims, self.ys, self.xs)


def unfold(move: Move, inner: int, steps: int) -> tuple[Move, int] | None:
    """The same walk with all of time as a separate dimension, by the layout of its y.

    Returns:
      The walk and that dimension; None if it covers only part of time, or in another order.
    """
    dims, xs, ys = list(move.dims), list(move.xs), list(move.ys)
    axis = None
    for k, (size, x, y) in enumerate(zip(dims, xs, ys, strict=True)):
        if size == 1 or y <= 0 or inner % y or size % (steps * (inner // y)):
            continue
        after = inner // y
        before = size // (steps * after)
        dims[k : k + 1] = [before, steps, after]
        xs[k : k + 1] = [steps * after * x, after * x, x]
        ys[k : k + 1] = [steps * inner, inner, y]
        axis = k + 1
        break
    if axis is None or move.yo // inner % steps:
        return None
    within = sum((d - 1) * s for d, s in zip(dims, ys, strict=True) if d > 1 and abs(s) < inner)
    if move.yo % inner + within >= inner or not _apart(dims, ys, axis, inner, steps):
        return None
    return Move(move.source, move.xo, move.yo, tuple(dims), tuple(xs), tuple(ys)), axis


def _apart(dims: Sequence[int], strides: Sequence[int], axis: int, inner: int, steps: int) -> bool:
    """Whether every dimension but `at` stays inside a step or strides over whole sequences."""
    pairs = [(d, s) for k, (d, s) in enumerate(zip(dims, strides, strict=True)) if k != axis]
    return all(
        d == 1 or (s >= 0 and s * (d - 1) < inner) or s % (steps * inner) == 0 for d, s in pairs
    )


def source_inner(move: Move, axis: int, steps: int) -> int | None:
    """The layout of a walk's source, whose time is the dimension `at`; None if it has no layout."""
    inner = move.xs[axis]
    if inner <= 0 or move.xo // inner % steps:
        return None
    within = sum(
        (d - 1) * s for d, s in zip(move.dims, move.xs, strict=True) if d > 1 and 0 < s < inner
    )
    fits = move.xo % inner + within < inner and _apart(move.dims, move.xs, axis, inner, steps)
    return inner if fits else None


def part_side(offset: int, strides: Sequence[int], axis: int, inner: int, span: Span):
    """Offset and strides of one side of a walk after its array is replaced by a part of it."""
    old_stride, new_stride = span.steps * inner, span.length * inner
    moved = tuple(
        s if k == axis or abs(s) < inner or s % old_stride else s // old_stride * new_stride
        for k, s in enumerate(strides)
    )
    return offset // old_stride * new_stride + offset % inner, moved
