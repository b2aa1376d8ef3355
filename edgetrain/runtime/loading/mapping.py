"""Frozen weights that are mapped from the Program file, outside the arena.

Tapes refer to them by offsets after the end of the arena (program/program.py). Here such tapes are
converted to absolute addresses with base 0, because a file can be mapped anywhere.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from ...kernels.tapes.decode import Bound, decode
from ...program import Program
from ...program.mapped_file import check_files, files_of
from ..arena import Arena, views


def mapped_arrays(program: Program) -> dict[str, np.ndarray]:
    """Read-only arrays by name, mapped if the Program comes from a file."""
    out = {}
    for slot in program.mapped:
        given = np.ascontiguousarray(program.init[slot.name], slot.format.dtype)
        array = given.reshape(slot.stored_shape).view()
        array.flags.writeable = False
        out[slot.name] = array
    return out


def first_values(arena: Arena, program: Program) -> dict[str, np.ndarray]:
    """Initial values of all slots by name; those outside the arena are read-only.

    Raises:
      RunError: the Program file was truncated or overwritten.
    """
    check_files(program.init)
    values = views(arena, program)
    for name in values.keys() & program.init.keys():
        values[name][...] = program.init[name]
    return values | mapped_arrays(program)


class Placed:
    """Turns offsets of checked tapes into addresses.

    Args:
      address: address of the arena.
      kernels: by index in the tapes.
    """

    def __init__(self, program: Program, address: int, kernels: Sequence[Bound]) -> None:
        self._address, self._end, self._kernels = address, program.arena_nbytes, kernels
        self._arrays = mapped_arrays(program)  # not copied
        self._files = files_of(self._arrays.values())
        slots = sorted(program.mapped, key=lambda slot: slot.offset)
        self._starts = [slot.offset for slot in slots]
        self._addresses = [self._arrays[slot.name].ctypes.data for slot in slots]

    def check(self) -> None:
        """Raise RunError if the file of these weights was truncated or overwritten."""
        for file in self._files:
            file.check()

    def addressed(self, tape: np.ndarray) -> np.ndarray:
        """The tape with addresses instead of offsets; absent operands stay negative."""
        out = np.array(tape, np.int64)
        for call in decode(tape.tolist(), self._kernels):
            word = call.offset + 2
            for operand in call.kernel.spec.operands:
                if operand.mode == "t" or (operand.is_reference and out[word] >= 0):
                    out[word] = self._placed(int(out[word]))
                word += 2 if operand.mode == "t" else 1
        return out

    def _placed(self, offset: int) -> int:
        if offset < self._end:
            return self._address + offset
        behind = offset - self._end
        slot = bisect_right(self._starts, behind) - 1
        return self._addresses[slot] + behind - self._starts[slot]
