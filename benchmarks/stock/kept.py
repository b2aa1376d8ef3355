"""The measurements kept for each stock model: docs/models.json, by label."""

import json
from collections.abc import Mapping
from typing import Any

from benchmarks import marks

from .listed import Listed, listed

KEPT = marks.ROOT / "docs" / "models.json"
_SOURCES = "kernels", "planner"


def read() -> dict[str, dict[str, Any]]:
    """Read the figures by model label, with the digests of the code they were measured with."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def write(kept: dict[str, dict[str, Any]]) -> None:
    """Replace the file."""
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def stamp(row: Listed) -> dict[str, Any]:
    """The row's configuration and the digests of the code that measures it."""
    mark = marks.now(_SOURCES)
    return {"configuration": row.text, "commit": mark.commit, "digests": dict(mark.digests)}


def has_same_kernels(facts: Mapping[str, Any]) -> bool:
    """Whether a row was measured with today's kernels."""
    return facts.get("digests", {}).get("kernels") == marks.digest("kernels")


def waiting(kept: dict[str, dict[str, Any]] | None = None) -> list[Listed]:
    """Models never measured, then those measured with other code or in another configuration."""
    kept = read() if kept is None else kept
    today = {name: marks.digest(name) for name in _SOURCES}

    def current(row: Listed) -> bool:
        known = kept.get(row.label, {})
        return known.get("digests") == today and known.get("configuration") == row.text

    left = [row for row in listed() if not current(row)]
    return sorted(left, key=lambda row: row.label in kept)
