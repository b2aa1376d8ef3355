"""Six-dimensional strides and windows in declarations of kernels: names, checks of their reach."""

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


def distinct(n: str, *prefixes: str) -> str:
    """Check: positions of these dimensions are at most n, as they are where no two coincide."""
    return f"{'*'.join(product(prefix) for prefix in prefixes)} <= {n}"


def reach(n: str, *pairs: tuple[str, str], origin: str = "0") -> str:
    """Checks that every index origin + sum(i * stride), 0 <= i < dim, lies in [0, n).

    Args:
      pairs: prefixes of dimensions and of their strides; strides may be negative.
    """
    moves = [f"({d}{k}-1)*{s}{k}" for d, s in pairs for k in range(DIMS)]
    low = "+".join(f"min(0, {move})" for move in moves)
    high = "+".join(f"max(0, {move})" for move in moves)
    return f"{origin}+{low} >= 0;{origin}+{high} < {n}"


def windows(dh: str, dw: str) -> str:
    """Checks that windows (oh, kh, sh, ph and the same of columns) keep to an image of h rows.

    Rows and columns of padding at the far side are not among the integers: as many as 16 images are
    allowed. Without these, steps and windows that touch nothing could make loops long.

    Args:
      dh, dw: expressions of the dilations.
    """
    checks = []
    for size, out, taps, stride, before, apart in (
        ("h", "oh", "kh", "sh", "ph", dh),
        ("wd", "ow", "kw", "sw", "pw", dw),
    ):
        reach = f"({taps}-1)*{apart}"
        checks += [
            f"({out}-1)*{stride} <= 16*({size}+{before}+{reach})",
            f"{stride} <= 16*({size}+{before}+{reach}+1)",
            f"{reach} <= 16*({size}+{before})",
        ]
    return ";".join(checks)
