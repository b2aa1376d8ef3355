"""Objects of the planner's loops: their text (text.py) through LLVM.

Imported only where one has to be compiled. Numba would make the same text, in ten times the time.
"""

from collections.abc import Mapping

from ..cache.processor import Target
from ..emission.objects import LOOPS, emit_object
from .kinds import Entry
from .text import text_of


def object_of(entries: Mapping[str, Entry], target: Target) -> bytes:
    """One object with the entries by symbol; what they share is in it once.

    Helpers stay functions unless they are small, loops stay as they are written.
    """
    return emit_object(text_of(entries), target, LOOPS)
