"""Table 3 of the Low-Memory Training report: its computed megabytes, and our arena.

    python -m benchmarks.memory MODEL.onnx

MODEL.onnx is WRN-28-2 with identity shortcuts, exported at 32 x 32. Each row trains two real steps
inside the report's figure; the process' growth is measured beside it.
"""

import argparse
import os
import time
from dataclasses import dataclass

import numpy as np

from edgetrain.api import compile as compile_program
from edgetrain.errors import BudgetError
from edgetrain.importer import load_onnx
from edgetrain.optim import SGD
from edgetrain.runtime.session import Session


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the report's table: its megabytes (10^6) and its settings."""

    megabytes: float
    microbatch: int
    density: float
    precision: str = "fp16"


ROWS = (
    Row(404.8, 100, 1.0, "fp32"), Row(42.6, 100, 1.0), Row(12.2, 10, 1.0), Row(6.7, 10, 0.3),
    Row(5.6, 10, 0.2), Row(3.6, 4, 0.2), Row(2.5, 4, 0.1),
)  # fmt: skip


def resident_nbytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(model, row: Row) -> str:
    """Compile inside the report's figure, train two steps; a line of the table."""
    optimizer = SGD(0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    try:
        program = compile_program(
            model, budget=f"{row.megabytes}MB", minibatch=100, microbatch=row.microbatch,
            density=row.density, precision=row.precision, optimizer=optimizer,
        )  # fmt: skip
    except BudgetError as error:
        return _line(row, f"needs {error.min_budget_nbytes / 1e6:.2f}", "", "", "", "")
    before = resident_nbytes()
    session = Session(program)
    random = np.random.default_rng(0)
    images, targets = program.inputs["micro"][0], program.targets["micro"]

    def fills():
        for _ in range(100 // row.microbatch):
            session.arena.view(images)[...] = random.standard_normal(images.shape)
            session.arena.view(targets)[...] = random.integers(0, 10, targets.shape)
            yield True

    start = time.perf_counter()
    losses = [session.train_step(k, 0.1, 1.0, fills()).loss for k in range(2)]
    seconds = (time.perf_counter() - start) / 2
    grown = resident_nbytes() - before
    session.close()
    return _line(
        row, f"{program.arena_nbytes / 1e6:.2f}", f"{grown / 1e6:.1f}",
        f"{program.account['extra_forward_flops']:.2f}", f"{seconds:.2f}",
        ", ".join(f"{loss:.3f}" for loss in losses),
    )  # fmt: skip


def _line(row: Row, *cells: str) -> str:
    settings = f"{row.precision}, microbatch {row.microbatch}, density {row.density}"
    return f"| {row.megabytes} | {settings} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    args = parser.parse_args()
    model = load_onnx(args.model)
    print(
        "| report, MB | settings | our arena, MB | process grew by, MB | extra forward | "
        "seconds a step | losses |\n|---|---|---|---|---|---|---|"
    )
    for row in ROWS:
        print(measure(model, row), flush=True)


if __name__ == "__main__":
    main()
