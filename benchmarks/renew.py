"""Renew the measured tables that are older than their code, the cheapest first.

    python -m benchmarks.renew [--hours N] [--list] [TABLE ...]        (make renew HOURS=N)

Each table is made by its own command, in a process of its own. Tables made in pieces (targets,
models) keep every finished piece, so a stopped run can continue later. Other tables are started
only if they fit into the remaining time. Whatever is still out of date is printed at the end.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from device_tests import parity_report, targets_table

from . import docs, marks
from .stock.kept import waiting as waiting_models
from .stock.listed import listed

_GRACE = 20  # seconds for a process to end by itself


@dataclass(frozen=True)
class Table:
    """A measured table.

    Attributes:
      name: as on the command line.
      document: its path, relative to the repository's root.
      command: arguments for this Python.
      minutes: time for the whole table on two cores of a server.
      left: what is out of date, in words; "" if nothing is.
      pieces: the command keeps finished pieces and may be stopped at any moment.
    """

    name: str
    document: str
    command: tuple[str, ...]
    minutes: float
    left: Callable[[], str]
    pieces: bool = False


def tables() -> list[Table]:
    """All tables, cheapest first."""
    minutes = {
        "cold": 2,
        "planner": 12,
        "table3": 2,
        "depth": 4,
        "executed": 3,
        "reforwarding": 23,
        "resnet1000": 1,
        "tfjs": 3,
        "tfjshead": 3,
        "native": 2,
        "winograd": 1,
        "expanded": 3,
        "densities": 1,
        "boards": 12,
    }
    found = [
        Table(
            name,
            section.document,
            ("-m", "benchmarks.docs", name),
            minutes[name],
            lambda name=name: _older(docs.mark_of(name)),
        )
        for name, section in docs.SECTIONS.items()
        if section.follows
    ]
    found += [
        Table("kernels", "docs/kernels.md", ("-m", "benchmarks.kernels", "--avx2", "--write"), 30,
              lambda: _older(in_document("docs/kernels.md"))),
        Table("parity", "device_tests/reports/cpu_parity.json",
              ("-m", "device_tests.parity_report", "--device", "cpu"), 20, _parity_left),
        Table("kills", "docs/kills.md",
              ("-m", "device_tests.kills", "--out", "docs/kills.md"), 6,
              lambda: _older(in_document("docs/kills.md"))),
        Table("attacks", "docs/attacks.md",
              ("-m", "tests.fuzz.attacks", "--out", "docs/attacks.md"), 90,
              lambda: _older(in_document("docs/attacks.md"))),
        Table("models", "docs/models.md", ("-m", "benchmarks.stock"), 300,
              _models_left, pieces=True),
        Table("targets", "docs/targets.md", ("-m", "device_tests.targets_table"), 360,
              _targets_left, pieces=True),
    ]  # fmt: skip
    return sorted(found, key=lambda table: table.minutes)


def in_document(name: str) -> marks.Mark | None:
    """The first mark of a document; None if it has none, or is missing."""
    path = marks.ROOT / name
    lines = path.read_text().splitlines() if path.exists() else []
    return next((mark for mark in map(marks.parse, lines) if mark is not None), None)


def _older(mark: marks.Mark | None) -> str:
    if mark is None:
        return "never made"
    stale = mark.stale()
    return f"{', '.join(stale)} changed since {mark.commit}" if stale else ""


def _parity_left() -> str:
    path = parity_report.REPORTS / "cpu_parity.json"
    made = json.loads(path.read_text()).get("made") if path.exists() else None
    return _older(None if made is None else marks.Mark(**made))


def _models_left() -> str:
    waiting = waiting_models()
    return f"{len(waiting)} of {len(listed())} models" if waiting else ""


def _targets_left() -> str:
    ready = {name for name in targets_table.TARGETS if not targets_table.absence(name)}
    waiting = targets_table.waiting()
    here = sum(cell.target in ready for cell in waiting)
    absent = len(waiting) - here
    return ", ".join(
        [f"{here} of {len(targets_table.cells())} cells"] * bool(here)
        + [f"{absent} cells of targets that cannot run here"] * bool(absent)
    )


def run(table: Table, seconds: float) -> str:
    """Make a table within a time limit; return what is still out of date, "" if nothing."""
    process = subprocess.Popen(
        [sys.executable, *table.command], cwd=marks.ROOT, start_new_session=True
    )
    try:
        status = process.wait(seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if isinstance(error, KeyboardInterrupt):
            raise
        return table.left() or "stopped by the time limit"
    return table.left() if not status else f"its command ended with status {status}"


def renew(chosen: list[Table], hours: float) -> dict[str, str]:
    """Make outdated tables, cheapest first.

    Returns:
      Table -> what is still out of date.
    """
    stop = time.monotonic() + hours * 3600
    rest = {}
    for table in chosen:
        why = table.left()
        if not why:
            continue
        seconds = stop - time.monotonic()
        if seconds <= 0 or not (table.pieces or table.minutes * 60 <= seconds):
            rest[table.name] = why
            continue
        print(f"{table.name}: {table.document}: {why}", flush=True)
        if after := run(table, seconds):
            rest[table.name] = after
    return rest


def main() -> int:
    """Return 0 if nothing is left, else 1."""
    known = {table.name: table for table in tables()}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(known))
    parser.add_argument("--hours", type=float, default=2.0, help="time limit (default: 2)")
    parser.add_argument("--list", action="store_true", help="print what is out of date and stop")
    asked = parser.parse_args()
    if unknown := set(asked.tables) - known.keys():
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(known)}")
    chosen = [table for name, table in known.items() if not asked.tables or name in asked.tables]
    if asked.list:
        rest = {table.name: why for table in chosen if (why := table.left())}
    else:
        rest = renew(chosen, asked.hours)
    for name, why in rest.items():
        table = known[name]
        print(f"left: {name} ({table.document}), some {table.minutes:g} minutes: {why}")
    return 1 if rest else 0


if __name__ == "__main__":
    sys.exit(main())
