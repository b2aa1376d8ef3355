"""Programs whose frozen weights are read from their file, and what may happen to it meanwhile."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.flower.arrays import initial_state
from edgetrain.program.mapped_file import files_of
from edgetrain.program.trained import export_trained
from edgetrain.runtime.loading.tapes import check_program
from edgetrain.runtime.run.carrying import with_values
from edgetrain.runtime.run.folder import PROGRAM_FILE, RunFolder
from edgetrain.runtime.run.record import Record
from edgetrain.runtime.run.saving import CheckpointWriter
from edgetrain.runtime.run.state import open_run
from edgetrain.runtime.session import Session
from tests.compiler.test_lora import TEXT, net
from tests.quick import slow_except

DRAW = np.random.default_rng(1)
X, Y = DRAW.normal(size=(8, 6)).astype(np.float32), np.arange(8) % 3


def compiled(seed: int = 0, **options: Any) -> et.Program:
    """Adapters on weights drawn from a seed."""
    model, draw = net(), np.random.default_rng(seed)
    drawn = {
        name: draw.normal(size=array.shape).astype(array.dtype)
        for name, array in model.initializers.items()
        if name.endswith("weight")
    }
    model = replace(model, initializers={**model.initializers, **drawn})
    given = {"lora": TEXT, "optimizer": et.AdamW(lr=0.05), "minibatch": 8, "threads": 1}
    return et.compile(model, **{**given, **options})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled().save(tmp_path_factory.mktemp("mapped") / "kept.edge")


@pytest.fixture
def path(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(kept, tmp_path / "own.edge"))


def _replaced(path: Path) -> None:
    compiled(seed=5).save(path)


def _touched(path: Path) -> None:
    os.utime(path, (1, 1))


HARMLESS: dict[str, Callable[[Path], Any]] = {
    "moved": lambda path: path.rename(path.with_name("other.edge")),
    "removed": lambda path: path.unlink(),
    "replaced by another": _replaced,
    "touched": _touched,
    "read only": lambda path: path.chmod(0o400),
    "linked": lambda path: os.link(path, path.with_name("link.edge")),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_a_file_that_keeps_its_bytes_is_gone_on_with(path: Path, what: str) -> None:
    with et.Trainer(path, out=path.parent / "run") as trainer, et.Trainer(path) as plain:
        HARMLESS[what](path)
        for each in (trainer, plain):
            each.step(X, Y)
        assert trainer.save() is not None
        trainer.export_onnx(path.with_name("trained.onnx"))
        np.testing.assert_array_equal(trainer.predict(X), plain.predict(X))


def _cut(path: Path) -> None:
    os.truncate(path, 100)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-64:] = bytes(64)
    path.write_bytes(data)
    os.utime(path, (3, 3))


HARMFUL: dict[str, Callable[[Path], Any]] = {
    "cut short": _cut,
    "emptied": _emptied,
    "written over": _scribbled,
    "longer": lambda path: os.truncate(path, path.stat().st_size + 64),
}
ACTS: dict[str, Callable[[et.Trainer], Any]] = {
    "step": lambda trainer: trainer.step(X, Y),
    "fit": lambda trainer: trainer.fit(1),
    "predict": lambda trainer: trainer.predict(X),
    "evaluate": lambda trainer: trainer.evaluate((X, Y)),
    "read": lambda trainer: trainer.parameters["b.q.weight"],
    "write": lambda trainer: trainer.load_state_dict(dict(trainer.parameters)),
    "save the Program": lambda trainer: trainer.program.save("again.edge"),
    "export": lambda trainer: trainer.export_onnx("trained.onnx"),
    "another Trainer": lambda trainer: et.Trainer(trainer.program),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("what", HARMFUL)
def test_a_file_that_loses_its_bytes_is_one_line(
    path: Path, what: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with et.Trainer(path, (X, Y)) as trainer:
        trainer.step(X, Y)
        adapters = {n: v for n, v in trainer.parameters.items() if "lora" in n}
        HARMFUL[what](path)
        with pytest.raises(et.EdgetrainError, match="own.edge: overwritten while in use") as found:
            ACTS[act](trainer)
        assert "\n" not in str(found.value)
        for name, array in adapters.items():  # nothing changed
            np.testing.assert_array_equal(trainer.parameters[name], array)


def test_a_plain_program_needs_its_file_until_a_trainer_is_made(tmp_path: Path) -> None:
    path = et.compile(net(), minibatch=8, threads=1).save(tmp_path / "own.edge")
    with et.Trainer(path) as trainer:
        program = et.load_program(path)
        _cut(path)
        trainer.step(X, Y)
        trainer.export_onnx(tmp_path / "trained.onnx")
        with pytest.raises(et.RunError, match="overwritten while in use"):
            et.Trainer(program)


@pytest.mark.parametrize("frozen", slow_except(["fp32", "fp16", "int8", "int4"], "fp32", "int4"))
def test_a_digest_is_that_of_the_frozen_weights_too(tmp_path: Path, frozen: str) -> None:
    one, other = (compiled(seed, frozen=frozen) for seed in (0, 1))
    assert one.digest() != other.digest()
    assert one.digest() == et.load_program(one.save(tmp_path / "one.edge")).digest()
    assert one.digest() == compiled(0, frozen=frozen, budget=one.arena_nbytes).digest()


def test_adapters_do_not_go_on_with_another_base(kept: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with et.Trainer(kept, out=run) as trainer:
        trainer.step(X, Y)
        trainer.save()
    other = compiled(seed=1)
    with et.Trainer(other) as trainer:
        with pytest.raises(et.CheckpointError, match="another model or "):
            trainer.resume(run)
        assert trainer.steps == 0
    other.save(run / PROGRAM_FILE)
    with pytest.raises(et.CheckpointError, match="another model or "):
        open_run(run)


@pytest.mark.parametrize("place", [None, 3, b"bytes", "file", "file/x"])
def test_adapters_are_written_into_a_directory(kept: Path, tmp_path: Path, place: Any) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / place if isinstance(place, str) else place
    with et.Trainer(kept) as trainer, pytest.raises(et.UsageError, match="directory"):
        trainer.export_adapter(place)


def test_saving_reads_nothing_of_a_file_that_was_cut_short(path: Path, tmp_path: Path) -> None:
    """Tapes and the tensors compared with checkpoints are copies: a read would raise SIGBUS."""
    program = et.load_program(path)
    writer = CheckpointWriter(
        Session(program), RunFolder(tmp_path / "run"), None, Record(None, None)
    )
    copied = [*program.tapes.values(), *writer._fixed.values()]
    assert files_of(copied) == () and len(files_of(program.init.values())) == 1


def test_a_step_that_counts_has_no_reason(path: Path) -> None:
    with et.Trainer(path) as trainer:
        result = trainer.step(X, Y)
        assert not result.skipped and (result.reason, result.uncounted) == (None, "")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Program whose weights are copied into the arena, and whose tables of taps are checked."""
    folder = tmp_path_factory.mktemp("plain")
    layers = torch.nn.Conv2d(1, 2, 3), torch.nn.Upsample(scale_factor=2, mode="bilinear")
    net = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.LazyLinear(3))
    net(torch.zeros(2, 1, 6, 6))
    export_torch(net, (torch.zeros(2, 1, 6, 6),), folder / "net.onnx")
    return et.compile(folder / "net.onnx", minibatch=4, threads=1).save(folder / "own.edge")


def _export_nan(program: et.Program) -> None:
    state = {name: array.copy() for name, array in initial_state(program).items()}
    state["0.weight"][:] = np.nan
    _cut(Path("own.edge"))
    export_trained(program, state, Path("trained.onnx"))


READERS: dict[str, Callable[[et.Program], Any]] = {
    "the proof of tapes": lambda program: check_program(program, program.arena_nbytes),
    "a session": Session,
    "a server's first arrays": initial_state,
    "a bundle": lambda program: et.bundle(program, "bundled"),
    "a migrated Program": lambda program: with_values(program, program),
}


@pytest.mark.parametrize("reader", [*READERS, "export of a NaN"])
def test_whoever_reads_initial_values_looks_at_the_file_first(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    monkeypatch.chdir(tmp_path)
    program = et.load_program(shutil.copy(plain, "own.edge"))
    act = READERS.get(reader, _export_nan)
    if act is not _export_nan:
        _cut(Path("own.edge"))
    with pytest.raises(et.RunError, match="own.edge: overwritten while in use .100 bytes;"):
        act(program)


def test_a_servers_first_arrays_are_copies(plain: Path) -> None:
    program = et.load_program(plain)
    assert files_of(initial_state(program).values()) == () != files_of(program.init.values())
