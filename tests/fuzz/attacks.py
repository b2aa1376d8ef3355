"""Every attack on files, whole, and what came of it.

    python -m tests.fuzz.attacks [--mutants 20000] [--seed 0] [--out docs/attacks.md]

Programs with words, slots or bytes changed; every number of every kernel at every extreme, operands
between pages that may not be touched; tapes changed inside their bounds, against the proof of what
they mean.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import marks

from ..checker import mutants as tapes
from . import kernels, programs

HEAD = "attack", "nets", "tried", "refused", "too large", "ran", "wrong", "seconds"
TOLD = """\
"Refused": one line before anything ran. "Too large": accepted, and more than is run here; an arena
bounds those. "Ran": to its end, in a process of its own for the first two. "Wrong": it ended by a
signal, raised, hung or wrote beside what it declares; of tapes, it ran to other numbers than the
tape that was changed."""


@dataclass
class Attack:
    """Results of one attack."""

    name: str
    nets: int = 0
    tried: int = 0
    refused: int = 0
    large: int = 0
    ran: int = 0
    seconds: float = 0.0
    faults: tuple[str, ...] = ()

    def row(self) -> str:
        counts = self.nets, self.tried, self.refused, self.large, self.ran, len(self.faults)
        cells = (self.name, *(f"{count:,}" for count in counts), f"{self.seconds:.0f}")
        return f"| {' | '.join(cells)} |"


def attacks(mutants: int, seed: int) -> Iterator[Attack]:
    """Run every attack; yield the results of each."""
    start, found = time.monotonic(), Attack("Programs changed")
    for _, one in programs.fuzz(mutants, seed):
        found.nets, found.tried = found.nets + 1, found.tried + one.tried
        found.refused, found.ran = found.refused + one.refused, found.ran + one.ran
        found.faults += (*one.faults,)
    found.seconds = time.monotonic() - start
    yield found
    start, found = time.monotonic(), Attack("integers and floats of kernels at extremes")
    for _, calls in kernels.extremes(seed):
        found.nets, found.tried = found.nets + 1, found.tried + calls.tried
        found.refused, found.ran = found.refused + calls.refused, found.ran + calls.ran
        found.large, found.faults = found.large + calls.large, (*found.faults, *calls.faults)
    found.seconds = time.monotonic() - start
    yield found
    start, found = time.monotonic(), Attack("tapes changed inside their bounds")
    for _, tally in tapes.attack(mutants, seed):
        found.nets, found.tried = found.nets + 1, found.tried + tally.tried - tally.outside
        found.refused, found.ran = found.refused + tally.refused, found.ran + tally.ran
        found.faults += (*tally.wrong,)
    found.seconds = time.monotonic() - start
    yield found


def main() -> int:
    """Print the table and write it; return 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = [f"| {' | '.join(HEAD)} |", "|---" + "|---:" * (len(HEAD) - 1) + "|"]
    faults: list[str] = []
    print(*lines, sep="\n", flush=True)
    for found in attacks(args.mutants, args.seed):
        lines.append(found.row())
        faults += found.faults
        print(lines[-1], *found.faults, sep="\n", flush=True)
    if args.out:
        text = [
            "# Attacks on files", "",
            "Written by `python -m tests.fuzz.attacks --out docs/attacks.md`.", TOLD, "",
            *lines, "", *(f"- {one}" for one in faults), f"Seed {args.seed}.",
            marks.now(("kernels", "runtime")).line(),
        ]  # fmt: skip
        args.out.write_text("\n".join(text) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
