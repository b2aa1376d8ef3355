"""The only allocation: exactly the planned bytes, zeroed, between two guard pages."""

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
    """The memory of a run.

    The arena ends at a protected page, and another one precedes it, so a kernel that writes
    outside crashes instead of corrupting data.

    Attributes:
      nbytes: exactly `program.arena_nbytes`.
      address: address of the first byte, a multiple of 64.
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
            # Shared with forked children, which may only read it: copies would exceed the budget.
            self._map = mmap.mmap(-1, (pages + 2) * _PAGE)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise RunError(
                f"arena of {nbytes} bytes: not enough memory ({error}). Use a smaller budget, or "
                "free memory."
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
        """The slot as an array that shares the arena's memory, with shape `slot.stored_shape`.

        Raises:
          ProgramError: the slot is outside the arena.
        """
        if slot.dtype not in FORMATS:
            raise ProgramError(f"slot {slot.name!r}: unknown dtype {slot.dtype!r}.")
        stop = slot.offset + slot.nbytes
        if slot.offset % 64 or slot.offset < 0 or stop > self.nbytes:
            raise ProgramError(
                f"slot {slot.name!r}: bytes {slot.offset} to {stop}, but the arena has "
                f"{self.nbytes}. Compile the model again."
            )
        result = self._bytes[slot.offset : stop].view(slot.format.dtype)
        return result.reshape(slot.stored_shape)

    def slack_is_clean(self) -> bool:
        """Whether the bytes between the front page and the arena are still zero."""
        return not self._slack.any()


def memory_nbytes() -> int:
    """Memory of this machine in bytes; 2^63 if unknown.

    The system may map more, and kill the process when it is used.
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * _PAGE
    except (AttributeError, OSError, ValueError):
        return 2**63


def _protect(address: int) -> None:
    """Forbid access to one page, if the system can."""
    try:
        ctypes.CDLL(None).mprotect(
            ctypes.c_void_p(address), ctypes.c_size_t(_PAGE), ctypes.c_int(_PROT_NONE)
        )
    except (OSError, AttributeError):
        return


def views(arena: Arena, program: Program) -> dict[str, np.ndarray]:
    """All persistent slots by name."""
    return {slot.name: arena.view(slot) for slot in program.persistent}
