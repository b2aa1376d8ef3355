"""A loop for the tests of compiling and caching loops."""

from typing import NamedTuple

from edgetrain.kernels.loops.kinds import Ints


class Numbers(NamedTuple):
    """Values to double, and a weight."""

    values: Ints
    weight: float


class Sums(NamedTuple):
    """Sums of the doubled values, plain and weighted."""

    plain: int
    weighted: float


def doubled(numbers: Numbers, factor: int) -> Sums:
    """Multiply the values in place."""
    total = 0
    for k in range(numbers.values.size):
        numbers.values[k] *= factor
        total += numbers.values[k]
    return Sums(total, total * numbers.weight)
