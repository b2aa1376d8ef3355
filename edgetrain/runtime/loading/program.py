"""Loads a Program and checks that this build has its loss, optimizer and rewiring.

program/ checks that the file is complete and well formed; its recipe is checked here.
"""

import os
from os import PathLike
from pathlib import Path
from typing import Any

from ...errors import ProgramError, UsageError
from ...losses import LOSSES
from ...losses.terms import MOST
from ...optim import OPTIMIZERS
from ...program import MOVE, Program, read_program
from ...program.schema import (
    Check,
    Wrong,
    boolean,
    integer,
    number,
    optional,
    row,
    several,
    text,
)
from ...sparse import REWIRINGS
from ...units.public import as_path, public
from ...units.wording import quoted
from .plugin_fields import made_by, member_of

_PROGRAM_FILE = "program.edge"  # in a run directory (run/folder)


@public
def load_program(path: str | PathLike[str], *, links: bool = True) -> Program:
    """Read a Program file; its tapes are checked when a Trainer uses it.

    Args:
      links: follow a link at `path`; refuse it otherwise, as in run directories.

    Raises:
      ProgramError: the file is damaged, of another version, not a Program, or needs
        something that this build lacks.
    """
    path = as_path("load_program", path, "the path of a .edge file", any_name=True)
    if os.path.isdir(path):
        raise ProgramError(
            f"{path}: a directory; expected a .edge file{_within(path)}. To continue a run: "
            f"edgetrain train --resume {quoted(str(path))}."
        )
    program = read_program(path, links=links)
    try:
        check_recipe(program.recipe)
    except Wrong as error:
        raise ProgramError(f"{path}: {error}. {MOVE}") from None
    return program


def opened_program(program: Any) -> Program:
    """A Program, loaded from a file if necessary.

    Raises:
      UsageError: it is neither.
      ProgramError: as for `load_program`.
    """
    if isinstance(program, Program):
        return program
    if not isinstance(program, str | PathLike):
        raise UsageError(
            f"program {repr(program)[:80]}: expected the result of compile, or the path of a .edge "
            "file."
        )
    path = Path(program)
    if path.suffix == ".onnx":
        raise UsageError(
            f"program {program}: an ONNX model; expected a compiled Program. Pass "
            f"et.compile({str(program)!r}, budget=..)."
        )
    if os.path.isdir(path):
        raise UsageError(
            f"program {program}: a directory; expected a .edge file{_within(path)}. Then call "
            "resume(DIR) to load the weights of a run in DIR."
        )
    return load_program(path)


def _within(path: Path) -> str:
    """ ", such as .." with the Program of a run at or below a directory, or ""."""
    near = [*path.glob(_PROGRAM_FILE), *sorted(path.glob(f"*/{_PROGRAM_FILE}"))]
    return f", such as {near[0]}" if near else ""


def check_recipe(recipe: Any) -> None:
    """Check that this build supports everything in a recipe.

    Raises:
      Wrong: names the field.
    """
    for name, check in KINDS.items():
        check(recipe[name], f"recipe.{name}")
    if "losses" in recipe:
        several(row(text(), KINDS["loss"]), 2, MOST)(recipe["losses"], "recipe.losses")


_NUMBER = optional(number())
_REWIRING = made_by(
    REWIRINGS,
    {
        "frequency": _NUMBER,
        "long_frequency": _NUMBER,
        "threshold": _NUMBER,
        "fraction": _NUMBER,
        "keep_state": optional(boolean),
        "periods": several(row(number(0), integer(1, 2**31)), most=2**10),
    },
)

# Field of a recipe -> check that this build supports its value.
KINDS: dict[str, Check] = {
    "loss": member_of(LOSSES),
    "optimizer": member_of(OPTIMIZERS),
    "rewiring": optional(_REWIRING),
}
