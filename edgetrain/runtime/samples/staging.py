"""Copies a caller's arrays into the staging buffers of an arena; axes must match."""

from collections.abc import Iterable, Mapping

import numpy as np

from ...data.checks.layout import check_layout
from ...data.checks.values import check_integers
from ...data.source import BYTES
from ...errors import DataError
from ...formats import of_dtype
from ...program import TARGET, WEIGHT, Program, Slot
from ...units.wording import counted
from ..arena import Arena


def stage(program: Program, name: str, buffer: np.ndarray, array: np.ndarray) -> None:
    """Copy `array` into `buffer` without broadcasting; axes of size 1 may be missing.

    u8 inputs are scaled to [0, 1] for float buffers, as in data sources.

    Args:
      name: name of the input, or TARGET; integers must be within the Program's limit.
      buffer: [n, ...].
    Raises:
      DataError: a wrong number or shape of samples, not numbers, or a value out of range.
    """
    label = f"input {name!r}"
    if name.startswith(TARGET):
        own = name.removeprefix(TARGET).removeprefix(".")
        label = f"target {own!r}" if own else "target"
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{label}: {array.dtype} values; expected numbers. Convert them.")
    if array.shape[:1] != buffer.shape[:1]:
        raise DataError(
            f"{label} has shape {list(array.shape)}; expected {list(buffer.shape)}: "
            f"{counted(len(buffer), 'sample')}. Pass the same number for each input and the target."
        )
    check_layout(label, array.shape[1:], buffer.shape[1:])
    if array.dtype == np.uint8 and buffer.dtype.kind == "f" and not name.startswith(TARGET):
        array = BYTES.apply(array)
    limit = program.limits.get(name)
    if limit is not None or buffer.dtype.kind in "iu":
        ignored = program.ignored_of(name)
        where, classes = lambda row: f"{label}: sample {row}", name.startswith(TARGET)
        check_integers(array, buffer.dtype, limit, ignored, where, classes)
    with np.errstate(over="ignore", invalid="ignore"):
        buffer[...] = of_dtype(buffer.dtype).encode(array.reshape(buffer.shape))


def stage_inputs(
    program: Program, arena: Arena, slots: Iterable[Slot], inputs: Mapping[str, np.ndarray]
) -> None:
    """Call `stage` for each input of a tape.

    Raises:
      DataError: an input is missing, or as in `stage`.
    """
    for slot in slots:
        if slot.name not in inputs:
            named = [name for name in inputs if name not in (TARGET, WEIGHT)]
            raise DataError(
                f"input {slot.name!r} is missing; found {', '.join(named) or 'none'}. Name the "
                "arrays after the model's inputs."
            )
        stage(program, slot.name, arena.view(slot), inputs[slot.name])
