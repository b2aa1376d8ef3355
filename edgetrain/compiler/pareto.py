"""Pareto fronts of bytes and cost, for drafts, plans and schedules.

The compiled search has its own front: remat/search/archive.py.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")


def undominated(
    items: Iterable[_Item], point: Callable[[_Item], tuple[float, float]]
) -> list[_Item]:
    """Items that no other item beats in both, by rising bytes; `point` returns (bytes, cost)."""
    front: list[_Item] = []
    least = float("inf")
    for item in sorted(items, key=point):
        cost = point(item)[1]
        if cost < least:
            front.append(item)
            least = cost
    return front
