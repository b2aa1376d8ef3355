"""Walks over some time steps of a value in parts: the last state, a range, reversed time."""

from collections.abc import Sequence

from .layout import Move, Span, part_side


def picked(move: Move, inner: int, spans: Sequence[Span]) -> list[tuple[Span, Move]] | None:
    """Split a walk of a `copy` into one walk for each part that it reads.

    Args:
      inner: layout of its source.
    Returns:
      None if the walk does not go through time in equal steps.
    """
    steps = spans[0].steps
    if 0 in move.dims:
        return None
    unfolded = _one_time(move, inner, steps)
    if unfolded is None:
        return None
    walk, axis = unfolded
    first = walk.xo // inner % steps
    pace = walk.xs[axis] // inner if axis >= 0 else 0
    count = walk.dims[axis] if axis >= 0 else 1
    if not 0 <= first + pace * (count - 1) < steps:
        return None
    result = []
    for span in spans:
        taken = [k for k in range(count) if 0 <= first + pace * k - span.start < span.length]
        if not taken:
            continue
        begin = taken[0]
        step = first + pace * begin
        xo, xs = part_side(walk.xo - walk.xo // inner % steps * inner, walk.xs, axis, inner, span)
        dims, yo = walk.dims, walk.yo
        if axis >= 0:
            dims = (*dims[:axis], len(taken), *dims[axis + 1 :])
            yo += begin * walk.ys[axis]
        own = Move(walk.source, xo + (step - span.start) * inner, yo, dims, xs, walk.ys)
        result.append((span, own))
    return result


def _one_time(move: Move, inner: int, steps: int) -> tuple[Move, int] | None:
    """The walk with at most one dimension through time, and that dimension, or -1."""
    dims, xs, ys = list(move.dims), list(move.xs), list(move.ys)
    stride = steps * inner
    for k, (size, x, y) in enumerate(zip(dims, xs, ys, strict=True)):
        if 0 < x < inner and inner % x == 0 and x * size > inner:
            after = inner // x  # a dimension that contains time and more: split it
            rest = size // after
            if size % after:
                return None
            count = min(rest, steps)
            if rest % count:
                return None
            dims[k : k + 1] = [rest // count, count, after]
            xs[k : k + 1] = [stride, inner, x]
            ys[k : k + 1] = [count * after * y, after * y, y]
            break
        if x == inner and size > steps and size % steps == 0:
            dims[k : k + 1] = [size // steps, steps]
            xs[k : k + 1] = [stride, inner]
            ys[k : k + 1] = [steps * y, y]
            break
    axis, within = -1, move.xo % inner
    for k, (size, x) in enumerate(zip(dims, xs, strict=True)):
        if size == 1 or x % stride == 0:
            continue
        if x % inner == 0 and axis < 0:
            axis = k
        elif x > 0 and x * (size - 1) < inner:
            within += x * (size - 1)
        else:
            return None
    if within >= inner:
        return None
    return Move(move.source, move.xo, move.yo, tuple(dims), tuple(xs), tuple(ys)), axis
