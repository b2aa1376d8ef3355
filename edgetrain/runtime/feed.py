"""The callback by which the drive asks for samples, and which field of a source fills what."""

import ctypes
from collections.abc import Callable

import numpy as np

from ..data.source import Source
from ..errors import DataError
from ..program import TARGET, Program

DISCARD = 1  # what the callback returns to have a minibatch discarded
_FAILED = 2
_FILL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
# Stages the samples of one microbatch; False discards the minibatch.
Filler = Callable[[np.ndarray], bool | None]


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


def fields(source: Source, program: Program, takes_target: bool = True) -> dict[str, str]:
    """Field of a source -> the staged value that it fills, as in `Program.staged`.

    One input takes the one field that is no target, whatever their names; more go by name.

    Args:
      takes_target: False for a model that computes its loss itself: a target is an input then,
        where one has the name.
    Raises:
      DataError: the source has not the fields that the model needs, or of another layout.
    """
    inputs = [slot.name for slot in program.inputs["micro"]]
    given = [name for name in source.fields if name != "y"]
    named = {*inputs} <= {*source.fields} if not takes_target else {*inputs} == {*given}
    if named:
        found = {name: name for name in inputs}
    elif len(inputs) == len(given) == 1:
        found = {given[0]: inputs[0]}
    else:
        raise DataError(
            f"{source.name}: its inputs are {', '.join(given) or 'none'}; the model's are "
            f"{', '.join(inputs)}. Use data with fields of these names."
        )
    if takes_target and "y" not in source.fields:
        raise DataError(f"{source.name}: it has no target field 'y'.")
    return found | ({"y": TARGET} if takes_target else {})
