"""Run all attacks on files and report the results.

    python -m tests.fuzz.attacks [--mutants 20000] [--seed 0] [--out docs/attacks.md]

The attacks: Programs with changed words, slots or bytes; kernels with extreme integers and floats,
their operands between guard pages; tapes with changes inside their bounds, which the checker must
refuse unless they are harmless.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks import marks

from ..checker import mutants as tapes
from . import kernels, programs

HEAD = "attack", "nets", "tried", "refused", "too large", "ran", "wrong", "seconds"
TOLD = """\
Tried: files or calls with something changed. Refused: a one-line error before anything ran. Too
large: valid, but bigger than this test runs. Ran: to the end; changed Programs and kernels run in
their own process. Wrong: a crash, an exception, a warning, a hang or a write outside the declared
memory; for tapes, results that differ from the original tape's."""


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


def _changed_programs(mutants: int, seed: int) -> Attack:
    found = Attack("changed Programs")
    for _, one in programs.fuzz(mutants, seed):
        found.nets, found.tried = found.nets + 1, found.tried + one.tried
        found.refused, found.ran = found.refused + one.refused, found.ran + one.ran
        found.faults += (*one.faults,)
    return found


def _extreme_numbers(mutants: int, seed: int) -> Attack:
    found = Attack("kernels with extreme numbers")
    for _, calls in kernels.extremes(seed):
        found.nets, found.tried = found.nets + 1, found.tried + calls.tried
        found.refused, found.ran = found.refused + calls.refused, found.ran + calls.ran
        found.large, found.faults = found.large + calls.large, (*found.faults, *calls.faults)
    return found


def _changed_tapes(mutants: int, seed: int) -> Attack:
    found = Attack("tapes changed within bounds")
    for _, tally in tapes.attack(mutants, seed):
        found.nets, found.tried = found.nets + 1, found.tried + tally.tried - tally.outside
        found.refused, found.ran = found.refused + tally.refused, found.ran + tally.ran
        found.faults += (*tally.wrong,)
    return found


def _timed(run: Callable[[int, int], Attack], mutants: int, seed: int) -> Attack:
    start = time.monotonic()
    found = run(mutants, seed)
    found.seconds = time.monotonic() - start
    return found


def attacks(mutants: int, seed: int) -> Iterator[Attack]:
    """Run every attack, one on each processor; yield the results of each."""
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        every = (_changed_programs, _extreme_numbers, _changed_tapes)
        for found in [pool.submit(_timed, run, mutants, seed) for run in every]:
            yield found.result()


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
            "Can a damaged or malicious file crash a device or train wrong numbers?",
            "`python -m tests.fuzz.attacks --out docs/attacks.md` made this table.", "", TOLD, "",
            *lines, "", *(f"- {one}" for one in faults), f"Seed {args.seed}.",
            marks.now(("kernels", "runtime")).line(),
        ]  # fmt: skip
        args.out.write_text("\n".join(text) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
