"""What is known of each stock model: docs/models.json, by label."""

import json
from typing import Any

from benchmarks import marks

from .listed import Listed, listed

KEPT = marks.ROOT / "docs" / "models.json"


def read() -> dict[str, dict[str, Any]]:
    """Label of a model -> its figures, with the digests of the code that they were made with."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def write(kept: dict[str, dict[str, Any]]) -> None:
    """Replace the file."""
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def digests() -> dict[str, str]:
    """Of the sources that a model's figures follow from."""
    return {name: marks.digest(name) for name in ("kernels", "planner")}


def waiting(kept: dict[str, dict[str, Any]] | None = None) -> list[Listed]:
    """Models that were not measured with today's code and configuration."""
    kept, today = read() if kept is None else kept, digests()

    def current(row: Listed) -> bool:
        known = kept.get(row.label, {})
        return known.get("digests") == today and known.get("configuration") == row.text

    return [row for row in listed() if not current(row)]
