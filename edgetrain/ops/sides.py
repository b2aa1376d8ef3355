"""Kinks of activations: rounding a value saved for backward must not cross one."""

from dataclasses import dataclass

from ..kernels.elementwise.formulas import ONE_KINK, TWO_KINKS, Row


@dataclass(frozen=True, slots=True)
class Sides:
    """Operands of `pack_sides` that describe an activation (kernels/blocks/saved.py).

    Attributes:
      x: the value with these kinks, [n, c, ...]; "": the value that the node reads.
      affine: statistics, scale and shift of a norm before the activation; "" if absent.
      act: code of a function with the same kinks, at 0 or at lo and hi.
    """

    x: str
    affine: tuple[str, str, str]
    act: int
    lo: float = 0.0
    hi: float = 0.0


def sides_of(
    row: Row | None, a: float, b: float, x: str = "", affine: tuple[str, str, str] = ("", "", "")
) -> Sides | None:
    """The kinks of a function with parameters a and b; None if it has none."""
    points = sorted(row.kinks(a, b)) if row else []  # a parameter's sign may reverse them
    if not points:
        return None
    if points == [0.0]:
        return Sides(x, affine, ONE_KINK)
    return Sides(x, affine, TWO_KINKS, points[0], points[-1])
