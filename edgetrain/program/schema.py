"""Checks JSON against a schema and names the invalid field.

A check is a function of a value and its name that raises `Wrong`; a schema is a combination of
checks:

    RATES = record({"lr": number(0), "kind": one_of("step", "cosine"), "ends": several(integer(1))})
    verify(RATES, parse(text), "model.edge", ProgramError, "Compile the model again.")

    model.edge: recipe.lr: expected a finite number >= 0, found "x". Compile the model again.

Values aren't converted: 1 stays an integer if a number is expected, and true isn't a number.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import EdgetrainError

Check = Callable[[Any, str], None]

_SHOWN = 60  # characters of a value that are quoted
_NAMED = 80  # characters of a field's name
_MOST = 2**20  # items of a list


class Wrong(Exception):
    """An invalid field: "recipe.lr: expected .., found .."."""

    def __init__(self, name: str, expected: str, found: str) -> None:
        super().__init__(f"{name + ': ' if name else ''}expected {expected}, found {found}")


def parse(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
      Wrong: it is invalid, nested too deeply, or has a duplicate name.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise Wrong("", "JSON", "values nested too deeply") from None
    except ValueError as reason:
        raise Wrong("", "JSON", str(reason)) from None


def verify(check: Check, value: Any, label: str, error: type[EdgetrainError], move: str) -> None:
    """Raise `error` with `label`, the field and the `move` to make, if a field is invalid."""
    try:
        check(value, "")
    except Wrong as wrong:
        raise error(f"{label}: {wrong}. {move}") from None


def record(
    fields: Mapping[str, Check],
    optional: Mapping[str, Check] | None = None,
    others: Check | None = None,
) -> Check:
    """An object with all of `fields`; other fields must pass `others`, or are rejected."""
    known = {**fields, **(optional or {})}

    def check(value: Any, name: str) -> None:
        _object(value, name)
        for field in fields:
            if field not in value:
                raise Wrong(_inside(name, field), "this field", "none")
        for field, item in value.items():
            wanted = known.get(field, others)
            if wanted is None:
                raise Wrong(_inside(name, field), "no field of this name", _shown(item))
            wanted(item, _inside(name, field))

    return check


def by_name(check_item: Check) -> Check:
    """An object with arbitrary names."""

    def check(value: Any, name: str) -> None:
        _object(value, name)
        for field, item in value.items():
            text()(field, _inside(name, field))
            check_item(item, _inside(name, field))

    return check


def several(check_item: Check, least: int = 0, most: int = _MOST) -> Check:
    """A list with `least` to `most` items."""

    def check(value: Any, name: str) -> None:
        if type(value) is not list or not least <= len(value) <= most:
            result = f"a list of {len(value)}" if type(value) is list else _shown(value)
            raise Wrong(name, f"a list of {least} to {most} items", result)
        for number_of, item in enumerate(value):
            check_item(item, f"{name}[{number_of}]")

    return check


def row(*checks: Check) -> Check:
    """A list of exactly these items."""

    def check(value: Any, name: str) -> None:
        several(lambda *_: None, len(checks), len(checks))(value, name)
        for number_of, (item, wanted) in enumerate(zip(value, checks, strict=True)):
            wanted(item, f"{name}[{number_of}]")

    return check


def optional(check_value: Check) -> Check:
    """null, or a value that passes `check_value`."""

    def check(value: Any, name: str) -> None:
        if value is not None:
            check_value(value, name)

    return check


def integer(least: int, most: int, multiple: int = 1) -> Check:
    """An integer within bounds; true and 1.0 are rejected."""

    def check(value: Any, name: str) -> None:
        if type(value) is not int or not least <= value <= most or value % multiple:
            of = f" that {multiple} divides" if multiple > 1 else ""
            raise Wrong(name, f"a whole number from {least} to {most}{of}", _shown(value))

    return check


def number(
    least: float | None = None,
    most: float | None = None,
    *,
    below: float | None = None,
    above: float | None = None,
) -> Check:
    """A finite number within bounds."""
    bounds = {">=": least, "<=": most, "<": below, ">": above}
    wanted = " and ".join(
        f"{sign} {bound:g}" for sign, bound in bounds.items() if bound is not None
    )

    def check(value: Any, name: str) -> None:
        sound = type(value) in (int, float) and abs(value) <= 1e300  # False for NaN
        sound = sound and (least is None or value >= least) and (most is None or value <= most)
        sound = sound and (below is None or value < below) and (above is None or value > above)
        if not sound:
            raise Wrong(name, f"a finite number {wanted}".rstrip(), _shown(value))

    return check


def boolean(value: Any, name: str) -> None:
    """true or false."""
    if type(value) is not bool:
        raise Wrong(name, "true or false", _shown(value))


def text(most: int = 4096) -> Check:
    """Printable text with a maximal length."""

    def check(value: Any, name: str) -> None:
        if type(value) is not str or len(value) > most or not _is_unicode(value):
            raise Wrong(name, f"text of at most {most} characters", _shown(value))

    return check


def one_of(*choices: str) -> Check:
    """One of a few strings."""

    def check(value: Any, name: str) -> None:
        if value not in choices or type(value) is not str:
            raise Wrong(name, f"one of {', '.join(choices)}", _shown(value))

    return check


def plain(depth: int = 4) -> Check:
    """Finite numbers, strings and objects of these: only displayed, never computed with."""

    def check(value: Any, name: str) -> None:
        if type(value) in (int, float):
            number()(value, name)
        elif type(value) is str:
            text()(value, name)
        elif depth and type(value) is dict:
            by_name(plain(depth - 1))(value, name)
        elif depth and type(value) is list:
            several(plain(depth - 1))(value, name)
        elif value is not None and type(value) is not bool:
            raise Wrong(name, "numbers or text", _shown(value))

    return check


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"the name {_shown(name)} occurs twice")
        result[name] = value
    return result


def _object(value: Any, name: str) -> None:
    if type(value) is not dict:
        raise Wrong(name, "an object", _shown(value))


def _inside(name: str, field: str) -> str:
    shown = field if field.isprintable() else json.dumps(field)
    shown = shown if len(shown) <= _NAMED else shown[:_NAMED] + ".."
    return f"{name}.{shown}" if name else shown


def _shown(value: Any) -> str:
    """A value as JSON, shortened."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    shown = json.dumps(value)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + ".."


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        return False
    return True
