"""The tables of docs/targets.md: every kind of net on every target, its state after five steps.

    python -m device_tests.targets_table [TARGET ...] [--kind KIND]     (all that can run here)

What is found is kept in docs/targets.json, cell by cell, with digests of the sources and of the
files that were run: a cell is made again if its sources changed, and run again if its files did.
What is below the tables is written by hand.
"""

import argparse
import collections
import fcntl
import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks import marks
from edgetrain.api import bundle
from edgetrain.kernels import targets
from edgetrain.program import Program

from . import avx512, kinds
from .boards import EMULATORS, MACHINES, checked, made, missing

STEPS = 5
SOURCES = ("kernels", "planner", "runtime")  # of marks.SOURCES
DOCS = Path(__file__).resolve().parents[1] / "docs"
KEPT, DOCUMENT, END = DOCS / "targets.json", DOCS / "targets.md", "<!-- end rows -->"
# C libraries only: modules for pages are tested in tests/bundle/test_module.py and test_bundle.py.
TARGETS = [name for name, target in targets.TARGETS.items() if not target.module]
AVX512 = "x86-64-v4"
BOOT = 16  # cells in one boot of the emulated PC
WAYS = list(product(kinds.STORAGES, ("speed", "size")))
HEAD = f"""\
# Targets

Do all targets give the same bits? `edgetrain bundle` makes a C library of each network; it is
linked and run on each target for {STEPS} steps of generated samples (minibatch 8; one step makes
the numbers overflow).

A cell shows the CRC-32 of the whole state: weights, optimizer, sparse pattern and running
statistics. It is bold if Python's runtime has the same after the same steps. Programs are planned
for a number of lanes (32-bit numbers per vector), so targets with the same number share a
Program. Targets without a float64 unit (cortex-m4, cortex-m33) have their own, which computes
with pairs of float32. An empty cell was not run.

## Every net for speed

The kinds of networks in `device_tests/kinds.py`, and the other networks of `examples/zoo` in fp16.
"""
RECURRENT = """
## Recurrent nets

LSTM, GRU and plain RNN: two layers of 48 units, 64 units bidirectional, 72 units.
"""
PAIRED = """
## Other storages, and for size

Each network of `examples/zoo` in fp32, in int8 and optimized for size, each on one target in turn.
"""
TAIL = """
## What happens in these steps
"""


class Cell(NamedTuple):
    """A net on a target; `storage`: "" if the kind sets its own."""

    kind: str
    target: str
    storage: str = ""
    mode: str = "speed"

    @property
    def row(self) -> str:
        """The cell's key in the file, under its target."""
        return f"{self.kind}, {self.storage}, {self.mode}" if self.storage else self.kind


def cells() -> list[Cell]:
    """All cells: recurrent nets in every storage and mode, other nets for speed, and `pairs`."""
    whole = [(kind, *way) for kind in kinds.RECURRENT for way in WAYS]
    known = {net for net, _ in kinds.KINDS.values()}
    own = [(kind, "", "speed") for kind in kinds.KINDS]
    zoo = [(kind, "fp16", "speed") for kind in kinds.FAMILIES if kind not in known]
    every = [Cell(kind, target, *way) for kind, *way in (*whole, *own, *zoo) for target in TARGETS]
    return every + [cell for chosen in pairs().values() for cell in chosen]


def pairs() -> dict[str, list[Cell]]:
    """Cells by net of the zoo that cover every pair of net, target, storage and mode.

    Pairs for speed in fp16 are left out: they are all in `cells`.
    """
    names, out = TARGETS, {}
    for k, kind in enumerate(kinds.FAMILIES):
        one, other = ("speed", "size") if k // len(names) % 2 else ("size", "speed")
        ways = ("fp32", one), ("int8", other), ("fp16", "size")
        places = (names[(k + step) % len(names)] for step in (0, 3, 5))
        out[kind] = [Cell(kind, place, *way) for place, way in zip(places, ways, strict=True)]
    return out


def key_of(program: Program, folder: Path) -> str:
    """Digest of a cell's inputs: its Program and the bundle that is run."""
    whole = hashlib.sha256()
    for path in [program.save(folder / "net.edge"), *sorted(folder.glob("*.[ach]"))]:
        content = path.read_bytes()
        whole.update(f"{path.name} {len(content)} ".encode() + content)
    return whole.hexdigest()[:16]


