"""Hostile data files: used or refused in a line; no signal, no traceback, no long work."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.data.registry import open_data, open_evaluation
from edgetrain.errors import EdgetrainError
from tests.runtime.models import write_rows

from .children import fault, run
from .data_files import FORMATS, SHAPE, write_hostile

SHORT, LONG = 48, 520
GROWN_NBYTES = 2**28
STATUSES = (0, 2, 4)


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By kind of data, a Program that takes it; run once, so that children find its kernels."""
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
    """Every way to open, look ahead, and read a few samples; refusals are counted by their type."""
    ends = []
    for how in (open_data, lambda s: open_data(s, split="test"), open_evaluation):
        try:
            source = how(spec)
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


def _command(spec: str, edge: Path, out: Path) -> int:
    """Train two steps and evaluate."""
    train = ["train", str(edge), "--data", spec, "--steps", "2", "--out", str(out)]
    status = main(train)
    return status if status else main(["eval", str(out), "--data", spec])


def _faults(folder: Path, seed: int, edges: dict[str, Path], command: bool) -> tuple[list, bool]:
    """What went wrong with one hostile file, and whether it was used."""
    folder.mkdir()
    spec = write_hostile(folder, seed)
    found, ends = [], run(lambda: _use(spec))
    found.append(fault(ends, grown_nbytes=GROWN_NBYTES))
    found += ["more than one line: " + end for end in ends.value or () if "\n" in end]
    used = ends.how == "returned" and "used" in ends.value
    if command:
        edge = edges["cifar10" if spec.startswith("cifar10") else "rest"]
        ended = run(lambda: _command(spec, edge, folder / "out"))
        found.append(fault(ended, grown_nbytes=GROWN_NBYTES))
        if ended.how == "returned" and ended.value not in STATUSES:
            found.append(f"status {ended.value}: {ended.output}")
        ahead = any(word in ended.output for word in ("per sample", "whole number from 0"))
        if ahead and (folder / "out").exists():
            found.append(f"refused, but --out was written: {ended.output}")
    shutil.rmtree(folder)
    return [(seed, FORMATS[seed % len(FORMATS)].__name__, text) for text in found if text], used


def _judge(tmp_path: Path, seeds: range, edges: dict[str, Path], every: int) -> int:
    wrong, used = [], 0
    for seed in seeds:
        found, was_used = _faults(tmp_path / str(seed), seed, edges, seed % every == 0)
        wrong += found
        used += was_used
    assert not wrong, "\n".join(map(str, wrong))
    return used


def test_hostile_data_files_are_used_or_refused(tmp_path, edges) -> None:
    used = _judge(tmp_path, range(SHORT), edges, every=5)
    assert SHORT // 10 < used < SHORT


@pytest.mark.slow
def test_many_hostile_data_files_are_used_or_refused(tmp_path, edges) -> None:
    used = _judge(tmp_path, range(SHORT, SHORT + LONG), edges, every=1)
    assert LONG // 10 < used < LONG
