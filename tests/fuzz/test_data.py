"""Hostile data files are used or refused in one line; no signal, no traceback, no long work."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.data.registry import open_data, open_evaluation
from edgetrain.errors import EdgetrainError
from tests.runtime.models import write_rows

from . import data_files, data_folders
from .children import fault, run
from .data_files import SHAPE

SHORT, LONG = 48, 520
GROWN_NBYTES = 2**28
STATUSES = (0, 2, 4)


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a Program for each kind of data; each runs once, so that children find its kernels."""
    folder, out = tmp_path_factory.mktemp("edges"), {}
    for kind, shape in (("rest", (1, *SHAPE)), ("cifar10", (3, 32, 32))):
        model = et.load_onnx(write_rows(folder / f"{kind}.onnx", shape))
        program = et.compile(model, minibatch=4, microbatch=4)
        out[kind] = program.save(folder / f"{kind}.edge")
        x = np.zeros((4, *shape), np.float32)
        trainer = et.Trainer(program, (x, np.arange(4)))
        trainer.fit(steps=1)
        trainer.evaluate((x, np.arange(4)))
        trainer.close()
    return out


def _use(spec: str) -> list[str]:
    """Open the data in every way, inspect it, read a few samples; return how each attempt ended."""
    ends = []
    hows = [
        open_data,
        lambda s: open_data(s, split="test"),
        open_evaluation,
        lambda s: open_data(s, target="x", augment="flip,noise=0.5"),
    ]
    for k, how in enumerate(hows):
        try:
            source = how(spec)
            if k % 2:
                source.adapt({"x": (1, *SHAPE)})
            source.check_limits({"y": 10})
            source.check_values()
            indices = np.linspace(0, source.n - 1, 7).astype(int)
            if max(field.size for field in source.fields.values()) < 2**20:
                source.fill(
                    indices,
                    {n: np.empty((7, *f.shape), np.float32) for n, f in source.fields.items()},
                )
            ends.append("used")
        except EdgetrainError as error:
            ends.append(str(error))
    return ends


def _command(spec: str, edge: Path, out: Path, options: list[str]) -> int:
    """Show the data, train two steps and evaluate."""
    shown = main(["data", spec, *([str(edge)] if len(options) % 2 else [])])
    train = ["train", str(edge), "--data", spec, "--steps", "2", "--out", str(out), *options]
    status = main(train)
    status = status if status else main(["eval", str(out), "--data", spec])
    return max(status, shown)


def _written(folder: Path, seed: int, kind: str) -> tuple[str, list[str], str]:
    """Write hostile data; return its specification, options of `train`, and a name for reports."""
    if kind == "folders":
        spec, options = data_folders.write_hostile(folder, seed)
        makers = data_folders.KINDS
    else:
        spec, options = data_files.write_hostile(folder, seed), []
        makers = data_files.FORMATS
    return spec, options, makers[seed % len(makers)].__name__


def _faults(
    folder: Path, seed: int, edges: dict[str, Path], command: bool, kind: str
) -> tuple[list, bool]:
    """Return what went wrong with one hostile file, and whether it was used."""
    (folder / "data").mkdir(parents=True)
    # in a child, so that this process stays small and forks fast
    spec, options, name = run(lambda: _written(folder / "data", seed, kind)).value
    found, ends = [], run(lambda: _use(spec))
    found.append(fault(ends, grown_nbytes=GROWN_NBYTES))
    found += ["more than one line: " + end for end in ends.value or () if "\n" in end]
    used = ends.how == "returned" and "used" in ends.value
    if command:
        edge = edges["cifar10" if spec.startswith("cifar10") else "rest"]
        ended = run(lambda: _command(spec, edge, folder / "out", options))
        found.append(fault(ended, grown_nbytes=GROWN_NBYTES))
        if ended.how == "returned" and ended.value not in STATUSES:
            found.append(f"status {ended.value}: {ended.output}")
        ahead = any(word in ended.output for word in ("per sample", "whole number from 0"))
        if ahead and (folder / "out").exists():
            found.append(f"refused, but --out was written: {ended.output}")
    shutil.rmtree(folder)
    return [(seed, name, text) for text in found if text], used


def _judge(
    tmp_path: Path, seeds: range, edges: dict[str, Path], every: int, kind: str = "files"
) -> int:
    wrong, used = [], 0
    for seed in seeds:
        found, was_used = _faults(tmp_path / str(seed), seed, edges, seed % every == 0, kind)
        wrong += found
        used += was_used
    assert not wrong, "\n".join(map(str, wrong))
    return used


@pytest.mark.parametrize("kind", ["files", "folders"])
def test_hostile_data_files_are_used_or_refused(tmp_path, edges, kind: str) -> None:
    used = _judge(tmp_path, range(SHORT), edges, every=5, kind=kind)
    assert SHORT // 10 < used < SHORT


@pytest.mark.slow
@pytest.mark.forks
@pytest.mark.parametrize("kind", ["files", "folders"])
def test_many_hostile_data_files_are_used_or_refused(tmp_path, edges, kind: str) -> None:
    used = _judge(tmp_path, range(SHORT, SHORT + LONG), edges, every=1, kind=kind)
    assert LONG // 10 < used < LONG
