"""Transfers a run's state to another Program of the same model.

Tensors keep their names, and their bytes if both Programs store them alike; weights and running
statistics are converted if the formats differ. Unused or missing optimizer state is reported.
"""

from typing import Any, NamedTuple

import numpy as np

from ...errors import CheckpointError
from ...formats import decoded
from ...program import Program, Slot
from ...program.mapped_file import check_files
from ..loading.patterns import sparse_layers
from .checkpoint import Loaded
from .state import check_state

_CONVERTED = ("parameter", "buffer")


class Carried(NamedTuple):
    """A transferred state.

    Attributes:
      tensors: for the new Program, by name.
      converted: names of tensors stored in another format.
      begun: new optimizer state, which starts at zero.
      dropped: old optimizer state that is no longer used.
    """

    tensors: dict[str, np.ndarray]
    converted: tuple[str, ...]
    begun: tuple[str, ...]
    dropped: tuple[str, ...]


def carried(old: Program, new: Program, tensors: dict[str, np.ndarray], label: str) -> Carried:
    """Convert the tensors of a checkpoint of `old` to those of `new`.

    Args:
      label: the checkpoint's name for messages.
    Raises:
      CheckpointError: the checkpoint does not belong to `old`; a tensor is missing, or has
        another shape or a format without conversion in `new`.
    """
    check_state(old, tensors, label)
    before = {slot.name: slot for slot in old.saved}
    after = {slot.name: slot for slot in new.saved}
    if sparse_layers(old) != sparse_layers(new):
        raise CheckpointError(
            f"{label}: this version stores sparse weights differently. Continue with the "
            f"edgetrain version that wrote the run."
        )
    for slot in before.values():
        if slot.name not in after and slot.role != "state":
            raise _unlike(slot, None, label)
    out, converted, begun = {}, [], []
    for slot in after.values():
        was = before.get(slot.name)
        if was is None and slot.role == "state":
            out[slot.name] = np.zeros(slot.stored_shape, slot.format.dtype)
            begun.append(slot.name)
            continue
        if was is None or was.shape != slot.shape or was.role != slot.role:
            raise _unlike(slot, was, label)
        array = tensors[slot.name]
        if was.dtype != slot.dtype:
            if slot.role not in _CONVERTED or not (was.format.floats and slot.format.floats):
                raise _unlike(slot, was, label)
            array = slot.format.encode(decoded(array, slot.shape)).reshape(slot.stored_shape)
            converted.append(slot.name)
        out[slot.name] = array
    dropped = tuple(name for name in before if name not in after)
    check_state(new, out, label)
    return Carried(out, tuple(converted), tuple(begun), dropped)


def with_values(new: Program, old: Program) -> dict[str, np.ndarray]:
    """Initial arrays of `new`, with weights from `old` if both store them alike: frozen weights
    keep their values this way.

    Raises:
      RunError: a Program file was truncated or overwritten.
    """
    before = {slot.name: slot for slot in old.lasting}
    check_files(old.init)
    check_files(new.init)
    out = dict(new.init)
    for slot in new.lasting:
        was = before.get(slot.name)
        alike = was is not None and (was.shape, was.dtype) == (slot.shape, slot.dtype)
        if alike and slot.role in _CONVERTED and slot.name in out and slot.name in old.init:
            out[slot.name] = old.init[slot.name]
    return out


def carried_meta(loaded: Loaded, new: Program) -> dict[str, Any]:
    """The checkpoint's metadata, pointing to the Program `new`."""
    return {**loaded.meta, "recipe": new.digest()}


def departures(old: Program, new: Program) -> list[str]:
    """Kernels whose results may differ between `old` and `new`, one line each."""
    before, after = ({f"{n}.{v}" for n, v, _ in program.kernels} for program in (old, new))
    # The step loop's kernels are not in the table, but their revisions are known.
    told = {*old.revisions, *new.revisions}
    revised = sorted((before & after) | (told - (before ^ after)))
    pairs = [(name, old.revisions.get(name, 1), new.revisions.get(name, 1)) for name in revised]
    out = [f"{name} revision {was} is now {now}" for name, was, now in pairs if was != now]
    out += [f"{name} is no longer used" for name in sorted(before - after)]
    return out + [f"{name} is new" for name in sorted(after - before)]


def _unlike(slot: Slot, was: Slot | None, label: str) -> CheckpointError:
    result = "is missing in one of them"
    if was is not None:
        result = f"was {was.dtype} {list(was.shape)}; expected {slot.dtype} {list(slot.shape)}"
    return CheckpointError(
        f"{label}: {slot.name!r} ({slot.role}) {result}. Pass the model the run was compiled "
        "from, or continue with the edgetrain version that wrote it."
    )
