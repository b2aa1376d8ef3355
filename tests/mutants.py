"""Structured mutants of JSON: each field removed, or given another type, size or sign."""

import copy
from collections.abc import Iterator
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**70, 0.5, -1e308, "", "x", "\u202e\x1b[2J", [], [[]], {}, {"x": 1},
    [1e400], "x" * 10000,
)  # fmt: skip


def mutants(whole: Any) -> Iterator[tuple[str, Any]]:
    """Yield (description, mutant), in order of place."""
    yield from ((f"all = {str(value)[:20]!r}", value) for value in VALUES)
    for place in _places(whole):
        for value in VALUES:
            yield f"{place} = {str(value)[:20]!r}", _with(whole, place, value)
        yield f"without {place}", _with(whole, place, _GONE)
    if isinstance(whole, dict):
        yield "one more", {**whole, "one more": 1}


_GONE = object()


def _places(node: Any, above: tuple = ()) -> Iterator[tuple]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if above else ()
    for key, item in list(items)[:4] if isinstance(node, list) else items:
        yield (*above, key)
        if isinstance(item, dict | list):
            yield from _places(item, (*above, key))


def _with(whole: Any, place: tuple, value: Any) -> Any:
    found = copy.deepcopy(whole)
    node = found
    for key in place[:-1]:
        node = node[key]
    if value is _GONE:
        del node[place[-1]]
    else:
        node[place[-1]] = copy.deepcopy(value)
    return found
