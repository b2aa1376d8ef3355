"""The instructions of a Program, for those who look at them and run nothing."""

from collections.abc import Iterator

from ..kernels.tapes.decode import Decoded, bound, decode
from ..kernels.targets import lanes_of
from .program import Program

__all__ = ["Decoded", "instructions"]


def instructions(program: Program, tape: str) -> Iterator[tuple[Decoded, dict[str, int]]]:
    """Each instruction of a tape in order, and the bytes that its operands touch by their names.

    Raises:
      ProgramError: the tape is none of this build's kernels.
    """
    lanes = lanes_of(program.recipe)
    for found in decode(program.tapes[tape].tolist(), bound(program.kernels, program.revisions)):
        yield found, found.extents(program.threads, lanes)
