"""The first step of a stock model: `python -m benchmarks.stock.first_step LIBRARY/NAME FILE [KEY]`.

Plans with quick effort, trains one step in the smallest plan, and prints a line of JSON. With the
key of the same file and the same plans, it trains nothing.

Plans are for TARGET, whichever processor runs them, so a model has the same ones everywhere.
"""

import hashlib
import json
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler.bind import bind
from edgetrain.compiler.compile import plan_model, proven
from edgetrain.exporters.sample import sample_batch
from edgetrain.importer import load_onnx
from edgetrain.losses import Loss
from edgetrain.program import Program
from edgetrain.runtime.samples.check import digest_of

from ..nets import TARGET
from .listed import MINIBATCH, Listed, listed

OPTIMIZER = et.SGD(lr=0.05, momentum=0.9)


def loss_of(row: Listed) -> Loss:
    """The row's loss."""
    if row.loss == "cross_entropy" and row.class_axis:
        return et.Loss(row.loss, class_axis=row.class_axis)
    return et.Loss(row.loss)


def refusal(error: Exception) -> dict[str, Any]:
    """Why a model cannot be trained."""
    lines = str(error).splitlines() or [""]
    return {"refused": f"{type(error).__name__}: {lines[0]}"[:300]}


def key_of(path: Path, programs: Iterable[Program]) -> str:
    """Digest of a model's file and of Programs planned for it."""
    whole = hashlib.sha256(path.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        for program in programs:
            whole.update(program.save(Path(folder, "net.edge")).read_bytes())
    return whole.hexdigest()[:16]


def _step(row: Listed, path: Path, before: str) -> dict[str, Any]:
    begun, model, loss = time.process_time(), load_onnx(path), loss_of(row)
    options = make_options(
        loss=loss, optimizer=OPTIMIZER, minibatch=MINIBATCH, effort="quick", target=TARGET
    )
    _, front, facts = plan_model(model, options)
    planned = time.process_time() - begun
    smallest, begun = proven(front[0], facts), _seconds()
    largest = proven(front[-1], facts)
    key = key_of(path, (smallest, largest))
    if key == before:
        return {"key": key}
    compared = _seconds() - begun
    bound, draw = bind(model, MINIBATCH, {}), np.random.default_rng(0)
    output = next(iter(bound.outputs.values()))
    inputs, target = sample_batch(bound.graph, output, loss, draw)
    loss_value, bits = _trained(smallest, inputs, target)
    begun = _seconds()
    others = _trained(largest, inputs, target)[1]
    return {
        "key": key,
        "bits": f"{bits:08x} {others:08x}",
        "arena": smallest.arena_nbytes,
        "plan_cpu": planned,
        "compared_cpu": compared + _seconds() - begun,
        "loss": loss_value,
        "microbatch": smallest.microbatch,
    }


def _trained(program: Program, inputs: Mapping[str, np.ndarray], target) -> tuple[float, int]:
    """Loss of a step, and CRC-32 of the state after it."""
    trainer = et.Trainer(program, verbose=False)
    try:
        loss = trainer.step(inputs, target).loss
        return loss, digest_of(trainer.session)
    finally:
        trainer.close()


def _seconds() -> float:
    """CPU time of this process and of those that it started, such as compilers."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def main() -> None:
    """Print the result; an error becomes a reason in the JSON."""
    name, path, *known = sys.argv[1:]
    row = next(row for row in listed() if row.label == name)
    warnings.simplefilter("ignore")
    try:
        found = _step(row, Path(path), known[0] if known else "")
    except Exception as error:  # any error is the reason why the model cannot be trained
        found = refusal(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