def found(cell: Cell, before: dict | None) -> dict:
    """Run a cell; return `before` if neither its Program nor its bundle has changed.

    Raises:
      AssertionError: the bundle cannot be made or run.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key = bundled(cell, folder)
        if before is not None and key == before.get("key"):
            return before
        spike = kinds.spike_of(cell.kind, cell.storage)
        digest = checked(folder, targets.get(cell.target), "net", STEPS, spike)
    return _facts(cell, key, digest)


def emulated(chosen: Sequence[Cell], kept: dict[str, dict]) -> Iterator[tuple[Cell, dict]]:
    """Like `found`, for cells that need AVX-512, on a machine without it; many in one boot.

    Raises:
      AssertionError: a bundle cannot be made or run.
    """
    for start in range(0, len(chosen), BOOT):
        some = chosen[start : start + BOOT]
        with tempfile.TemporaryDirectory() as name:
            keys: dict[Cell, str] = {}
            programs: dict[str, Path] = {}
            folders = [Path(name, f"{k}") for k in range(len(some))]
            for cell, folder in zip(some, folders, strict=True):
                before = _rows(kept, cell.target).get(cell.row, {})
                key = bundled(cell, folder)
                if key == before.get("key"):
                    yield cell, before
                    shutil.rmtree(folder)
                    continue
                keys[cell] = key
                spike = kinds.spike_of(cell.kind, cell.storage)
                made(folder, targets.get(cell.target), [f"SPIKE={spike}f"], static=True)
                programs[cell.row] = folder / "net"
            disc = Path(name, "boot")
            printed = avx512.outputs(programs, ["check", str(STEPS)], disc) if programs else {}
        for cell, key in keys.items():
            yield cell, _facts(cell, key, int(printed[cell.row].split()[0], 16))


def bundled(cell: Cell, folder: Path) -> str:
    """Make the bundle of a cell in a folder and return its key."""
    program = kinds.compiled(cell.kind, kinds.planned_for(cell.target), cell.storage)
    bundle(program, folder, target=cell.target, size=cell.mode == "size")
    return key_of(program, folder)


def _facts(cell: Cell, key: str, digest: int) -> dict:
    planned = kinds.planned_for(cell.target)
    _, run = kinds.program(cell.kind, planned, cell.storage, STEPS)
    return {
        "key": key, "digest": f"{digest:08x}", "expected": f"{run.digest:08x}",
        "skipped": run.skipped, "rewired": run.rewired, "scales": run.scales,
    }  # fmt: skip


def sources() -> dict[str, str]:
    """Digests of the code that a cell depends on."""
    return {name: marks.digest(name) for name in SOURCES}


def waiting(kept: dict[str, dict] | None = None) -> list[Cell]:
    """Cells not made with the current sources."""
    kept, today = _kept() if kept is None else kept, sources()

    def current(cell: Cell) -> bool:
        facts = _rows(kept, cell.target).get(cell.row, {})
        return facts.get("sources") == today

    return [cell for cell in cells() if not current(cell)]


def is_emulated(target: str) -> bool:
    """Whether a target needs AVX-512 and this processor has none."""
    return target == AVX512 and not avx512.supported()


def absence(target: str) -> str:
    """Why a target's cells cannot be made here; "" if they can."""
    return avx512.missing() if is_emulated(target) else missing(targets.get(target))


def ran_on(target: str) -> str:
    """The machine or emulator that runs a target's binaries here."""
    if is_emulated(target):
        return avx512.NAME
    if target in MACHINES:
        return f"qemu-system-arm, {MACHINES[target].name}"
    return EMULATORS.get(target) or f"this {platform.machine()} machine"


def lines(kept: dict[str, dict]) -> Iterator[str]:
    """The document, up to the handwritten part."""
    names = [name for name in TARGETS if name in kept]
    rows: dict[str, dict[str, str]] = {}
    for cell in cells():
        facts = _rows(kept, cell.target).get(cell.row)
        if facts is not None:
            rows.setdefault(cell.row, {})[cell.target] = _cell(facts)
    paired = {cell.row for chosen in pairs().values() for cell in chosen}
    whole = {row for row in rows if row.partition(",")[0] in kinds.RECURRENT}
    yield from HEAD.splitlines()
    yield from _table([row for row in rows if row not in paired | whole], names, rows)
    yield ""
    yield "| target | lanes | ran on |"
    yield "|---|---:|---|"
    for name in names:
        yield f"| {name} | {targets.get(name).lanes} | {kept[name]['machine']} |"
    yield from RECURRENT.splitlines()
    yield from _table([row for row in rows if row in whole], names, rows)
    yield from PAIRED.splitlines()
    yield from _paired(rows)
    yield from TAIL.splitlines()
    yield from _happened(kept)
    yield ""
    yield made_at(kept)
    yield END


