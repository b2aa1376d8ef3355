"""What no other one beats in both bytes and cost: the one front of drafts, plans and schedules.

The compiled search keeps a front of its own while it runs: remat/search/archive.py.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")


def undominated(
    items: Iterable[_Item], point: Callable[[_Item], tuple[float, float]]
) -> list[_Item]:
    """By rising bytes and falling cost, of equals the first; `point` tells (bytes, cost)."""
    front: list[_Item] = []
    least = float("inf")
    for item in sorted(items, key=point):
        cost = point(item)[1]
        if cost < least:
            front.append(item)
            least = cost
    return front
