"""Parsers for numbers on the command line."""

from collections.abc import Callable
from typing import Any

from ...errors import UsageError
from ...units import finite_number, whole_number


def number_within(**bounds: float) -> Callable[[str], float]:
    """A parser for finite numbers within bounds."""

    def number(text: str) -> float:
        try:
            value: Any = float(text)
        except ValueError:
            value = text
        return refused(finite_number, "", value, **bounds)

    return number


def whole_from(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """A parser for whole numbers from `least` to `most`."""

    def whole(text: str) -> int:
        try:
            value: Any = int(text)
        except ValueError:
            value = text
        return refused(whole_number, "", value, least=least, most=most)

    return whole


def grouped(number: Callable[[str], float]) -> dict[str, Any]:
    """Arguments of an option that groups of parameters may override: R or PATTERN=R."""

    def parse(text: str) -> float | tuple[str, float]:
        pattern, equals, value = text.rpartition("=")
        return (pattern, number(value)) if equals else number(text)

    return {"type": parse, "action": "grouped"}


def refused(check: Callable, *given: Any, **bounds: float) -> Any:
    """Turn a check's UsageError into argparse's error."""
    try:
        return check(*given, **bounds)
    except UsageError as error:
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(str(error).strip().rstrip(".")) from error
