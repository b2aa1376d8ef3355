"""Command-line options of losses, optimizers and schedules, made from their fields."""

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...errors import UsageError
from ...optim import OPTIMIZERS, Optimizer
from ...units.options import flag
from ...units.plugin import Plugin, about, item_type, kinds_of, member
from .numeric import grouped, number_within, whole_from

T = TypeVar("T", bound=Plugin)


def _several(parse: Callable[[str], Any]) -> Callable[[str], tuple]:
    """A parser for numbers separated by commas."""

    def numbers(text: str) -> tuple:
        return tuple(parse(word) for word in text.split(","))

    return numbers


def owners(family: type[Plugin]) -> dict[str, dict[str, dataclasses.Field]]:
    """Option name without dashes -> the members that have it, with their field."""
    out: dict[str, dict[str, dataclasses.Field]] = {}
    for name, kind in family.kinds.items():
        for field in dataclasses.fields(kind):
            typed = about(field).flag
            if typed is not None:
                typed = typed or family.prefix + field.name
                out.setdefault(typed, {})[name] = field
    return out


def options_of(family: type[Plugin]) -> dict[str, dict[str, Any]]:
    """dest -> arguments of add_argument: the choice of member, then all options except `lr`."""
    from ...optim.groups import HYPERPARAMETERS

    out: dict[str, dict[str, Any]] = {
        family.choice: {
            "choices": list(family.kinds),
            "metavar": "NAME",
            "help": f"{', '.join(family.kinds)} (default: {family.default})",
        }
    }
    for typed, fields in owners(family).items():
        if typed != "lr":
            name, field = next(iter(fields.items()))
            hint = typing.get_type_hints(family.kinds[name])[field.name]
            text = _described(family, fields) + _defaults(fields)
            out[typed] = {"help": text.replace("%", "%%"), **_parsed(hint, field)}
            if family is Optimizer and field.name in HYPERPARAMETERS:
                out[typed] |= grouped(out[typed]["type"])
                out[typed]["help"] += f"; or '*.bias={about(field).metavar}'"
    return out


def _described(family: type[Plugin], fields: Mapping[str, dataclasses.Field]) -> str:
    """Help texts, each with the members it applies to; that of the default member needs none if all
    members have the option."""
    by_text: dict[str, list[str]] = {}
    for name, field in fields.items():
        by_text.setdefault(about(field).help, []).append(name)
    usual = []
    if len(fields) == len(family.kinds):
        usual = [about(fields[family.default]).help]
        del by_text[usual[0]]
    named = [f"{', '.join(names)}: {text}" for text, names in by_text.items()]
    return "; ".join(usual + named)


def _parsed(hint: Any, field: dataclasses.Field) -> dict[str, Any]:
    """The type of an option, the same in all its members."""
    item = item_type(hint)
    kinds, bounds = kinds_of(hint) if item is None else {item}, about(field).bounds
    if bool in kinds:
        return {"action": "store_true"}
    parse: Callable[[str], Any] = int
    if float in kinds:
        parse = number_within(**bounds)
    elif "least" in bounds:
        parse = whole_from(int(bounds["least"]), int(bounds.get("most", 2**63 - 1)))
    return {"type": parse if item is None else _several(parse), "metavar": about(field).metavar}


def _defaults(fields: Mapping[str, dataclasses.Field]) -> str:
    """ " (default: 0.1; adam, adamw: 0.001)", per member if they differ; "" without a default."""
    by_value: dict[Any, list[str]] = {}
    for name, field in fields.items():
        if type(field.default) in (int, float) and field.default >= _least(field):  # type: ignore
            by_value.setdefault(field.default, []).append(name)
    usual, *others = sorted(by_value, key=lambda value: -len(by_value[value])) or [None]
    if usual is None:
        return ""
    words = [f"{usual:g}", *(f"{', '.join(by_value[v])}: {v:g}" for v in others)]
    return f" (default: {'; '.join(words)})"


def _least(field: dataclasses.Field) -> float:
    return about(field).bounds.get("least", -math.inf)


def learning_rate_help() -> str:
    """Help of --lr, with each optimizer's default."""
    fields = {n: f for n, k in OPTIMIZERS.items() for f in dataclasses.fields(k) if f.name == "lr"}
    return f"learning rate{_defaults(fields)}"


def check_owned(family: type[Plugin], given: Mapping[str, Any]) -> None:
    """Refuse options that the chosen member does not have.

    Raises:
      UsageError: names the option and the members that have it.
    """
    name = given.get(family.choice, family.default)
    for typed, fields in owners(family).items():
        if typed in given and name not in fields:
            *some, last = fields
            those = f"{', '.join(some)} or {last}" if some else last
            raise UsageError(
                f"{flag(typed)}: it has no effect without {flag(family.choice)} {those}. Add "
                f"that, or leave {flag(typed)} out."
            )


def chosen(family: type[T], given: dict[str, Any]) -> T:
    """The requested member; removes its options from `given`.

    Raises:
      UsageError: an option is out of range.
    """
    name = given.pop(family.choice, family.default)
    own = {typed: fields[name] for typed, fields in owners(family).items() if name in fields}
    options = {field.name: given.pop(typed) for typed, field in own.items() if typed in given}
    return member(family, name)(**options)
