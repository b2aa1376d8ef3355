"""Table 3 of the Low-Memory Training report: its computed megabytes, and our arena.

    python -m benchmarks.memory [MODEL.onnx | dynamicconv] [--model-memory int8] [--saved int8]

MODEL.onnx is WRN-28-2 with identity shortcuts, exported at 32 x 32; the default is the zoo's.
Each row is compiled within the report's figure, and a Trainer trains the Program for two real steps
in a process of its own (trained.py). The table also gives the growth of that process from the
loaded Program to the end of the second step: private memory, and memory including pages of files
(libraries) that it touched.
With --model-memory int8, the rows have model memory in 8 bits and are compared with the targets set
for them; with --saved int8, saved values are in 8 bits too.
`dynamicconv` is the report's Table 4: see dynamicconv.py.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.api import compile as compile_program
from edgetrain.errors import BudgetError
from edgetrain.importer import load_onnx
from edgetrain.ops.model import Model
from edgetrain.optim import SGD
from edgetrain.program import Program
from edgetrain.runtime.session import Session
from edgetrain.units.efforts import NORMAL

from .nets import TARGET, wrn28_2
from .trained import STEPS


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the report's table: its megabytes (10^6) and settings."""

    megabytes: float
    microbatch: int
    density: float
    precision: str = "fp16"
    model_memory: str | None = None
    saved: str | None = None


ROWS = (
    Row(404.8, 100, 1.0, "fp32"), Row(42.6, 100, 1.0), Row(12.2, 10, 1.0), Row(6.7, 10, 0.3),
    Row(5.6, 10, 0.2), Row(3.6, 4, 0.2), Row(2.5, 4, 0.1),
)  # fmt: skip
INT8_ROWS = (Row(4.9, 10, 0.3, model_memory="int8"), Row(2.0, 4, 0.1, model_memory="int8"))
SAVED_ROWS = (Row(3.4, 4, 0.3, model_memory="int8", saved="int8"),)
HEAD = (
    "| settings | report, MB | arena, MB | process grew by, MB | with files, MB | "
    "forward recomputed |",
    "|---|---|---|---|---|---|",
)


def compiled(model: Model, row: Row) -> Program:
    """Compile a row within the report's figure."""
    return compile_program(model, verbose=False, **options(row))


def options(row: Row) -> dict[str, Any]:
    """Options of a row, budget included.

    Convolutions are direct: the report measures recomputation in direct forward passes.
    """
    optimizer = SGD(0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    return {
        "budget": f"{row.megabytes}MB", "minibatch": 100, "microbatch": row.microbatch,
        "density": row.density, "precision": row.precision, "optimizer": optimizer,
        "model_memory": row.model_memory, "saved": row.saved, "effort": NORMAL,
        "convolutions": "direct", "target": TARGET,
    }  # fmt: skip


def write_data(program: Program, folder: Path) -> str:
    """Write random samples for all steps to `folder`; return the data source specification."""
    folder.mkdir()
    random = np.random.default_rng(0)
    slots = {slot.name: slot for slot in program.inputs["micro"]} | {"y": program.targets["micro"]}
    for name, slot in slots.items():
        shape = (STEPS * program.minibatch, *slot.shape[1:])
        limit = program.limits.get(slot.name)
        drawn = random.integers(0, limit, shape) if limit else random.standard_normal(shape)
        np.save(folder / f"{name}.npy", drawn if limit else drawn.astype(np.float32))
    return f"npy:{folder}"


def measure(model: Model, row: Row, compiled: Callable[[Model, Row], Program] = compiled) -> str:
    """Compile a row here, train it in a process of its own, and return its line."""
    try:
        program = compiled(model, row)
    except BudgetError as error:
        return _line(row, f"needs {error.min_budget_nbytes / 1e6:.2f}", "", "", "")
    with tempfile.TemporaryDirectory() as folder:
        path = program.save(Path(folder, "row.edge"))
        Session(program).close()  # compiles the kernels: the child only loads them
        data = write_data(program, Path(folder, "data"))
        command = [sys.executable, "-m", "benchmarks.trained", str(path), data]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(out)
    said = f"{found['seconds']:.2f} s a step, losses {found['losses']}, state {found['digest']}"
    print(f"{row}: {said}", file=sys.stderr)
    arena, recomputed = planned(program.account)
    grown = f"{found['private'] / 1e6:.1f}", f"{found['grown'] / 1e6:.1f}"
    return _line(row, arena, *grown, recomputed)


def planned(account: Mapping[str, Any]) -> tuple[str, str]:
    """Cells that follow from the plan: arena and recomputed forward passes."""
    return f"{account['arena_nbytes'] / 1e6:.2f}", f"{account['extra_forward_flops']:.2f}"


def _line(row: Row, *cells: str) -> str:
    sparse = f", density {row.density}" if row.density < 1 else ""
    memory = f", model memory {row.model_memory}" if row.model_memory else ""
    memory += f", saved {row.saved}" if row.saved else ""
    settings = f"{row.precision}, microbatch {row.microbatch}{sparse}{memory}"
    return f"| {settings} | {row.megabytes} | " + " | ".join(cells) + " |"


def lines(
    model: Model,
    rows: Sequence[Row] = ROWS,
    compiled: Callable[[Model, Row], Program] = compiled,
) -> Iterator[str]:
    """Yield the table, each line as soon as it is measured."""
    yield from HEAD
    for row in rows:
        yield measure(model, row, compiled)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--model-memory", choices=["int8"])
    parser.add_argument("--saved", choices=["int8"])
    args = parser.parse_args()
    if args.model == "dynamicconv":
        from . import dynamicconv

        table = dynamicconv.lines(args.model_memory)
    else:
        rows = SAVED_ROWS if args.saved else INT8_ROWS if args.model_memory else ROWS
        table = lines(load_onnx(args.model) if args.model else wrn28_2(), rows)
    for line in table:
        print(line, flush=True)


if __name__ == "__main__":
    main()
