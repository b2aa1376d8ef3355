"""Training state on disk: whole or not there, and the last good one never given up.

A checkpoint is a container (program/container.py) of kind "checkpoint": tensors, and one JSON
object with counters, data cursor, loss scale and the like. No link is followed to one: a run's
directory may be somebody else's.
"""

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgetrain.errors import CheckpointError, RunError
from edgetrain.program import schema
from edgetrain.program.atomic import PREVIOUS_SUFFIX, clean_temporaries, previous_of
from edgetrain.program.container import is_good_container, read_container, write_container
from edgetrain.program.finite import finite_part, nonfinite

KIND = "checkpoint"
VERSION = 2
VERSIONS = range(VERSION, VERSION + 1)
_TEXT = schema.record({"state": schema.text(2**23)})
_STATE = schema.record({}, others=lambda *_: None)
_STEP_FILE = re.compile(r"step-([0-9]{8,})\.ckpt")


class Loaded(NamedTuple):
    """A checkpoint and where it came from.

    Attributes:
      tensors: name -> array; those asked for by `into` are the arrays handed in.
      meta: as it was saved; tuples have become lists.
      used: the file that was read.
      warning: None, or why a newer file could not be used; to be shown to the user.
    """

    tensors: dict[str, np.ndarray]
    meta: dict[str, Any]
    used: Path
    warning: str | None = None


def save_checkpoint(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    *,
    keep_previous: bool = True,
    verify: bool = False,
) -> None:
    """Write one checkpoint; a good file already there lives on as `<name>.previous`.

    A damaged file already there is replaced and leaves the `.previous` behind it alone.

    Args:
      meta: values that JSON can hold; integers and floats come back exactly.
      verify: read it back from the medium, and check it, before older files are given up.
    Raises:
      RunError: it cannot be written (disk full, read-only); older files are untouched.
    """
    keep = keep_previous and is_good_container(path, kind=KIND, versions=VERSIONS, links=False)
    state = {"state": json.dumps(dict(meta))}
    write_container(
        path,
        tensors,
        state,
        kind=KIND,
        version=VERSION,
        keep_previous=keep,
        links=False,
        verify=verify,
    )
    if verify and not is_good_container(path, kind=KIND, versions=VERSIONS, links=False):
        Path(path).unlink(missing_ok=True)
        raise RunError(
            f"{path}: the disk gives back other bytes than were written; it was removed, older "
            "checkpoints are untouched. Write to another disk."
        )
    clean_temporaries(Path(path).parent)


def load_checkpoint(
    path: str | os.PathLike[str], into: Mapping[str, np.ndarray] | None = None
) -> Loaded:
    """Read `path`, or the `.previous` beside it when `path` is missing or damaged.

    Args:
      into: as in `read_container`: places in the arena that take the tensors directly.
    Raises:
      CheckpointError: neither can be used; the message is about `path`.
    """
    return _first_good([Path(path), previous_of(path)], into)


def step_path(directory: str | os.PathLike[str], step: int) -> Path:
    """`DIR/step-00001234.ckpt`."""
    return Path(directory, f"step-{step:08d}.ckpt")


def save_step(
    directory: str | os.PathLike[str],
    step: int,
    tensors: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    *,
    save_total_limit: int | None = None,
    keep: Collection[Path] = (),
    initial: Mapping[str, np.ndarray] | None = None,
    verify: bool = False,
) -> Path:
    """Write the checkpoint of `step`, then remove the oldest beyond the limit.

    Args:
      save_total_limit: files to keep; None keeps all. Two stay even at 1, so that there is
        always one behind the newest.
      keep: files that stay whatever the limit.
      initial: values of the tensors that training does not move; those need not be finite.
      verify: as in `save_checkpoint`.
    Raises:
      RunError: as in `save_checkpoint`, or something is not finite; nothing is removed then.
    """
    path = step_path(directory, step)
    wrong = nonfinite(finite_part(tensors, initial or {}), meta)
    if wrong:
        raise RunError(f"{path}: {wrong} is not finite; it was not written.")
    save_checkpoint(path, tensors, meta, keep_previous=False, verify=verify)
    if save_total_limit is not None:
        for old in step_files(directory)[: -max(2, save_total_limit)]:
            if old != path and old not in keep:
                old.unlink(missing_ok=True)
    return path


def is_checkpoint(name: str) -> bool:
    """Whether a file in a run's directory is one of the states that it keeps."""
    plain = name.removesuffix(PREVIOUS_SUFFIX)
    return plain.endswith(".ckpt")


def step_of(path: Path) -> int:
    """The step that a file of `step_files` is of."""
    return int(path.stem.removeprefix("step-"))


def step_files(directory: str | os.PathLike[str]) -> list[Path]:
    """The step-numbered checkpoints of a directory, oldest first."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    found = [(int(match[1]), name) for name in names if (match := _STEP_FILE.fullmatch(name))]
    return [Path(directory, name) for _, name in sorted(found)]


def latest(
    directory: str | os.PathLike[str], into: Mapping[str, np.ndarray] | None = None
) -> Loaded | None:
    """The newest good checkpoint of `directory`; None where there is no checkpoint at all.

    Args:
      into: as in `load_checkpoint`.
    Raises:
      CheckpointError: there are some and none can be used; the message is about the newest.
    """
    clean_temporaries(directory)
    files = step_files(directory)[::-1]
    return _first_good(files, into) if files else None


def _first_good(paths: list[Path], into: Mapping[str, np.ndarray] | None) -> Loaded:
    """The first of `paths` that can be read; raises the first's error when none can."""
    first: CheckpointError | None = None
    for path in paths:
        try:
            tensors, meta = _read(path, into)
        except CheckpointError as error:
            first = first or error
            continue
        warning = None if first is None else f"{first} Going on from the older {path}."
        return Loaded(tensors, meta, path, warning)
    assert first is not None
    raise first


def _read(
    path: Path, into: Mapping[str, np.ndarray] | None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    tensors, text = read_container(
        path, kind=KIND, versions=VERSIONS, links=False, into=into, error=CheckpointError
    )
    move = "Take another copy of it."
    schema.verify(_TEXT, text, str(path), CheckpointError, move)
    try:
        meta = schema.parse(text["state"])
    except schema.Wrong as wrong:
        raise CheckpointError(f"{path}: state: {wrong}. {move}") from None
    schema.verify(_STATE, meta, str(path), CheckpointError, move)
    return tensors, meta
