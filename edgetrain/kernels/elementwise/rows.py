"""Tables of functions: rows by one of their facts."""

from collections.abc import Iterable
from typing import Any, TypeVar

R = TypeVar("R")


def table(fact: str, rows: Iterable[R]) -> dict[Any, R]:
    """Rows by a fact that they have, such as "name".

    Raises:
      ValueError: two rows have the same.
    """
    out: dict[Any, R] = {}
    for row in rows:
        value = getattr(row, fact)
        if value in out:
            first, second = (operand.name for operand in (out[value], row))  # type: ignore[attr-defined]
            raise ValueError(
                f"functions {first} and {second} have the same {fact}, {value}; expected different "
                "ones."
            )
        if value:
            out[value] = row
    return out
