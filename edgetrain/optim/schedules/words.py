"""What the factor of a schedule is written in, float64: here for Python, by name for kernels."""

import math
from typing import NamedTuple


class At(NamedTuple):
    """Where a run is.

    Attributes:
      step, warmup, total: whole numbers; `step` counts from 0.
      done: the share of the run after warm-up that is done, from 0 to 1, of needs_total alone.
    """

    step: int
    warmup: int
    total: int
    done: float


def at(step: int, warmup: int, total: int) -> At:
    """Of a step behind warm-up."""
    return At(step, warmup, total, min(1.0, max(0, step - warmup) / max(1, total - warmup)))


def real(number: int) -> float:
    """A whole number as float64."""
    return float(number)


def power(base: float, exponent: int) -> float:
    """base ** exponent, a whole exponent >= 0."""
    return base**exponent


def root(number: float) -> float:
    """The square root."""
    return math.sqrt(number)


def cospi(turns: float) -> float:
    """cos(pi * turns) for turns in [0, 1]."""
    return math.cos(math.pi * turns)
