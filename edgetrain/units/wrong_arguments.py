"""Which argument of a refused call is wrong."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..errors import UsageError
from .hints import did_you_mean, place_of

_BOUND = ("self", "cls")  # a method's bound argument
_SHOWN = 12  # most arguments named after "Pass the others by name"
_LISTED = 24  # most known arguments listed


def refuse(function: Callable, args: tuple, kwargs: dict[str, Any], error: TypeError) -> NoReturn:
    """Raise the one-line error for a call that Python refused.

    Args:
      error: what Python raised; raised again if no argument explains it.
    Raises:
      UsageError: names the argument, the known arguments and the closest one.
    """
    result = inspect.signature(function).parameters.values()
    several = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    own = [p for p in result if p.name not in _BOUND and p.kind not in several]
    known = [p.name for p in own]
    plain = [p.name for p in own if p.kind is not p.KEYWORD_ONLY]
    where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    first = _listed(known, _LISTED)
    has = f"expected {first}" if known else "it takes no arguments"
    given = len(args) - any(p.name in _BOUND for p in result)
    strange = [name for name in kwargs if name not in known]
    if strange:
        move = did_you_mean(strange[0], known) or place_of(strange[0])
        text = f"{strange[0]}: no such argument; {has}.{move or ' Leave it out.'}"
    elif given > len(plain):
        rest = [name for name in known if name not in plain]
        named = _listed([f"{name}=.." for name in rest], _SHOWN)
        more = f" Pass the others by name: {named}." if rest else ""
        names = ", ".join(plain) or "none"
        text = f"{given} positional arguments; expected {names}.{more or ' Leave them out.'}"
    else:
        twice = [name for name in plain[:given] if name in kwargs]
        needed = [p.name for p in own if p.default is p.empty]
        lacks = [name for name in needed if name not in kwargs and name not in plain[:given]]
        if twice:
            text = f"{twice[0]}: given twice; {has}. Leave one out."
        elif lacks:
            text = f"{', '.join(lacks)}: missing; {has}. Pass it."
        else:
            raise error
    raise UsageError(f"{where}: {text}") from None


def _listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
