"""Densities, first patterns and rewiring of sparse weights.

A new rewiring method is a file with a frozen dataclass and a row in REWIRINGS.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import ProgramError, UsageError
from .dsr import DSR
from .rewiring import Rewiring
from .set import SET

REWIRINGS: dict[str, type[DSR] | type[SET]] = {"dsr": DSR, "set": SET}


def make_rewiring(name: str, density: float) -> Rewiring | None:
    """A method by name with its defaults for a density; None for "none".

    Raises:
      UsageError: no such method.
    """
    if name == "none":
        return None
    if name not in REWIRINGS:
        raise UsageError(f"rewiring {name!r}: expected one of none, {', '.join(REWIRINGS)}.")
    return REWIRINGS[name].for_density(density)


def rewiring_of(recipe: Mapping[str, Any]) -> Rewiring | None:
    """The method of a Program with sparse layers; None where the pattern stays.

    Raises:
      ProgramError: the recipe's method is not one of this build.
    """
    fields = recipe.get("rewiring")
    if not fields or not recipe.get("sparse_layers"):
        return None
    try:
        options = dict(fields)
        return REWIRINGS[options.pop("name")](**options)
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise ProgramError(
            f"Program: its rewiring {str(fields)[:200]!r} cannot be used ({error}). Compile the "
            "model again."
        ) from error


__all__ = ["DSR", "REWIRINGS", "SET", "Rewiring", "make_rewiring", "rewiring_of"]
