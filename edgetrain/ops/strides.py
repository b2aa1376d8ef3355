"""Index arithmetic shared by op families: strides, broadcasting, merging dimensions."""

import math
from collections.abc import Sequence
from typing import Any

from ..errors import ModelError

MAX_DIMS = 6


def contiguous(shape: Sequence[int]) -> list[int]:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * shape[k + 1]
    return strides


def broadcast(shape: Sequence[int], to: Sequence[int]) -> list[int]:
    """Strides to read a row-major array of `shape` as if it had shape `to`."""
    strides = [0] * (len(to) - len(shape)) + contiguous(shape)
    padded = [1] * (len(to) - len(shape)) + list(shape)
    return [0 if size == 1 else stride for size, stride in zip(padded, strides, strict=True)]


def merged(dims: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], ...]:
    """The same traversal without dimensions of size 1 and with contiguous neighbours merged.

    Raises:
      ModelError: more than MAX_DIMS dimensions remain.
    """
    out: list[tuple[int, ...]] = []
    for size, *steps in zip(dims, *strides, strict=True):
        if size == 1:
            continue
        if out and all(
            previous == step * size for previous, step in zip(out[-1][1:], steps, strict=True)
        ):
            out[-1] = (out[-1][0] * size, *steps)
        else:
            out.append((size, *steps))
    if len(out) > MAX_DIMS:
        raise ModelError(
            f"dimensions {list(dims)}: {len(out)} remain when merged; expected at most {MAX_DIMS}."
        )
    pad = [(1, *[0] * len(strides))] * (MAX_DIMS - len(out))
    return tuple(list(column) for column in zip(*pad, *out, strict=True))


Move = tuple[int, int, int, Sequence[int], Sequence[int], Sequence[int]]  # see Copy


def permuted(shape: Sequence[int], perm: Sequence[int]) -> tuple[list[int], tuple[Move, ...]]:
    """The permuted shape, and the moves of the copy."""
    to, strides = [shape[p] for p in perm], contiguous(shape)
    return to, ((0, 0, 0, to, [strides[p] for p in perm], contiguous(to)),)


def joined(shapes: Sequence[Sequence[int]], axis: int) -> tuple[list[int], tuple[Move, ...]]:
    """The shape of concatenated arrays, and the moves of the copy."""
    to = list(shapes[0])
    to[axis] = sum(shape[axis] for shape in shapes)
    strides, start, moves = contiguous(to), 0, []
    for index, shape in enumerate(shapes):
        moves.append((index, 0, start * strides[axis], shape, contiguous(shape), strides))
        start += shape[axis]
    return to, tuple(moves)


def spread(shape: Sequence[int], to: Sequence[int], scale: float = 1.0) -> dict[str, Any]:
    """Operands of `copy` that broadcast x of `shape` to y, times `scale`."""
    dims, xs, ys = merged(to, broadcast(shape, to), contiguous(to))
    walk = {"d": dims, "xs": xs, "ys": ys, "xo": 0, "yo": 0}
    return walk | {"nx": prod(shape), "ny": prod(to), "scale": scale}


def channels(values, attrs) -> dict[str, int]:
    """Samples n, channels c and elements per channel s of x [n, c, ...]."""
    shape = values["x"].shape
    return {"n": shape[0], "c": shape[1], "s": prod(shape[2:])}


def prod(numbers: Sequence[int]) -> int:
    """The product of the sizes; 1 if empty."""
    return math.prod(numbers)