def made_at(kept: dict[str, dict]) -> str:
    """How many cells were made at which commit, out of how many."""
    known = [(cell.target, cell.row) for cell in cells()]
    facts = [kept[name]["kinds"][row] for name, row in known if row in _rows(kept, name)]
    counts = collections.Counter(one.get("commit", "an earlier commit") for one in facts)
    parts = [f"{number} at {commit}" for commit, number in counts.most_common()]
    return f"{len(facts)} of {len(known)} cells were made: {', '.join(parts)}."


def _rows(kept: dict[str, dict], target: str) -> dict[str, dict]:
    return kept.get(target, {"kinds": {}})["kinds"]


def _table(chosen: list[str], names: list[str], rows: dict[str, dict[str, str]]) -> Iterator[str]:
    yield ""
    yield f"| | {' | '.join(names)} |"
    yield "|---|" + "---|" * len(names)
    for row in chosen:
        yield f"| {row} | {' | '.join(rows[row].get(name, '') for name in names)} |"


def _paired(rows: dict[str, dict[str, str]]) -> Iterator[str]:
    ways = [way for way in WAYS if way != ("fp16", "speed")]
    yield ""
    yield "| | " + " | ".join(f"{storage}, {mode}" for storage, mode in ways) + " |"
    yield "|---|" + "---|" * len(ways)
    for kind, chosen in pairs().items():
        found = {
            (cell.storage, cell.mode): f"{cell.target} {rows[cell.row][cell.target]}"
            for cell in chosen
            if cell.target in rows.get(cell.row, {})
        }
        if found:
            yield f"| {kind} | {' | '.join(found.get(way, '') for way in ways)} |"


def _happened(kept: dict[str, dict]) -> Iterator[str]:
    yield ""
    yield "| | steps skipped | rewirings | loss scale |"
    yield "|---|---:|---:|---|"
    newest: dict[str, dict] = {}
    for target in kept.values():
        newest = target["kinds"] | newest
    for row in dict.fromkeys(cell.row for cell in cells()):
        if row in newest:
            facts = newest[row]
            before, after = facts["scales"]
            yield (f"| {row} | {facts['skipped']} | {facts['rewired']} | {before:g} to {after:g} |")


def _cell(found: dict | None) -> str:
    if found is None:
        return ""
    same = found["digest"] == found["expected"]
    return f"**{found['digest']}**" if same else f"{found['digest']} (Python {found['expected']})"


def keep(cell: Cell, facts: dict) -> None:
    """Store a cell in the file and rewrite the document; safe for several processes."""
    with open(KEPT, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = _kept()
        target = kept.setdefault(cell.target, {"kinds": {}})
        if facts["key"] != target["kinds"].get(cell.row, {}).get("key"):
            target["machine"] = ran_on(cell.target)
        target["kinds"][cell.row] = facts | {
            "commit": marks.now(SOURCES).commit,
            "sources": sources(),
        }
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        below = DOCUMENT.read_text().partition(END)[2] if DOCUMENT.exists() else "\n"
        DOCUMENT.write_text("\n".join(lines(kept)) + below)


def _kept() -> dict[str, dict]:
    text = KEPT.read_text() if KEPT.exists() else ""
    return json.loads(text or "{}")


def main() -> None:
    """Run the requested cells; each is stored as soon as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="*", choices=[*TARGETS, []])
    parser.add_argument("--kind", choices=kinds.EVERY, action="append")
    given = parser.parse_args()
    chosen = given.target or TARGETS
    absent = {name: absence(name) for name in chosen}
    for name, why in absent.items():
        if why:
            print(f"{name}: {why}")
    wanted = given.kind or kinds.EVERY
    left = [cell for cell in waiting() if cell.kind in wanted and not absent.get(cell.target, True)]
    kept = _kept()
    slow = [cell for cell in left if is_emulated(cell.target)]
    for cell in left:
        if cell not in slow:
            before = _rows(kept, cell.target).get(cell.row)
            _told(cell, found(cell, before), before)
    for cell, facts in emulated(slow, kept):
        _told(cell, facts, _rows(kept, cell.target).get(cell.row))


def _told(cell: Cell, facts: dict, before: dict | None) -> None:
    keep(cell, facts)
    print(cell.target, cell.row, "as it was" if facts is before else facts, flush=True)


if __name__ == "__main__":
    main()
