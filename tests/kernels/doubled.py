"""A loop for tests of how loops are compiled and kept."""

from typing import NamedTuple

from edgetrain.kernels.loops.kinds import Ints


class Numbers(NamedTuple):
    """What is doubled, and a weight."""

    values: Ints
    weight: float


class Sums(NamedTuple):
    """Of the doubled numbers, as they are and weighted."""

    plain: int
    weighted: float


def doubled(numbers: Numbers, factor: int) -> Sums:
    """Multiply the values in place."""
    total = 0
    for k in range(numbers.values.size):
        numbers.values[k] *= factor
        total += numbers.values[k]
    return Sums(total, total * numbers.weight)
