"""Checks options: their types, and that each has an effect.

NEEDS lists the options that have no effect without another one. The command line checks the options
that were typed; classes with options (Options, SGD, Trainer, ..) check those that differ from their
defaults. Options of one loss, optimizer or schedule are fields of its class (plugin.py).
"""

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from ..errors import UsageError

Values = Mapping[str, Any]


class Need(NamedTuple):
    """The other option without which an option has no effect.

    Attributes:
      option: the other option.
      value: its required value, for the message.
      met: whether the given options meet the need.
    """

    option: str
    value: str
    met: Callable[[Values], bool]


def _sparse(values: Values) -> bool:
    overrides = values.get("density_overrides") or {}
    return values.get("density", 1.0) < 1 or any(d < 1 for d in overrides.values())


_SPARSE = Need("density", "below 1", _sparse)
_WRITES = Need("out", "DIR", lambda values: values.get("out") is not None)
_MOVES = Need("momentum", "above 0", lambda values: values.get("momentum", 0) > 0)

# Option -> its needs; names as on the command line, without dashes.
NEEDS: dict[str, Need] = {
    "distribution": _SPARSE,
    "rewiring": _SPARSE,
    "nesterov": _MOVES,
    "dampening": _MOVES,
    "save_steps": _WRITES,
    "save_seconds": _WRITES,
    "save_total_limit": _WRITES,
    "verify_saves": _WRITES,
    "tokens": Need("lengths", "32,64,128", lambda values: bool(values.get("lengths"))),
    "label": Need("data", "csv:FILE", lambda values: str(values.get("data")).startswith("csv:")),
}
# Values that equal the default, so nothing is ignored.
_NOTHING = {"rewiring": (None, "none"), "label": (None,)}


def flag(option: str) -> str:
    """An option as typed on the command line."""
    return f"--{option.replace('_', '-')}"


def check_needs(
    given: Collection[str], values: Values, called: Callable[[str], str] = flag, where: str = ""
) -> None:
    """Refuse options that have no effect with the others.

    Args:
      given: names of the options the user set.
      values: all options, by command-line name.
      called: turns an option's name into its name in the message.
      where: start of the message.
    Raises:
      UsageError: names the option and the one it needs.
    """
    for option, need in NEEDS.items():
        asked = option in given and values.get(option) not in _NOTHING.get(option, ())
        if asked and not need.met(values):
            raise UsageError(
                f"{where}{called(option)}: it has no effect without {called(need.option)} "
                f"{need.value}. Add that, or leave {called(option)} out."
            )


def check_options(options: Any, owner: str = "") -> None:
    """Check a dataclass of options: types, then needs.

    Args:
      options, owner: as in `check_types`.
    Raises:
      UsageError: a field has a wrong type, or was set but has no effect.
    """
    check_types(options, owner)
    check_departures(options, owner)


def check_types(options: Any, owner: str = "") -> None:
    """Check the types of a dataclass's fields, if `typed` knows them.

    numpy numbers become Python numbers, one-dimensional arrays tuples, and integers floats in float
    fields.

    Args:
      owner: start of the message, such as "optimizer sgd".
    """
    owned: Any = type(options)
    unpack_arrays(options)
    for name, kinds in _kinds(owned).items():
        value = typed(f"{_begin(owner)}{name}", getattr(options, name), kinds)
        object.__setattr__(options, name, value)


def check_departures(options: Any, owner: str = "") -> None:
    """Refuse fields that differ from their default but have no effect with the others."""
    unpack_arrays(options)
    fields = dataclasses.fields(options)
    values = {f.name: getattr(options, f.name) for f in fields}
    departs = [f.name for f in fields if not _equal(values[f.name], _default(f))]
    check_needs(departs, values, str, _begin(owner))


def _equal(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except ValueError:  # an array
        return False


def unpack_arrays(options: Any) -> None:
    """Turn arrays into tuples, since a comparison with an array is not true or false."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if hasattr(value, "tolist") and getattr(value, "ndim", 0) > 0:
            object.__setattr__(options, field.name, _tuple(value.tolist()))


def _tuple(values: list) -> tuple:
    return tuple(_tuple(value) if isinstance(value, list) else value for value in values)


def _begin(owner: str) -> str:
    return f"{owner}: " if owner else ""


def typed(label: str, value: Any, kinds: Collection[type]) -> Any:
    """Check that `value` has one of the types `kinds` (int, float, bool, str, NoneType).

    Raises:
      UsageError: it has another type, or is a non-finite float.
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
    if number and isinstance(value, numbers.Real) and float in kinds and _is_finite(value):
        return float(value)
    wanted = [words for kind, words in _WORDS.items() if kind in kinds]
    raise UsageError(f"{label} {repr(value)[:80]}: expected {' or '.join(wanted)}.")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def is_list(value: Any) -> bool:
    """Whether `value` has items in order or as a set: not a string, a mapping or a 0-d array."""
    return (
        isinstance(value, Iterable)
        and not isinstance(value, str | bytes | bytearray | Mapping)
        and getattr(value, "ndim", 1) != 0
    )


_WORDS = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "a string",
    types.NoneType: "None",
}


@cache
def _kinds(cls: type) -> dict[str, frozenset[type]]:
    """The types of the fields whose types are all in `_WORDS`."""
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
