"""The file between the two halves: the Program, its container, the account of its bytes.

The compiler writes it and the runtime reads it; neither imports the other.
"""

from .account import Account
from .program import KIND, MOVE, TAPES, VERSION, Program, read_program
from .sets import TARGET, WEIGHT, WEIGHTS, Slot, TapeSet

__all__ = [
    "KIND",
    "MOVE",
    "TAPES",
    "TARGET",
    "VERSION",
    "WEIGHT",
    "WEIGHTS",
    "Account",
    "Program",
    "Slot",
    "TapeSet",
    "read_program",
]
