"""Checks the JSON of losses, optimizers, schedules and rewirings against their classes' fields."""

import dataclasses
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...errors import UsageError
from ...program.schema import (
    Check,
    Wrong,
    boolean,
    integer,
    number,
    one_of,
    optional,
    plain,
    record,
    several,
    text,
)
from ...units.plugin import about, item_type, kinds_of


def made_by(kinds: Mapping[str, Any], known: Mapping[str, Check]) -> Check:
    """Schema of {"name": one of `kinds`, its fields}. Types come from `known` or the defaults,
    ranges from the class."""

    def check(value: Any, name: str) -> None:
        record({"name": one_of(*kinds)}, others=plain())(value, name)
        kind = kinds[value["name"]]
        own = {
            f.name: known.get(f.name) or (boolean if isinstance(f.default, bool) else number())
            for f in dataclasses.fields(kind)
        }
        _make(kind, own, value, name)

    return check


def member_of(kinds: Mapping[str, Any]) -> Check:
    """Schema of {"name": a member of a family, its options}, with declared types and bounds;
    options that earlier versions did not write may be missing."""

    def check(value: Any, name: str) -> None:
        record({"name": one_of(*kinds)}, others=plain())(value, name)
        kind = kinds[value["name"]]
        hints = typing.get_type_hints(kind)
        own = {f.name: _declared(f, hints[f.name]) for f in dataclasses.fields(kind)}
        _make(kind, own, value, name, kind.absent)

    return check


def _make(
    kind: Any,
    own: Mapping[str, Check],
    value: Any,
    name: str,
    absent: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    late = {field: check for field, check in own.items() if field in absent}
    always = {field: check for field, check in own.items() if field not in absent}
    record({"name": text(), **always}, late)(value, name)
    try:
        kind(**{field: value.get(field, absent.get(field)) for field in own})
    except (UsageError, OverflowError) as reason:
        raise Wrong(name, f"valid values ({reason})", "these values") from None


def _declared(field: dataclasses.Field, hint: Any) -> Check:
    bounds: Any = about(field).bounds
    item = item_type(hint)
    kinds = kinds_of(hint) if item is None else {item}
    least = bounds.get("least", -(2**63))
    check = boolean if bool in kinds else integer(least, 2**63 - 1)
    if float in kinds:
        check = number(**bounds)
    if item is not None:
        return several(check)
    return optional(check) if type(None) in kinds else check
