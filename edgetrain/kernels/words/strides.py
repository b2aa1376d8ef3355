"""Six-dimensional strides in declarations of kernels: names, checks of what they reach."""

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
