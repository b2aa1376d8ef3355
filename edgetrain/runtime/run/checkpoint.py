"""Training state on disk: written atomically; the last good one is never removed.

A checkpoint is a container (program/container.py) of kind "checkpoint": tensors, and a JSON object
with counters, data cursor, loss scale and so on. Links are not followed, because a run directory
may come from somebody else.
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
FEWEST = 2  # files kept at least: the newest may be damaged
VERSION = 2
VERSIONS = range(VERSION, VERSION + 1)
_TEXT = schema.record({"state": schema.text(2**23)})
_STATE = schema.record({}, others=lambda *_: None)
_STEP_FILE = re.compile(r"step-([0-9]{8,})\.ckpt")


class Loaded(NamedTuple):
    """A checkpoint and its origin.

    Attributes:
      tensors: arrays by name; those requested by `into` are the arrays passed in.
      meta: metadata as saved; tuples become lists.
      used: the file that was read.
      warning: why a newer file could not be used, for the user; None if the newest was.
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
    """Write a checkpoint; an existing good file is kept as `<name>.previous`.

    An existing damaged file is replaced, without touching its `.previous`.

    Args:
      meta: JSON values; integers and floats are restored exactly.
      verify: read it back from the disk and check it before removing older files.
    Raises:
      RunError: it cannot be written (disk full, read-only); older files are unchanged.
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
            f"{path}: the disk returned other bytes than were written. The file was removed, "
            "older checkpoints are unchanged. Write to another disk."
        )
    clean_temporaries(Path(path).parent)


def load_checkpoint(
    path: str | os.PathLike[str], into: Mapping[str, np.ndarray] | None = None
) -> Loaded:
    """Read `path`, or its `.previous` if `path` is missing or damaged.

    Args:
      into: as in `read_container`: arena arrays to read the tensors into.
    Raises:
      CheckpointError: neither is usable; the message is about `path`.
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
    """Write the checkpoint of `step`, then remove the oldest above the limit.

    Args:
      save_total_limit: files to keep; None keeps all. At least two are kept, so there is always
        one besides the newest.
      keep: files to keep regardless of the limit.
      initial: initial values of tensors that training does not change; these need not be finite.
      verify: as in `save_checkpoint`.
    Raises:
      RunError: as in `save_checkpoint`, or a value is not finite; then nothing is removed.
    """
    path = step_path(directory, step)
    wrong = nonfinite(finite_part(tensors, initial or {}), meta)
    if wrong:
        raise RunError(f"{path}: not written, because {wrong} is not finite.")
    save_checkpoint(path, tensors, meta, keep_previous=False, verify=verify)
    if save_total_limit is not None:
        for old in step_files(directory)[: -max(FEWEST, save_total_limit)]:
            if old != path and old not in keep:
                old.unlink(missing_ok=True)
    return path


def is_checkpoint(name: str) -> bool:
    """Whether a file in a run directory is a checkpoint."""
    plain = name.removesuffix(PREVIOUS_SUFFIX)
    return plain.endswith(".ckpt")


def step_of(path: Path) -> int:
    """The step of a file from `step_files`."""
    return int(path.stem.removeprefix("step-"))


def step_files(directory: str | os.PathLike[str]) -> list[Path]:
    """The step-numbered checkpoints of a directory, oldest first."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    result = [(int(match[1]), name) for name in names if (match := _STEP_FILE.fullmatch(name))]
    return [Path(directory, name) for _, name in sorted(result)]


def latest(
    directory: str | os.PathLike[str], into: Mapping[str, np.ndarray] | None = None
) -> Loaded | None:
    """The newest good checkpoint in `directory`; None if there are no checkpoints.

    Args:
      into: as in `load_checkpoint`.
    Raises:
      CheckpointError: none of them is usable; the message is about the newest.
    """
    clean_temporaries(directory)
    files = step_files(directory)[::-1]
    return _first_good(files, into) if files else None


def _first_good(paths: list[Path], into: Mapping[str, np.ndarray] | None) -> Loaded:
    """The first readable file in `paths`; if none is, raise the first one's error."""
    first: CheckpointError | None = None
    for path in paths:
        try:
            tensors, meta = _read(path, into)
        except CheckpointError as error:
            first = first or error
            continue
        warning = None if first is None else f"{first} Using the older {path}."
        return Loaded(tensors, meta, path, warning)
    assert first is not None
    raise first


def _read(
    path: Path, into: Mapping[str, np.ndarray] | None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    tensors, text = read_container(
        path, kind=KIND, versions=VERSIONS, links=False, into=into, error=CheckpointError
    )
    move = "Use another copy."
    schema.verify(_TEXT, text, str(path), CheckpointError, move)
    try:
        meta = schema.parse(text["state"])
    except schema.Wrong as wrong:
        raise CheckpointError(f"{path}: state: {wrong}. {move}") from None
    schema.verify(_STATE, meta, str(path), CheckpointError, move)
    if _STEP_FILE.fullmatch(path.name) and meta.get("step", step_of(path)) != step_of(path):
        raise CheckpointError(
            f"{path}: it holds step {meta['step']}; expected the step in its name. {move}"
        )
    return tensors, meta
