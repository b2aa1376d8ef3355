"""The one allocation: exactly the planned bytes, zeroed, with pages around it that fault."""

import ctypes
import mmap
import os

import numpy as np

from ..errors import ProgramError, RunError
from ..formats import FORMATS
from ..program import Program, Slot

_PAGE = mmap.PAGESIZE
_PROT_NONE = 0


class Arena:
    """Memory of a run.

    The last byte of the arena is the last before a page that may not be touched; a page before
    the first is protected too, so a kernel that strays crashes instead of corrupting.

    Attributes:
      nbytes: exactly `program.arena_nbytes`.
      address: of the first byte, a multiple of 64.
    """

    def __init__(self, nbytes: int) -> None:
        if nbytes <= 0 or nbytes % 64:
            raise ProgramError(f"arena of {nbytes} bytes; expected a positive multiple of 64.")
        if nbytes > memory_nbytes():
            raise RunError(
                f"arena of {nbytes} bytes: this machine has {memory_nbytes()} bytes of memory. "
                "Compile the model with a budget below that."
            )
        self.nbytes = nbytes
        pages = -(-nbytes // _PAGE)
        try:
            self._map = mmap.mmap(-1, (pages + 2) * _PAGE)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise RunError(
                f"arena of {nbytes} bytes: the system did not give them ({error}). Use a smaller "
                "budget or free memory."
            ) from error
        self._whole = np.frombuffer(self._map, np.uint8)
        start = self._whole.ctypes.data
        first = (pages + 1) * _PAGE - nbytes
        self.address = start + first
        self._bytes = self._whole[first : first + nbytes]
        self._slack = self._whole[_PAGE:first]
        _protect(start)
        _protect(start + (pages + 1) * _PAGE)

    def view(self, slot: Slot) -> np.ndarray:
        """The slot as an array on the arena's bytes, of `slot.stored_shape`.

        Raises:
          ProgramError: the slot lies outside the arena.
        """
        if slot.dtype not in FORMATS:
            raise ProgramError(f"slot {slot.name!r}: dtype {slot.dtype!r} is unknown.")
        stop = slot.offset + slot.nbytes
        if slot.offset % 64 or slot.offset < 0 or stop > self.nbytes:
            raise ProgramError(
                f"slot {slot.name!r}: bytes {slot.offset} to {stop} of an arena of {self.nbytes}. "
                "Compile the model again."
            )
        found = self._bytes[slot.offset : stop].view(slot.format.dtype)
        return found.reshape(slot.stored_shape)

    def slack_is_clean(self) -> bool:
        """Whether the bytes between the front page and the arena are still zero."""
        return not self._slack.any()


def memory_nbytes() -> int:
    """Bytes of memory of this machine, 2^63 where it does not say.

    The system may map more, and then ends the process when it is used.
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * _PAGE
    except (AttributeError, OSError, ValueError):
        return 2**63


def _protect(address: int) -> None:
    """Forbid access to one page; where the system cannot, the run goes on without."""
    try:
        ctypes.CDLL(None).mprotect(
            ctypes.c_void_p(address), ctypes.c_size_t(_PAGE), ctypes.c_int(_PROT_NONE)
        )
    except (OSError, AttributeError):
        return


def views(arena: Arena, program: Program) -> dict[str, np.ndarray]:
    """Every persistent slot by name."""
    return {slot.name: arena.view(slot) for slot in program.persistent}
