"""The file shared by compiler and runtime: the Program, its container and its memory account.

The compiler writes it and the runtime reads it; neither imports the other.
"""

from .account import Account
from .fields import VERSION
from .program import KIND, MOVE, TAPES, Program, read_program
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
