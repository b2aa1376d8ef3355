"""What is measured of one stock model, a process each: `python -m benchmarks.stock.measure WHAT
LIBRARY/NAME FILE.onnx` prints a line of JSON.

    export   writes the file
    parity   loss, gradients and an update beside torch in float64
    step     plans (quick), then the first step of the smallest plan
    torch    torch's peak for the same minibatch and optimizer
"""

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler.bind import bind
from edgetrain.compiler.compile import plan_model, proven
from edgetrain.exporters.parity import parity
from edgetrain.exporters.sample import sample_batch
from edgetrain.importer import load_onnx
from edgetrain.losses import Loss

from . import build
from .listed import MINIBATCH, Listed, listed

OPTIMIZER = et.SGD(lr=0.05, momentum=0.9)


def loss_of(row: Listed) -> Loss:
    """The row's loss."""
    if row.loss == "cross_entropy" and row.class_axis:
        return et.Loss(row.loss, class_axis=row.class_axis)
    return et.Loss(row.loss)


def _export(row: Listed, path: Path) -> dict[str, Any]:
    model = build.module_of(row)
    build.export(row, path, model)
    return {"weights_mb": build.megabytes(model)}


def _parity(row: Listed, path: Path) -> dict[str, Any]:
    report = parity(path, loss=loss_of(row), minibatch=MINIBATCH, steps=1)
    worst = report.worst("gradient")
    return {
        "parity": report.ok,
        "gradient": worst.error if worst else 0.0,
        "torch_gradient": worst.torch_error if worst else 0.0,
        "why": "" if report.ok else report.summary(),
    }


def _step(row: Listed, path: Path) -> dict[str, Any]:
    begun, model, loss = time.process_time(), load_onnx(path), loss_of(row)
    options = make_options(loss=loss, optimizer=OPTIMIZER, minibatch=MINIBATCH, effort="quick")
    _, front, facts = plan_model(model, options)
    planned = time.process_time() - begun
    program = proven(front[0], facts)
    bound, draw = bind(model, MINIBATCH, {}), np.random.default_rng(0)
    output = next(iter(bound.outputs.values()))
    inputs, target = sample_batch(bound.graph, output, loss, draw)
    trainer = et.Trainer(program)
    try:
        found = trainer.step(inputs, target)
    finally:
        trainer.close()
    return {
        "arena": program.arena_nbytes, "plan_cpu": planned, "loss": found.loss,
        "microbatch": program.microbatch,
    }  # fmt: skip


def _torch(row: Listed, path: Path) -> dict[str, Any]:
    inputs = build.samples_of(row)
    before = _resident()
    model = build.module_of(row)
    update = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    for _ in range(2):  # the second one has the momentum
        update.zero_grad()
        found = model(*inputs)
        found = found if isinstance(found, torch.Tensor) else next(iter(found.values()))
        (found * found).mean().backward()
        update.step()
    return {"torch": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before}


def _resident() -> int:
    """Bytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


WHAT: dict[str, Callable[[Listed, Path], dict[str, Any]]] = {
    "export": _export, "parity": _parity, "step": _step, "torch": _torch,
}  # fmt: skip


def main() -> None:
    """Measure one thing; an error is a reason in the JSON."""
    what, name, path = sys.argv[1:]
    row = next(row for row in listed() if row.label == name)
    warnings.simplefilter("ignore")
    try:
        found = WHAT[what](row, Path(path))
    except Exception as error:  # whatever it is, it is why the model is not trained
        lines = str(error).splitlines() or [""]
        found = {"refused": f"{type(error).__name__}: {lines[0]}"[:300]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
