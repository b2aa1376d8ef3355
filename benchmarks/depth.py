"""Arena against depth: residual networks trained for one step under each kind of plan.

    python -m benchmarks.depth [--depths 50 100 ...] [--picture docs/depth.svg]

The plans come from Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost: segments of
sqrt(n) layers for one extra forward pass, recursion for O(log n) memory.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.api import make_options
from edgetrain.compiler import Options, remat
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.plan.candidates import Candidate, Draft, Plan, make_candidate
from edgetrain.compiler.tapes.assemble import assemble
from edgetrain.optim import SGD
from edgetrain.runtime.session import Session

from . import yardsticks
from .nets import TARGET, residual_model

DEPTHS = (50, 100, 200, 500, 1000, 2000)
SOLVERS = ("store_all", "sqrt", "log")
HEAD = (
    "| convolutions | plan | activation bytes | extra forward | seconds a step | loss |",
    "|---|---|---|---|---|---|",
)


def plan_with(candidate: Candidate, solver: str) -> Plan:
    """Return the smallest plan of one solver."""
    problem = candidate.train.problem
    measured = [(s, remat.simulate(problem, s)) for s in yardsticks.SOLVERS[solver](problem, 1)]
    schedule, simulation = min(measured, key=lambda item: item[1].peak_nbytes)
    cost = sum(step.cost for step in problem.steps) + simulation.extra_cost
    return Draft(candidate, schedule, simulation, cost).placed()


def step(model, options: Options, plan: Plan) -> tuple[float, float]:
    """Run one training step; return (loss, seconds)."""
    program = assemble(plan, {})
    session = Session(program)
    random = np.random.default_rng(0)

    def fill(indices: np.ndarray) -> None:
        for slot in program.inputs["micro"]:
            session.arena.view(slot)[...] = random.standard_normal(slot.shape)
        session.arena.view(program.targets["micro"])[...] = 1

    start = time.perf_counter()
    result = session.minibatch(program.minibatch, fill)
    seconds = time.perf_counter() - start
    session.close()
    assert result is not None and np.isfinite(result.loss)
    return result.loss, seconds


def measure(depth: int) -> list[dict[str, Any]]:
    """Return the rows for one depth."""
    model = residual_model(depth)
    options = make_options(minibatch=8, microbatch=8, optimizer=SGD(0.01), target=TARGET)
    candidate = make_candidate(Compilation(model, options), 8)
    rows = []
    for solver in SOLVERS:
        plan = plan_with(candidate, solver)
        loss, seconds = step(model, options, plan)
        rows.append({
            "depth": depth, "solver": solver, "arena_nbytes": plan.arena_nbytes,
            "activation_nbytes": plan.arena_nbytes - candidate.persistent_nbytes,
            "extra_forward": plan.extra_forward, "loss": loss, "seconds": seconds,
        })  # fmt: skip
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot activation bytes against depth on logarithmic axes."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for solver in SOLVERS:
        mine = [row for row in rows if row["solver"] == solver]
        depths = [row["depth"] for row in mine]
        axes.loglog(depths, [row["activation_nbytes"] / 2**20 for row in mine], "o-", label=solver)
    axes.set_xlabel("convolutions")
    axes.set_ylabel("activations, gradients, workspace (MiB)")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def lines(depths: Sequence[int] = DEPTHS, picture: Path | None = None) -> Iterator[str]:
    """Yield the table line by line, then write the picture and its data."""
    yield from HEAD
    rows = []
    for depth in depths:
        for row in measure(depth):
            rows.append(row)
            yield (
                f"| {row['depth']} | {row['solver']} | {row['activation_nbytes']:,} | "
                f"{row['extra_forward']:.2f} | {row['seconds']:.2f} | {row['loss']:.6f} |"
            )
    if picture is not None:
        picture.with_suffix(".json").write_text(json.dumps(rows))
        draw(rows, picture)


def main() -> None:
    """Print the table; draw it if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="+", default=list(DEPTHS))
    parser.add_argument("--picture", type=Path, help="write it (.svg), and its numbers (.json)")
    args = parser.parse_args()
    for line in lines(args.depths, args.picture):
        print(line, flush=True)


if __name__ == "__main__":
    main()
