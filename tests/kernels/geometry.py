"""Turns numpy shapes into the dims and strides that kernel declarations take."""

import math
from collections.abc import Sequence

from hypothesis import strategies as st


def dense(shape) -> list[int]:
    """Return the strides of a dense array, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def broadcast(shape, dims) -> list[int]:
    """Strides for iterating a dense array of `shape` over `dims`; 0 on broadcast axes."""
    return [0 if s == 1 else stride for s, stride in zip(shape, dense(shape), strict=True)]


def collapse(
    dims: Sequence[int], *strides: Sequence[int]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Drop axes of size 1, merge axes that are contiguous in every operand, and pad to six.

    Args:
      dims: extents, row-major order of the iteration.
      strides: one sequence for each operand, in elements, as long as `dims`.
    Returns:
      Six dims and six strides for each operand; the innermost comes last, padding is (1, 0).
    Raises:
      ValueError: more than six dimensions remain.
    """
    out: list[tuple[int, tuple[int, ...]]] = []
    for axis, d in enumerate(dims):
        steps = tuple(s[axis] for s in strides)
        if d == 1:
            continue
        if out and all(outer == inner * d for outer, inner in zip(out[-1][1], steps, strict=True)):
            out[-1] = (out[-1][0] * d, steps)
        else:
            out.append((d, steps))
    if len(out) > 6:
        raise ValueError(f"{len(out)} dimensions remain of {tuple(dims)}; kernels take 6")
    pad = 6 - len(out)
    sizes = (1,) * pad + tuple(d for d, _ in out)
    return sizes, [(0,) * pad + tuple(s[k] for _, s in out) for k in range(len(strides))]


def integers(prefixes, dims, *strides) -> dict[str, int]:
    """Return collapsed dims and strides (in that order) as operands `prefix0 ... prefix5`."""
    sizes, steps = collapse(dims, *strides)
    rows = zip(prefixes, (sizes, *steps), strict=True)
    return {f"{prefix}{k}": row[k] for prefix, row in rows for k in range(6)}


@st.composite
def masked_shapes(draw, masks: int = 1, largest: int = 9):
    """Draw a shape of 1 to 6 dims, sometimes with one long axis, and `masks` tuples of booleans."""
    rank = draw(st.integers(1, 6))
    shape = [draw(st.integers(1, largest if rank < 4 else 4)) for _ in range(rank)]
    if draw(st.booleans()):
        shape[draw(st.integers(0, rank - 1))] = draw(st.sampled_from([16, 31, 64, 300]))
    flags = [tuple(draw(st.booleans()) for _ in shape) for _ in range(masks)]
    return tuple(shape), *flags
