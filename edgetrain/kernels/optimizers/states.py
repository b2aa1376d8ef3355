"""Optimizer state per weight: its kinds, and the random numbers that round it."""

from typing import NamedTuple

# Kinds of state. Short formats hold a moment times a power of two, because moments are as small as
# gradients (state.py), and a square as its root; anything else is stored unchanged.
MOMENT, SQUARE, PLAIN = "moment", "square", "plain"
# Streams of the random numbers that round states, different from the weight's.
FIRST, SECOND, THIRD, FOURTH = 0x51ED270B, 0x2545F491, 0x1B873593, 0x7F4A7C15
CHUNKS = 64  # partial sums of each sum over a weight


class State(NamedTuple):
    """A number that an optimizer keeps for each weight; initially 0.

    Attributes:
      tag: suffix of its name, after the weight's.
      operand: its name as an operand of the kernels.
      kind: MOMENT, SQUARE or PLAIN.
      stream: of its random numbers, different for each state.
      optional: not all hyperparameters need it; if absent, it reads as 0 and is not stored.
    """

    tag: str
    operand: str
    kind: str
    stream: int
    optional: bool = False
