"""Figure 5 of the Low-Memory Training report: its checkpointing strategies beside our plans.

    python -m benchmarks.figure5

WRN-28-2 on CIFAR-10 at microbatch 100 in 32 bits, as in the report. The peak is the largest
number of transient bytes live at one step (activations, gradients, workspace). FLOPs are those of
forward, backward (counted as two forwards) and recomputation, relative to no recomputation. The
report gives one point in its text: checkpoint-residual-2* stores 5.8x less for 30 % more FLOPs.

Source: Sohoni et al. 2019, Low-Memory Neural Network Training, Section 3.4.
"""

import argparse
from collections.abc import Iterator, Sequence

from edgetrain.api import make_options
from edgetrain.compiler import remat
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.plan.candidates import make_candidate
from edgetrain.ops.model import Model
from edgetrain.optim import SGD

from . import yardsticks
from .nets import wrn28_2

STRATEGIES = (
    ("checkpoint-none", "store_all", 0),
    ("checkpoint-no-bn", "no_bn", 0),
    ("checkpoint-residual-1", "residual_1", 0),
    ("checkpoint-residual-2", "residual_2", 0),
    ("checkpoint-residual-1*", "residual_1", 1),
    ("checkpoint-residual-2*", "residual_2", 1),
)
REPORTED_RATIO = 1.30  # of checkpoint-residual-2*, Section 3.4
HEAD = (
    "| strategy | its peak, bytes | its FLOPs ratio | our peak, bytes | our FLOPs ratio |",
    "|---|---|---|---|---|",
)


def problem_of(model: Model, microbatch: int) -> remat.Problem:
    """Return the training graph's recomputation problem."""
    options = make_options(minibatch=microbatch, microbatch=microbatch, optimizer=SGD(0.1))
    return make_candidate(Compilation(model, options), microbatch).train.problem


def ratio(problem: remat.Problem, found: remat.Simulation) -> float:
    """FLOPs of a step relative to no recomputation."""
    return 1 + found.extra_flops / (3 * problem.forward_flops())


def rows(problem: remat.Problem, effort: int = remat.DEFAULT_EFFORT) -> list[str]:
    """For each strategy, a line beside our cheapest plan that needs at most its bytes."""
    ours = [found for _, found in yardsticks.frontier(problem, effort, points=None)]
    lines = []
    for name, solver, index in STRATEGIES:
        schedules = yardsticks.SOLVERS[solver](problem, 1)
        if index >= len(schedules):
            continue
        theirs = remat.simulate(problem, schedules[index])
        fitting = [s for s in ours if s.peak_nbytes <= theirs.peak_nbytes]
        best = min(fitting, key=lambda s: (s.extra_flops, s.peak_nbytes), default=None)
        mine = f"{best.peak_nbytes:,} | {ratio(problem, best):.3f}" if best else "none | none"
        lines.append(f"| {name} | {theirs.peak_nbytes:,} | {ratio(problem, theirs):.3f} | {mine} |")
    least = min(s.peak_nbytes for s in ours if ratio(problem, s) <= REPORTED_RATIO)
    lines.append(f"| least at the report's ratio | | {REPORTED_RATIO:.3f} | {least:,} | |")
    return lines


def lines(microbatch: int = 100) -> Iterator[str]:
    """The table."""
    yield from HEAD
    yield from rows(problem_of(wrn28_2(), microbatch))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--microbatch", type=int, default=100)
    args = parser.parse_args(arguments)
    for line in lines(args.microbatch):
        print(line, flush=True)


if __name__ == "__main__":
    main()
