"""Six-dimensional strides in declarations of kernels, and their shortest equivalent form.

Knows no numba: the compiler calls `collapse` when it writes an instruction.
"""

from collections.abc import Sequence

DIMS = 6


def names(prefix: str) -> str:
    """The integers `prefix0 ... prefix5` of a declaration."""
    return " ".join(f"{prefix}{k}" for k in range(DIMS))


def product(prefix: str) -> str:
    """Expression: the number of elements of dimensions `prefix0 ... prefix5`."""
    return "*".join(f"{prefix}{k}" for k in range(DIMS))


def positive(prefix: str) -> str:
    """Check: every dimension is at least 1."""
    return f"min({names(prefix).replace(' ', ', ')}) > 0"


def reach(n: str, *pairs: tuple[str, str], origin: str = "0") -> str:
    """Checks that every index origin + sum(i * stride), 0 <= i < dim, lies in [0, n).

    Args:
      pairs: prefixes of dimensions and of their strides; strides may be negative.
    """
    moves = [f"({d}{k}-1)*{s}{k}" for d, s in pairs for k in range(DIMS)]
    low = "+".join(f"min(0, {move})" for move in moves)
    high = "+".join(f"max(0, {move})" for move in moves)
    return f"{origin}+{low} >= 0;{origin}+{high} < {n}"


def collapse(
    dims: Sequence[int], *strides: Sequence[int]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Drop dimensions of 1, merge neighbours that are one run for every operand, pad to six.

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
    if len(out) > DIMS:
        raise ValueError(f"{len(out)} dimensions remain of {tuple(dims)}; kernels take {DIMS}")
    pad = DIMS - len(out)
    sizes = (1,) * pad + tuple(d for d, _ in out)
    return sizes, [(0,) * pad + tuple(s[k] for _, s in out) for k in range(len(strides))]
