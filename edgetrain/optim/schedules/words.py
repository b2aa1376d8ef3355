"""Float64 functions for schedule factors: defined here for Python, mapped by name in kernels."""

import math
from typing import NamedTuple

FUNCTIONS = ("real", "power", "root", "cospi")


OF_LENGTH = ("total", "done")  # of an `At`: what a run without a length lacks


class At(NamedTuple):
    """The position in a run.

    Attributes:
      step, warmup, total: integers; `step` counts from 0.
      done: completed fraction of the run after warm-up, from 0 to 1; only for needs_total.
    """

    step: int
    warmup: int
    total: int
    done: float


def at(step: int, warmup: int, total: int) -> At:
    """The position of a step after warm-up."""
    return At(step, warmup, total, min(1.0, max(0, step - warmup) / max(1, total - warmup)))


def real(number: int) -> float:
    """An integer of at most 31 bits as float64; convert factors before they are multiplied."""
    return float(number)


def power(base: float, exponent: int) -> float:
    """base ** exponent, for an integer exponent; 1 if it is below 0."""
    return base ** max(0, exponent)


def root(number: float) -> float:
    """The square root."""
    return math.sqrt(number)


def cospi(turns: float) -> float:
    """cos(pi * turns) for turns in [0, 1]."""
    return math.cos(math.pi * turns)
