"""The table of docs/targets.md: every kind of net on every target, its state after 20 steps.

    python -m device_tests.targets_table [TARGET ...] [--kind KIND]     (all that can run here)

A target's row, or its cells of one kind, are made anew and kept in docs/targets.json beside the
others; what stands below the table is written by hand.
"""

import argparse
import json
import platform
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from edgetrain.api import bundle
from edgetrain.kernels import targets

from . import kinds
from .boards import EMULATORS, MACHINES, checked, missing

DOCS = Path(__file__).resolve().parents[1] / "docs"
COLUMNS = 8  # of a table at most
KEPT, DOCUMENT, END = DOCS / "targets.json", DOCS / "targets.md", "<!-- end rows -->"
HEAD = f"""\
# Targets

Nets as `edgetrain bundle` makes them, in C, linked and run on each target for {kinds.STEPS} steps
of made-up samples of minibatch 8. A cell holds the CRC-32 of the whole state (weights, optimizer,
pattern of the nonzeros, running statistics) that the target's binary printed; it is bold where it
is the one of Python's runtime after the same steps of the same Program. Programs are planned for a
count of lanes (32-bit numbers in a vector), so there is one for all targets that have as many;
those without a unit for float64 (cortex-m4, cortex-m33) have one of their own, which computes with
pairs of float32 instead. A cell is empty where a net was not run.

"""
TAIL = """
What happens in these steps:

"""


def row(target: str, chosen: Iterable[str]) -> Iterator[tuple[str, dict]]:
    """(kind, what was found on a target), one as soon as it is done.

    Raises:
      AssertionError: the bundle cannot be made or run.
    """
    processor = targets.get(target)
    for kind in chosen:
        program, run = kinds.program(kind, kinds.planned_for(target))
        with tempfile.TemporaryDirectory() as folder:
            bundle(program, folder, target=target)
            spike = kinds.spike_of(kind)
            found = checked(Path(folder), processor, "net", kinds.STEPS, spike)
        facts = {
            "digest": f"{found:08x}", "expected": f"{run.digest:08x}", "skipped": run.skipped,
            "rewired": run.rewired, "scales": run.scales,
        }  # fmt: skip
        print(target, kind, facts, flush=True)
        yield kind, facts


def ran_on(target: str) -> str:
    """The machine that runs a target's binaries here."""
    if target in MACHINES:
        return f"qemu-system-arm, {MACHINES[target].name}"
    return EMULATORS.get(target) or f"this {platform.machine()} machine"


def lines(kept: dict[str, dict]) -> Iterator[str]:
    """The document, down to what is written by hand."""
    yield HEAD.rstrip("\n")
    every = list(kinds.KINDS)
    for first in range(0, len(every), COLUMNS):
        yield from _table(kept, every[first : first + COLUMNS])
    yield TAIL.rstrip("\n")
    yield ""
    yield "| kind | net | steps skipped | rewirings | loss scale |"
    yield "|---|---|---:|---:|---|"
    newest: dict[str, dict] = {}
    for found in kept.values():
        newest = found["kinds"] | newest
    for kind, (net, _) in kinds.KINDS.items():
        if kind in newest:
            facts = newest[kind]
            before, after = facts["scales"]
            yield (
                f"| {kind} | {net} | {facts['skipped']} | {facts['rewired']} | "
                f"{before:g} to {after:g} |"
            )
    yield ""
    yield END


def _table(kept: dict[str, dict], chosen: list[str]) -> Iterator[str]:
    """One table of those kinds; targets that ran none of them have no row."""
    yield ""
    yield "| target | lanes | ran on | " + " | ".join(chosen) + " |"
    yield "|---|---:|---|" + "---|" * len(chosen)
    for name in (name for name in targets.TARGETS if name in kept):
        cells = [_cell(kept[name]["kinds"].get(kind)) for kind in chosen]
        if any(cells):
            lanes = targets.get(name).lanes
            yield f"| {name} | {lanes} | {kept[name]['machine']} | {' | '.join(cells)} |"


def _cell(found: dict | None) -> str:
    if found is None:
        return ""
    same = found["digest"] == found["expected"]
    return f"**{found['digest']}**" if same else f"{found['digest']} (Python {found['expected']})"


def write(kept: dict[str, dict]) -> None:
    """The rows, and the document with what is below the table as it is."""
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    below = DOCUMENT.read_text().partition(END)[2] if DOCUMENT.exists() else "\n"
    DOCUMENT.write_text("\n".join(lines(kept)) + below)


def main() -> None:
    """Run the targets that are asked for; one cell is kept as soon as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="*", choices=[*targets.TARGETS, []])
    parser.add_argument("--kind", choices=kinds.KINDS, action="append")
    given = parser.parse_args()
    for name in given.target or targets.TARGETS:
        absent = missing(targets.get(name))
        if absent:
            print(f"{name}: {absent}")
            continue
        for kind, facts in row(name, given.kind or kinds.KINDS):
            kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
            before = kept.get(name, {"kinds": {}})["kinds"]
            write({**kept, name: {"machine": ran_on(name), "kinds": {**before, kind: facts}}})


if __name__ == "__main__":
    main()
