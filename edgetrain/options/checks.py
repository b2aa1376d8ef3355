"""Checks values of options against their declarations."""

from collections.abc import Collection, Mapping
from types import NoneType
from typing import Any

from ..errors import UsageError
from ..units import finite_number
from ..units.options import is_list, typed
from .option import Option

_KINDS = {"int": int, "float": float, "bool": bool, "str": str, "None": NoneType}
_LARGEST = 2**63 - 1


def checked(option: Option, value: Any, owner: str = "") -> Any:
    """The value, converted to the declared type; options of other types are returned unchanged.

    Args:
      owner: start of the message, such as "trainer: ".
    Raises:
      UsageError: a wrong type, out of bounds, or not one of the choices.
    """
    label = f"{owner}{option.name}"
    if value is None and "None" in option.kinds:
        return None
    if option.item:
        value = {} if value is None else value
        if not isinstance(value, Mapping):
            raise UsageError(f"{label} {shown(value)}: expected a dict, such as {option.python}.")
        return {
            str(name): _plain(option, f"{label}: {name}" if name else label, item, {option.item})
            for name, item in value.items()
        }
    if option.several:
        several = isinstance(value, Collection) and is_list(value)
        if not several or not all(isinstance(item, str) for item in value):
            raise UsageError(
                f"{label} {shown(value)}: expected a list of {option.metavar.lower()}s, such as "
                f"{option.python}."
            )
        return tuple(_plain(option, label, item, {"str"}) for item in value)
    return _plain(option, label, value, option.kinds)


def _plain(option: Option, label: str, value: Any, kinds: Collection[str]) -> Any:
    """Check a number, a name or a bool."""
    if not {*kinds} <= _KINDS.keys():
        return value
    value = typed(label, value, {_KINDS[kind] for kind in kinds})
    if option.choices and value not in option.choices:
        raise UsageError(f"{label} {value!r}: expected one of {', '.join(option.choices)}.")
    if isinstance(value, float):
        return finite_number(label, value, **option.bounds)  # type: ignore[arg-type]
    if option.bounds and isinstance(value, int) and not isinstance(value, bool):
        least, most = option.bounds["least"], option.bounds.get("most", _LARGEST)
        if not least <= value <= most:
            range_ = f"{least} to {most}" if most < _LARGEST else f"at least {least}"
            wanted = range_ if least > -_LARGEST else "a 64-bit integer"
            raise UsageError(f"{label} {value}: expected {wanted}.")
    return value


def shown(value: Any) -> str:
    """How a message shows a value; classes and functions by name."""
    if isinstance(value, type) or callable(value):
        return f"<{getattr(value, '__name__', type(value).__name__)}>"
    return " ".join(repr(value).split())[:80]
