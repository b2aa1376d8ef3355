"""Parses and checks the options `lengths` and `tokens`."""

from collections.abc import Mapping
from typing import Any

from ...errors import UsageError
from ...units.options import is_list, typed

MOST_LENGTHS = 64


def make_lengths(given: Any) -> dict[str, tuple[int, ...]]:
    """Lengths by the name of their dimension; "" means the only one the model has.

    Raises:
      UsageError: several dimensions, a length that is not a whole number above 0, or one that
        occurs twice.
    """
    given = () if given is None else given
    if isinstance(given, Mapping) and len(given) != 1:
        names = ", ".join(map(str, given)) or "none"
        raise UsageError(f"lengths: dimensions {names}; expected one.")
    name, sizes = next(iter(given.items()), ("", ())) if isinstance(given, Mapping) else ("", given)
    label = f"lengths: {name}" if name else "lengths"
    if not is_list(sizes):
        raise UsageError(f"{label} {repr(sizes)[:80]}: expected a list such as [32, 64, 128].")
    lengths = tuple(typed(label, size, (int,)) for size in sizes)
    for size in lengths:
        if size < 1:
            raise UsageError(f"{label} {size}: expected at least 1.")
        if lengths.count(size) > 1:
            raise UsageError(f"{label}: {size} occurs {lengths.count(size)} times. Name it once.")
    if len(lengths) == 1 or len(lengths) > MOST_LENGTHS:
        raise UsageError(
            f"{label}: {len(lengths)} of them; expected 2 to {MOST_LENGTHS}. One size is a dim "
            f"(--dim {name or 'T'}={lengths[0]}, in Python dims)."
        )
    return {str(name): lengths} if lengths else {}
