"""The drive's plan block for a Program, whoever runs it: what its words say, and the two callbacks.

The words are kernels/drive/layout.py's. What depends on addresses is filled in by the Session.
"""

import ctypes
from collections.abc import Callable

import numpy as np

from ..kernels.drive import layout
from ..program import Program

DISCARD = 1  # what the callback returns to have a minibatch discarded
_FAILED = 2
_FILL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
# Stages the samples of one microbatch; False discards the minibatch.
Filler = Callable[[np.ndarray], bool | None]


def sizes(program: Program) -> dict[int, int]:
    """Word of the plan block -> what it is for this Program, all that are no addresses."""
    return {
        layout.MINIBATCH: program.minibatch,
        layout.MICROBATCH: program.microbatch,
        layout.TARGETS_PER_SAMPLE: program.target_count,
        layout.PARTS: 1,
    }


def zeroed(program: Program) -> list[tuple[int, int]]:
    """(offset, bytes) in the arena of what a discarded minibatch leaves at zero."""
    return [(s.offset, s.nbytes) for s in program.persistent if s.role == "accumulator"]


def strides(program: Program) -> list[int]:
    """For each kernel of the Program the operand word that is the stride of its workspace, or
    STRIDE_NONE, or SPLIT_NONE where its instructions run in one part."""
    from ..kernels import registry

    out = []
    for name, variant, _ in program.kernels:
        kernel = next(k for k in registry.variants(name) if k.variant == variant)
        at, found, workspaces = 0, layout.STRIDE_NONE, 0
        for operand in kernel.spec.operands:
            if operand.mode == "t":
                found, workspaces = at + 1, workspaces + 1
            at += 2 if operand.mode == "t" else 1
        # Extents by the number of threads: parts would share what threads have for themselves.
        if workspaces > 1 or "nthreads" in registry.declaration(kernel)["operands"]:
            found = layout.SPLIT_NONE
        out.append(found)
    return out


class Feed:
    """The callback by which the drive asks for samples; what it raises is raised by `run`.

    Attributes:
      indices: int64 [microbatch], where the drive leaves the samples that it wants.
      address: of the C function.
    """

    def __init__(self, microbatch: int) -> None:
        self.indices = np.zeros(microbatch, np.int64)
        self._filler: Filler | None = None
        self._raised: BaseException | None = None
        self._callback = _FILL(self._called)  # no exception may leave it
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _called(self, user, split, count, indices, none) -> int:
        try:
            assert self._filler is not None
            return DISCARD if self._filler(self.indices) is False else 0
        except BaseException as error:
            self._raised = error
            return _FAILED

    def run(self, drive: Callable[[], None], filler: Filler) -> None:
        """Call `drive` with this filler.

        Raises:
          BaseException: what the filler raised.
        """
        self._filler, self._raised = filler, None
        try:
            drive()
        finally:
            self._filler = None
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
