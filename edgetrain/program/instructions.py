"""Lists a Program's instructions without running them."""

from collections.abc import Iterator

from ..kernels.tapes.decode import Decoded, bound, decode
from ..kernels.targets import lanes_of
from .program import Program

__all__ = ["Decoded", "instructions"]


def instructions(program: Program, tape: str) -> Iterator[tuple[Decoded, dict[str, int]]]:
    """Each instruction of a tape in order, with the bytes of its operands by name.

    Raises:
      ProgramError: the tape doesn't match this build's kernels.
    """
    lanes = lanes_of(program.recipe)
    for call in decode(program.tapes[tape].tolist(), bound(program.kernels, program.revisions)):
        yield call, call.extents(program.threads, lanes)
