"""What an optimizer keeps of each weight: in what form, rounded by which random numbers."""

from typing import NamedTuple

# Kinds of state. Short formats hold a moment times a power of two, for it is as small as gradients
# (state.py), of a square its root; anything else is stored as it is.
MOMENT, SQUARE, PLAIN = "moment", "square", "plain"
# Streams of the random numbers by which states are rounded, apart from the weight's.
FIRST, SECOND, THIRD, FOURTH = 0x51ED270B, 0x2545F491, 0x1B873593, 0x7F4A7C15
CHUNKS = 64  # of each sum over a weight


class State(NamedTuple):
    """A number that an optimizer keeps of each weight; 0 at first.

    Attributes:
      tag: what ends its name, behind the weight's.
      operand: of the kernels.
      kind: MOMENT, SQUARE or PLAIN.
      stream: of its random numbers, another for each state.
      optional: not all hyperparameters need it; absent, it reads as 0 and is not stored.
    """

    tag: str
    operand: str
    kind: str
    stream: int
    optional: bool = False
