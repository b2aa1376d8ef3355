"""Checks that a state belongs to a Program, and loads both from files."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import CheckpointError, OutdatedError
from ...formats import from_file
from ...program import Program
from ...program.metadata import labels_of
from ..loading.patterns import check_pattern, sparse_layers
from ..loading.program import load_program
from ..session import Session
from .checkpoint import latest, load_checkpoint
from .fields import check_best, check_run
from .folder import BEST_FILE, PROGRAM_FILE, run_directory


def load_state(session: Session, tensors: dict[str, np.ndarray], label: str) -> None:
    """Copy a checkpoint's tensors to the arena, or none if one is wrong.

    Raises:
      CheckpointError: names, shapes or dtypes differ from the Program's.
    """
    check_state(session.program, tensors, label)
    with session.turn:
        state = session.state()
        for name, array in tensors.items():
            state[name][...] = array


def check_state(program: Program, tensors: dict[str, np.ndarray], label: str) -> None:
    """Check that tensors from a file are a state of this Program; byte rows become blocks.

    Raises:
      CheckpointError: names, shapes or dtypes differ, or a sparse pattern is damaged.
    """
    for slot in program.saved:
        if slot.name in tensors:
            tensors[slot.name] = from_file(tensors[slot.name], slot.format)
    wanted = {slot.name: (slot.stored_shape, slot.format.dtype) for slot in program.saved}
    if {name: (array.shape, array.dtype) for name, array in tensors.items()} != wanted:
        raise CheckpointError(
            f"{label}: its tensors do not match this Program. Resume with the Program of its run."
        )
    check_pattern(sparse_layers(program), tensors, label, CheckpointError)


@contextlib.contextmanager
def of_run(directory: str | os.PathLike[str] | None) -> Iterator[None]:
    """Within the block, errors about an outdated Program name the command that converts the run
    in `directory` (None: no run).

    Raises:
      ProgramError: names the directory.
    """
    try:
        yield
    except OutdatedError as error:
        if directory is None:
            raise
        raise error.of_run(directory) from error


class Run(NamedTuple):
    """The contents of a run directory.

    Attributes:
      state: the newest state; None before the first checkpoint.
      labels: class names, if the data or the model had them.
      loss_weights: of several losses, if the run changed them.
    """

    program: Program
    state: dict[str, np.ndarray] | None
    labels: tuple[str, ...] | None = None
    loss_weights: dict[str, float] | None = None


def open_run(
    directory: str | Path, *, best: bool = False, warned: Callable[[str], None] | None = None
) -> Run:
    """Load the Program and the newest state of a run.

    Args:
      best: load the state of the best epoch instead.
      warned: called with a message if the newest checkpoint is damaged and an older one is used.
    Raises:
      CheckpointError, ProgramError: the files cannot be used.
    """
    directory = run_directory(directory)
    program = load_program(directory / PROGRAM_FILE, links=False)
    loaded = latest(directory)
    if loaded is None:
        return Run(program, None, labels_of(program.onnx))
    from .resuming import check_recipe

    check_recipe(check_run(loaded), program.digest(), directory)
    result, weights = loaded.meta.get("labels"), loaded.meta.get("changed", {}).get("loss_weights")
    if best:
        path = directory / BEST_FILE
        if not os.path.lexists(path):
            raise CheckpointError(
                f"{directory}: it has no best state. Train with --keep-best (KeepBest)."
            )
        loaded = check_best(load_checkpoint(path), program.digest())
    check_state(program, loaded.tensors, str(loaded.used))
    if loaded.warning is not None and warned is not None:
        warned(loaded.warning)
    labels = tuple(result) if result else labels_of(program.onnx)
    return Run(program, loaded.tensors, labels, weights)
