"""`migrate`."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from ...kernels import control
from ...migration import Migrated
from ...migration import migrate as migrated
from ...screen.tables import to_json
from ..parser.namespace import Namespace

# Role of a tensor -> its plural for people.
_NAMES = {
    "parameter": "weights",
    "buffer": "running statistics",
    "index": "tables of sparse positions",
    "state": "optimizer states",
}
_SHOWN = 4  # kernels, or names of states


def migrate(arguments: Namespace) -> int:
    """Convert a run to this version; print what was carried over and which bits may differ."""
    result = migrated(arguments.run, arguments.model, out=arguments.out, budget=arguments.budget)
    shown = _path(arguments, result)
    if result.warning is not None:
        print(f"warning: {result.warning}", file=sys.stderr)
    if arguments.json:
        print(to_json(_facts(shown, result)))
    else:
        print("\n".join(_lines(shown, result)))
    return 0


def _path(arguments: Namespace, found: Migrated) -> str:
    """The directory as the user typed it; if the command runs in it, and so now in the old run,
    its absolute path."""
    if found.before is not None and Path.cwd().is_relative_to(found.before):
        return str(found.path)
    return str(arguments.run if arguments.out is None else arguments.out)


def _facts(shown: str, found: Migrated) -> dict[str, Any]:
    return {
        "path": shown, "before": None if found.before is None else str(found.before),
        "step": found.step, "carried": found.counts, "converted": found.converted,
        "begun": found.begun, "dropped": found.dropped, "kernels": found.departures,
        "same_bits": not _differs(found), "arena_nbytes": found.program.arena_nbytes,
    }  # fmt: skip


def _lines(shown: str, found: Migrated) -> list[str]:
    counts = [f"{count} {_NAMES[role]}" for role, count in found.counts.items()]
    counters = [name.replace("_", " ") for name in (*control.SAVED, *control.SAVED_REALS)]
    lines = [f"{shown}: compiled again, arena {found.program.arena_nbytes:,} bytes"]
    if found.step is None:
        lines.append("carried over: initial weights; the run has no checkpoint yet")
    else:
        lines.append(
            f"carried over at step {found.step}: {', '.join(counts)}; position in the data, "
            f"{', '.join(counters)}, schedule"
        )
    for names, what in (
        (found.converted, "stored differently"),
        (found.begun, "new in this version; starts at zero"),
        (found.dropped, "not used by this version"),
    ):
        if names:
            lines.append(f"{what}: {_some(names)}")
    lines.append(f"bits: {_bits(found)}")
    if found.before is not None:
        inside = Path.cwd().is_relative_to(found.before)
        lines.append(
            f"the old run is in {found.before if inside else os.path.relpath(found.before)}"
        )
    return [
        *lines,
        f"Continue with: edgetrain train --resume {shlex.quote(shown)} --data .. --epochs ..",
    ]


def _differs(found: Migrated) -> bool:
    return bool(found.departures or found.converted or found.begun or found.dropped)


def _bits(found: Migrated) -> str:
    if found.departures:
        return f"may differ from the old version from here on: {_some(found.departures)}"
    if _differs(found):
        return "may differ from the old version from here on, because storage formats changed"
    return "should not differ: kernels and their revisions are the same"


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
