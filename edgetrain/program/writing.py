"""Writes Program files, and adds tape sets of other Programs to a Program.

program.py imports this late, so Programs have no type here.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ProgramError
from .container import write_container
from .container_header import PROGRAM_KIND
from .fields import VERSION, check_program
from .mapped_file import check_files
from .schema import parse, verify
from .sets import Slot, TapeSet, fields_of

SAME = "Compile all sets from one model with one recipe."


def write_program(program: Any, path: Path, links: bool) -> None:
    """Write a Program to a file, atomically; see `Program.save`."""
    check_files(program.init)
    text = json.dumps(fields(program))
    verify(check_program, parse(text), str(path), ProgramError, "It was not written.")
    tensors = {f"tape.{name}": tape for name, tape in program.tapes.items()}
    tensors |= {f"init.{name}": array for name, array in program.init.items()}
    for number, item in enumerate(program.others, 1):
        check_files(item.tapes)
        own = {n: a for n, a in item.init.items() if a is not program.init.get(n)}
        tensors |= {f"set.{number}.tape.{name}": tape for name, tape in item.tapes.items()}
        tensors |= {f"set.{number}.init.{name}": array for name, array in own.items()}
    tensors["onnx"] = np.frombuffer(program.onnx, np.uint8)
    meta = {"program": text}
    write_container(path, tensors, meta, kind=PROGRAM_KIND, version=VERSION, links=links)


def fields(program: Any) -> dict[str, Any]:
    """The JSON of a Program."""
    plain = ("threads", "limits", "aliases", "model_name")
    out = _set_json(program) | {name: getattr(program, name) for name in plain}
    if program.ignored:
        out["ignored"] = dict(program.ignored)
    if program.revisions:
        out["revisions"] = dict(program.revisions)
    if program.others:
        out["sets"] = [_set_json(item) for item in program.others]
    return out


def _set_json(found: TapeSet) -> dict[str, Any]:
    plain = (
        "arena_nbytes",
        "minibatch",
        "microbatch",
        "kernels",
        "account",
        "recipe",
        "target_count",
        "work",
    )
    out: dict[str, Any] = {name: getattr(found, name) for name in plain}
    out["persistent"] = [_slot_json(slot) for slot in found.persistent]
    if found.mapped:
        out["mapped"] = [_slot_json(slot) for slot in found.mapped]
    for name in ("inputs", "outputs"):
        out[name] = {k: [_slot_json(s) for s in slots] for k, slots in getattr(found, name).items()}
    out["targets"] = {k: _slot_json(slot) for k, slot in found.targets.items()}
    return out


def _slot_json(slot: Slot) -> dict[str, Any]:
    """Fields of a slot; the batch axis only if not 0, as in files of earlier versions."""
    return {name: value for name, value in asdict(slot).items() if name != "batch" or value}


def shared_sets(program: Any, others: Iterable[Any]) -> tuple[dict[str, int], list[TapeSet]]:
    """Kernel revisions of several Programs of one model, and the tape sets of the others, with
    the initial arrays of the first.

    Raises:
      ProgramError: another Program differs in model or recipe.
    """
    added: list[TapeSet] = []
    revisions = dict(program.revisions)
    for other in others:
        for name in ("threads", "model_name", "limits", "ignored", "aliases", "onnx"):
            if getattr(program, name) != getattr(other, name):
                raise ProgramError(
                    f"{program.model_name}: set {other.label}: its {name} differs from the "
                    f"default set. {SAME}"
                )
        revisions |= other.revisions
        added += [_sharing(program, item) for item in other.sets]
    return revisions, added


def _sharing(program: Any, found: TapeSet) -> TapeSet:
    """The set with the Program's initial arrays, except its own constants.

    Raises:
      ProgramError: an initial weight differs.
    """
    roles, init = {slot.name: slot.role for slot in found.lasting}, {}
    for name, array in found.init.items():
        ours = program.init.get(name)
        init[name] = array
        if ours is not None and _same_bytes(ours, array):
            init[name] = ours
        elif roles[name] != "constant":
            raise ProgramError(
                f"{program.model_name}: set {found.label}: initial {name!r} differs from "
                "the default set. Compile all sets from one model with one seed."
            )
    return TapeSet(**{**fields_of(found), "init": init})


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether type, shape and every bit are equal."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    x, y = (np.ascontiguousarray(item).reshape(-1).view(np.uint8) for item in (a, b))
    return bool(np.array_equal(x, y))
