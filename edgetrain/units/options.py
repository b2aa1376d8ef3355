"""Options as they are given: of their type, and none that nothing looks at.

NEEDS is the one table of options that mean nothing without another one. The command line reads it
with what was typed; the classes that hold options (Options, SGD, Trainer, ..) with what departs
from their defaults. An option that belongs to one loss, optimizer or schedule is a field of its
class (plugin.py).
"""

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

from ..errors import UsageError

Values = Mapping[str, Any]


class Need(NamedTuple):
    """What an option needs to mean anything.

    Attributes:
      option: the other option; `value`, what it should say, for the message.
      met: whether the options, those not given left out, fulfil it.
    """

    option: str
    value: str
    met: Callable[[Values], bool]


def _sparse(values: Values) -> bool:
    overrides = values.get("density_overrides") or {}
    return values.get("density", 1.0) < 1 or any(d < 1 for d in overrides.values())


def _positive(option: str, value: str) -> Need:
    return Need(option, value, lambda values: values.get(option, 0) > 0)


_SPARSE = Need("density", "below 1", _sparse)
_WRITES = Need("out", "DIR", lambda values: values.get("out") is not None)
_MOVES = _positive("momentum", "above 0")

# Option -> what it needs; names are those of the command line, dashes apart.
NEEDS: dict[str, Need] = {
    "distribution": _SPARSE,
    "rewiring": _SPARSE,
    "nesterov": _MOVES,
    "dampening": _MOVES,
    "save_steps": _WRITES,
    "save_seconds": _WRITES,
    "save_total_limit": _WRITES,
    "verify_saves": _WRITES,
    "label": Need("data", "csv:FILE", lambda values: str(values.get("data")).startswith("csv:")),
}
# These ask for what is there without the option, so that nothing is ignored.
_NOTHING = {"rewiring": (None, "none"), "label": (None,)}


def flag(option: str) -> str:
    """An option as it is typed."""
    return f"--{option.replace('_', '-')}"


def check_needs(
    given: Collection[str], values: Values, called: Callable[[str], str] = flag, where: str = ""
) -> None:
    """Refuse options that have no effect beside the others.

    Args:
      given: names of the options that somebody asked for.
      values: every option that is known, by its name of the command line.
      called: what an option is called in the message.
      where: what the message begins with.
    Raises:
      UsageError: names the option and the one it needs.
    """
    for option, need in NEEDS.items():
        asked = option in given and values.get(option) not in _NOTHING.get(option, ())
        if asked and not need.met(values):
            raise UsageError(
                f"{where}{called(option)}: it has no effect without {called(need.option)} "
                f"{need.value}. Give that too, or leave {called(option)} out."
            )


def check_options(options: Any, owner: str = "") -> None:
    """Check the fields of a dataclass of options: types, then what each of them needs.

    Args:
      options, owner: as in `check_types`.
    Raises:
      UsageError: a field of another type, or one that departs from its default without effect.
    """
    check_types(options, owner)
    check_departures(options, owner)


def check_types(options: Any, owner: str = "") -> None:
    """Check the types of a dataclass' fields; those of none of the types of `typed` are left alone.

    A number of numpy becomes Python's, a whole number where a float is due a float.

    Args:
      owner: what a message begins with, such as "optimizer sgd".
    """
    owned: Any = type(options)
    for name, kinds in _kinds(owned).items():
        value = typed(f"{_begin(owner)}{name}", getattr(options, name), kinds)
        object.__setattr__(options, name, value)


def check_departures(options: Any, owner: str = "") -> None:
    """Refuse fields that depart from their default and have no effect beside the others."""
    fields = dataclasses.fields(options)
    values = {f.name: getattr(options, f.name) for f in fields}
    departs = [f.name for f in fields if values[f.name] != _default(f)]
    check_needs(departs, values, str, _begin(owner))


def _begin(owner: str) -> str:
    return f"{owner}: " if owner else ""


def typed(label: str, value: Any, kinds: Collection[type]) -> Any:
    """`value` as one of `kinds` (int, float, bool, str, NoneType).

    Raises:
      UsageError: it is none of them, or a float that is not finite.
    """
    if value is None and types.NoneType in kinds:
        return None
    if isinstance(value, bool) and bool in kinds:
        return value
    if isinstance(value, str) and str in kinds:
        return value
    number = not isinstance(value, bool)
    if number and isinstance(value, numbers.Integral) and int in kinds:
        return int(value)
    if number and isinstance(value, numbers.Real) and float in kinds and math.isfinite(value):
        return float(value)
    wanted = [words for kind, words in _WORDS.items() if kind in kinds]
    raise UsageError(f"{label} {repr(value)[:80]}: expected {' or '.join(wanted)}.")


_WORDS = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "a text",
    types.NoneType: "None",
}


@cache
def _kinds(cls: type) -> dict[str, frozenset[type]]:
    """The types of the fields that are made of `_WORDS` alone."""
    hints = typing.get_type_hints(cls)
    out = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        several = typing.get_origin(hint) in (typing.Union, types.UnionType)
        parts = frozenset(typing.get_args(hint) if several else (hint,))
        if parts <= _WORDS.keys():
            out[field.name] = parts
    return out


def _default(field: dataclasses.Field) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()
