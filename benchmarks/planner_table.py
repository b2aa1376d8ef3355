"""Both planner tables beside what others reach: `python -m benchmarks.planner_table [FOLDER]`.

FOLDER holds peers.json, graphs/ and arena/; it defaults to shared/planner beside the checkout.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.yardsticks import frontier, solve
from edgetrain.compiler.arena import peak_live, place, validate
from edgetrain.compiler.remat import simulate

from . import place as placing
from . import schedule as scheduling

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "planner"
SECONDS = 14.0


def graph_rows(folder: Path, peers: dict, seconds: float) -> Iterator[list[str]]:
    """One row per graph: the smallest peak, then the lowest peaks at two limits of FLOPs."""
    effort = max(1, int(seconds * scheduling.EFFORT_PER_SECOND))
    for path in sorted((folder / "graphs").glob("*.json")):
        theirs = peers.get(path.stem, {})
        if "regular_peak_bytes" not in theirs:
            continue
        problem, _ = scheduling.to_problem(scheduling.load_graph(path))
        began = time.perf_counter()
        front = [s for _, s in frontier(problem, effort, points=None)]
        took = time.perf_counter() - began
        whole, flops = theirs["regular_peak_bytes"], problem.forward_flops()
        peer = theirs["local_search_peak_bytes"]
        fit = [s for s in front if s.peak_nbytes <= peer]
        row = [path.stem, f"{front[0].peak_nbytes / whole:.3f}", f"{peer / whole:.3f}"]
        row += [f"{fit[-1].extra_flops / flops:.3f}" if fit else "-"]
        row += [f"{theirs['local_search_extra_fwd']:.3f}"]
        for limit in ("0.02", "0.2"):
            best = next(s for s in front if s.extra_flops <= float(limit) * flops)
            known = theirs.get("annealed_peak_fraction_at_extra", {}).get(limit, "-")
            row += [f"{best.peak_nbytes / whole:.3f}", str(known)]
        yield [*row, f"{took:.1f}"]


def chain_rows(folder: Path, peers: dict) -> Iterator[list[str]]:
    """One row per Pareto row of each chain."""
    for name, theirs in peers.items():
        if "pareto" not in theirs:
            continue
        path = folder / "graphs" / f"{name}.json"
        problem, _ = scheduling.to_problem(scheduling.load_graph(path))
        once = sum(step.cost for step in problem.steps)
        for peak, slowdown in theirs["pareto"]:
            began = time.perf_counter()
            found = simulate(problem, solve(problem, budget=peak, solver="chain"))
            ours = 1 + found.extra_cost / once
            took = time.perf_counter() - began
            yield [name, str(peak), f"{ours:.4f}", f"{slowdown:.4f}", f"{took:.1f}"]


def arena_rows(folder: Path, peers: dict, seconds: float) -> Iterator[list[str]]:
    """One row per placement problem."""
    effort = max(1, int(seconds * placing.EFFORT_PER_SECOND))
    for path in sorted((folder / "arena").glob("*.csv")):
        buffers = placing.load_buffers(path)
        capacity = placing.capacity_of(path)
        began = time.perf_counter()
        offsets, height = place(buffers, capacity=capacity, align=1, effort=effort)
        took = time.perf_counter() - began
        validate(buffers, offsets)
        theirs = peers["arena"].get(path.name.split(".")[0], {})
        known = [str(theirs.get(key, "-")) for key in ("best_of_12_greedy", "exact_search_cpu_s")]
        bound = str(peak_live(buffers))
        yield [path.stem, str(height), str(capacity or "-"), bound, *known, f"{took:.1f}"]


def lines(folder: Path = DEFAULT, seconds: float = SECONDS) -> Iterator[str]:
    """The three tables, line by line."""
    peers = json.loads((folder / "peers.json").read_text())
    tables = (
        (("graph", "least peak", "theirs", "extra work at their peak", "theirs",
          "peak at .02 extra work", "theirs", "peak at .2 extra work", "theirs", "s"),
         graph_rows(folder, peers, seconds)),
        (("chain", "bytes", "slowdown", "theirs", "s"), chain_rows(folder, peers)),
        (("arena", "our height", "capacity", "lower bound", "greedy", "their exact solver, CPU s",
          "s"),
         arena_rows(folder, peers, seconds)),
    )  # fmt: skip
    for number, (head, rows) in enumerate(tables):
        if number:
            yield ""
        yield "| " + " | ".join(head) + " |"
        yield "|" + "---|" * len(head)
        for row in rows:
            yield "| " + " | ".join(row) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks.planner_table", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=DEFAULT)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="effort, not a clock")
    options = parser.parse_args(arguments)
    if not (options.folder / "peers.json").is_file():
        print(f"{options.folder}: no peers.json here; name the folder of the instances.")
        return 2
    for line in lines(options.folder, options.seconds):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
