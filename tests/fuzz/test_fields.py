"""Programs and checkpoints with invalid fields: refused by name or run; nothing is "unexpected"."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.program import KIND, VERSION
from edgetrain.runtime.run import checkpoint
from edgetrain.runtime.run.checkpoint import step_path
from edgetrain.sparse import DSR

from ..planner import hurried
from ..runtime.models import write_mlp
from . import children, fields

STEPS = 4
STATUSES = {0, 1, 4}  # 1: valid numbers that make training fail
Run = tuple[Path, Path]  # run directory, data


def _compiled(path: Path, sparse: bool) -> et.Program:
    model = et.load_onnx(write_mlp(path, 6, 8, 4))
    options: dict = {"minibatch": 4, "microbatch": 2, "threads": 1}
    if sparse:
        method = DSR(periods=((1.0, 2),))
        options |= {"density": 0.5, "density_overrides": {"one.w": 0.5, "two.w": 0.5}}
        options |= {"rewiring": method, "optimizer": et.Adam(lr=0.01), "precision": "fp16"}
    else:
        options |= {"optimizer": et.SGD(lr=0.05, momentum=0.9, nesterov=True)}
    with hurried():
        return et.compile(model, **options)


@pytest.fixture(scope="module", params=["dense", "sparse"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Train a run, remove its last checkpoint, and check that the older one works."""
    folder = tmp_path_factory.mktemp(request.param)
    draw = np.random.default_rng(0)
    data = folder / "data.npz"
    np.savez(
        data, x_train=draw.normal(size=(40, 6)).astype(np.float32), y_train=draw.integers(0, 4, 40),
        x_test=draw.normal(size=(8, 6)).astype(np.float32), y_test=draw.integers(0, 4, 8),
    )  # fmt: skip
    program = _compiled(folder / "mlp.onnx", request.param == "sparse")
    trainer = et.Trainer(program, f"npz:{data}", folder / "run", save_steps=2)
    try:
        trainer.fit(steps=STEPS)
    finally:
        trainer.close()
    step_path(folder / "run", STEPS).unlink()
    shutil.copytree(folder / "run", folder / "sound")
    assert use(folder / "sound", data, folder / "scratch") == [0] * 6
    return folder / "run", data


def use(run: Path, data: Path, scratch: Path) -> list[int]:
    """Run every command that reads a Program or a checkpoint; return their exit statuses."""
    scratch.mkdir()
    program, spec = run / "program.edge", f"npz:{data}"
    (newest,) = run.glob("*.ckpt")
    commands = [
        ["inspect", program, "--json"],
        ["inspect", newest],
        ["eval", run, "--data", spec],
        ["export", run, "-o", scratch / "model.onnx"],
        ["train", program, "--data", spec, "--steps", 1, "--out", scratch / "out"],
        ["train", "--resume", run, "--data", spec, "--steps", STEPS],
    ]
    return [main([str(word) for word in command]) for command in commands]


def faults(run: Run, folder: Path, seeds: range, write: Callable) -> tuple[list, Counter]:
    """Return what went wrong with mutants, and how many had each list of statuses."""
    source, data = run
    wrong, counts = [], Counter()
    for seed in seeds:
        copy, scratch = folder / f"run{seed}", folder / f"scratch{seed}"
        shutil.copytree(source, copy)
        write(copy, random.Random(seed))
        ended = children.run(lambda copy=copy, scratch=scratch: use(copy, data, scratch))
        found = children.fault(ended)
        if not found and set(ended.value) - STATUSES:
            found = f"statuses {ended.value}: {ended.output[-300:]}"
        if found:
            wrong.append((seed, found))
        counts[str(ended.value)] += 1
        shutil.rmtree(copy)
        shutil.rmtree(scratch, ignore_errors=True)
    return wrong, counts


def mutate_program(run: Path, draw: random.Random) -> None:
    path = run / "program.edge"
    fields.write_mutant(
        path, path, KIND, VERSION, "program", draw,
        lambda name: name == "onnx" or name.startswith("init."),
    )  # fmt: skip


def mutate_checkpoint(run: Path, draw: random.Random) -> None:
    (path,) = run.glob("*.ckpt")
    fields.write_mutant(path, path, checkpoint.KIND, checkpoint.VERSION, "state", draw)


@pytest.mark.parametrize("write", [mutate_program, mutate_checkpoint])
@pytest.mark.parametrize(
    "seeds",
    [range(12), pytest.param(range(1000, 2000), marks=[pytest.mark.slow, pytest.mark.forks])],
)
def test_mutants_are_refused_or_used(
    run: Run, tmp_path: Path, seeds: range, write: Callable
) -> None:
    wrong, counts = faults(run, tmp_path, seeds, write)
    assert wrong == []
    assert len(counts) > 1  # some were used
