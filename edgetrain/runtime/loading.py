"""A Program from its file, with the loss, optimizer and rewiring of its recipe known to this build.

program/ proves that a file is whole and of its form; what can be trained with is asked here.
"""

import dataclasses
from pathlib import Path
from typing import Any

from ..errors import ProgramError, UsageError
from ..optim import OPTIMIZERS
from ..program import MOVE, Program, read_program
from ..program.schema import (
    Check,
    Wrong,
    boolean,
    integer,
    number,
    one_of,
    optional,
    plain,
    record,
    row,
    several,
    text,
)
from ..sparse import REWIRINGS
from ..sparse.density import DISTRIBUTIONS


def load_program(path: str | Path) -> Program:
    """Read a Program; what its tapes touch is checked when it is loaded into an arena.

    Raises:
      ProgramError: the file is damaged, of another version, not a Program, or asks for what this
        build cannot train with.
    """
    program = read_program(path)
    try:
        check_recipe(program.recipe)
    except Wrong as error:
        raise ProgramError(f"{path}: {error}. {MOVE}") from None
    return program


def check_recipe(recipe: Any) -> None:
    """Prove that this build has what a recipe names, and takes its numbers.

    Raises:
      Wrong: names the field.
    """
    for name, check in KINDS.items():
        check(recipe[name], f"recipe.{name}")


def _made_by(kinds: dict[str, Any], known: dict[str, Check]) -> Check:
    """{"name": one of `kinds`, its fields}: types by the defaults, ranges by the kind itself."""

    def check(value: Any, name: str) -> None:
        record({"name": one_of(*kinds)}, others=plain())(value, name)
        kind = kinds[value["name"]]
        own = {f.name: known.get(f.name) or _like(f.default) for f in dataclasses.fields(kind)}
        record({"name": text(), **own})(value, name)
        try:
            kind(**{field: value[field] for field in own})
        except (UsageError, OverflowError) as reason:
            raise Wrong(name, f"what can be trained with ({reason})", "these numbers") from None

    return check


def _like(default: Any) -> Check:
    return boolean if isinstance(default, bool) else number()


_NUMBER = optional(number())
_REWIRING = _made_by(REWIRINGS, {
    "frequency": _NUMBER, "long_frequency": _NUMBER, "threshold": _NUMBER,
    "fraction": _NUMBER, "keep_state": optional(boolean),
    "periods": several(row(number(0), integer(1, 2**31)), most=2**10),
})  # fmt: skip
_LOSS = record({
    "kind": one_of("cross_entropy", "mse", "bce_with_logits"),
    "label_smoothing": number(0, below=1),
    "ignore_index": integer(-(2**63), 2**63 - 1),
    "class_axis": optional(integer(1, 16)),
})  # fmt: skip

# Field of a recipe -> what this build can do with it.
KINDS: dict[str, Check] = {
    "loss": _LOSS,
    "optimizer": _made_by(OPTIMIZERS, {"lr": number(0), "weight_decay": number(0)}),
    "rewiring": optional(_REWIRING),
    "distribution": one_of(*DISTRIBUTIONS),
}
