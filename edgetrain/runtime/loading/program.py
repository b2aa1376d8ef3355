"""A Program from its file, with the loss, optimizer and rewiring of its recipe known to this build.

program/ proves that a file is whole and of its form; what can be trained with is asked here.
"""

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
    one_of,
    optional,
    row,
    several,
    text,
)
from ...sparse import DISTRIBUTIONS, REWIRINGS
from ...units.public import as_path, public
from .plugin_fields import made_by, member_of


@public
def load_program(path: str | PathLike[str], *, links: bool = True) -> Program:
    """Read a Program; its tapes are checked when a Trainer loads it.

    Args:
      links: a link at `path` is followed; without, as in a run's directory, it is refused.

    Raises:
      ProgramError: the file is damaged, of another version, not a Program, or asks for what this
        build cannot train with.
    """
    path = as_path("load_program", path, "the path of a .edge file")
    if path.is_dir():
        raise ProgramError(
            f"{path}: a directory; expected a .edge file, such as {path / 'program.edge'} of a run "
            f"(edgetrain train --resume {path} continues a run)."
        )
    program = read_program(path, links=links)
    try:
        check_recipe(program.recipe)
    except Wrong as error:
        raise ProgramError(f"{path}: {error}. {MOVE}") from None
    return program


def opened_program(program: Any) -> Program:
    """A Program, or the one of a file.

    Raises:
      UsageError: it is neither.
      ProgramError: as `load_program`.
    """
    if isinstance(program, Program):
        return program
    if not isinstance(program, str | PathLike):
        raise UsageError(
            f"program {repr(program)[:80]}: expected what compile returned, or the path of a .edge "
            "file."
        )
    path = Path(program)
    if path.suffix == ".onnx":
        raise UsageError(
            f"program {program}: a model, not yet compiled. Pass et.compile({str(program)!r}, "
            "budget=..)."
        )
    if path.is_dir():
        raise UsageError(
            f"program {program}: a directory. Pass {path / 'program.edge'}, and then call "
            f"resume({str(path)!r}) for the weights of the run."
        )
    return load_program(path)


def check_recipe(recipe: Any) -> None:
    """Prove that this build has what a recipe names, and takes its numbers.

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

# Field of a recipe -> what this build can do with it.
KINDS: dict[str, Check] = {
    "loss": member_of(LOSSES),
    "optimizer": member_of(OPTIMIZERS),
    "rewiring": optional(_REWIRING),
    "distribution": one_of(*DISTRIBUTIONS),
}
