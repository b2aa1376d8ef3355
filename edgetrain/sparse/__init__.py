"""Densities, initial patterns and rewiring of sparse weights.

A new rewiring method is a file with a frozen dataclass, listed here.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ProgramError, UsageError
from ..units.plugin import Members

if TYPE_CHECKING:
    from .dsr import DSR
    from .rewiring import Rewiring
    from .set import SET

# How nonzeros are distributed over layers (density.py), with the meanings of the names.
DISTRIBUTIONS = {"uniform": "", "erk": "Erdos-Renyi kernel"}
REWIRINGS = Members()
__getattr__ = REWIRINGS.listed(
    __name__, {"dsr": "dsr.DSR", "set": "set.SET"}, {"Rewiring": "rewiring"}
)


def make_rewiring(text: str) -> "Rewiring | None":
    """A rewiring method by name; None for "none".

    Args:
      text: the name, or `name:field=value,..`, such as "dsr:frequency=2,keep_state=true".
    Raises:
      UsageError: no such method or field, or an invalid value.
    """
    name, colon, given = text.partition(":")
    if text == "none":
        return None
    if name not in REWIRINGS:
        raise UsageError(f"rewiring {name!r}: expected one of none, {', '.join(REWIRINGS)}.")
    method = REWIRINGS[name]()
    return dataclasses.replace(method, **_fields(method, given)) if colon else method


def _fields(method: "Rewiring", given: str) -> dict[str, Any]:
    own = {f.name for f in dataclasses.fields(method) if f.name != "periods"}
    result = {}
    for item in given.split(","):
        field, _, value = item.strip().partition("=")
        try:
            number = json.loads(value)
        except ValueError:
            number = None
        if field not in own or not isinstance(number, int | float):
            raise UsageError(
                f"rewiring {method.name}: {item!r}; expected field=number or field=true, with "
                f"fields {', '.join(sorted(own))}."
            )
        result[field] = number
    return result


def rewiring_of(recipe: Mapping[str, Any]) -> "Rewiring | None":
    """The rewiring method of a Program; None if it has none.

    Raises:
      ProgramError: this build does not support the method.
    """
    fields = recipe.get("rewiring")
    if not fields or not recipe.get("sparse_layers"):
        return None
    try:
        options = dict(fields)
        return REWIRINGS[options.pop("name")](**options)
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise ProgramError(
            f"Program: bad rewiring {str(fields)[:200]!r} ({error}). Compile the model again."
        ) from error


__all__ = ["DSR", "REWIRINGS", "SET", "Rewiring", "make_rewiring", "rewiring_of"]
