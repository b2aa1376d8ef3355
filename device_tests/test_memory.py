"""Training within the process's own floor plus the arena, without growth over many steps."""

import dataclasses
import json
from pathlib import Path

import pytest

import edgetrain as et
from device_tests.limits import address_space, command, run, succeeded
from edgetrain.program import Program
from tests.runtime.models import write_forked

_GROWTH = '''
import gc, json, sys, tracemalloc
import edgetrain as et

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024

def alive():
    """Traced bytes of what is referenced, without the history, whose rows are bounded. The
    interpreter keeps blocks of freed tuples, dicts and frames for the next ones; a collection gives
    them back."""
    for column in trainer.history.steps.values():
        del column[10:]
    gc.collect()
    return tracemalloc.get_traced_memory()[0]

def watch(event):
    if event["event"] == "step" and event["step"] == 10:
        tracemalloc.start() if sys.argv[2] == "traced" else None
        marks.append((resident(), alive()))

marks = []
trainer = et.Trainer(et.load_program(sys.argv[1]), "digits", on_event=watch)
trainer.fit(steps=510)
(before, traced), after = marks[0], resident()
print(json.dumps([after - before, alive() - traced]))
'''


def program(folder: Path, width: int, minibatch: int) -> tuple[Path, Program]:
    """A forked net whose arena grows with the width and the minibatch."""
    model = et.load_onnx(write_forked(folder / f"forked{width}.onnx", width))
    built = et.compile(
        model, minibatch=minibatch, microbatch=minibatch, optimizer=et.SGD(lr=0.01, momentum=0.9)
    )
    return built.save(folder / f"forked{width}.edge"), built


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("small"), 4, 8)[0]


def train(path: Path, out: Path) -> list[str]:
    return command(
        "train", path, "--data", "digits", "--steps", 3, "--out", out, "--json", "--no-eval",
        measured=True,
    )  # fmt: skip


def floor_nbytes(path: Path, out: Path) -> int:
    """VmPeak of the command on a trivial model whose kernels are already compiled."""
    succeeded(run(train(path, out / "warm-floor")))
    ended = run(train(path, out / "floor"))
    succeeded(ended)
    return int(ended.stderr.split()[-1]) * 1024


def test_training_fits_in_the_floor_plus_the_arena(small: Path, tmp_path: Path) -> None:
    path, built = program(tmp_path, 48, 128)
    succeeded(run(train(path, tmp_path / "warm")))
    floor = floor_nbytes(small, tmp_path)
    assert built.arena_nbytes > 8 * 2**20
    limit = address_space(floor + built.arena_nbytes)
    succeeded(run(train(path, tmp_path / "capped"), limit))


def test_too_little_memory_for_the_arena_is_said_in_one_line(small: Path, tmp_path: Path) -> None:
    whole = et.load_program(small)
    account = {**whole.account, "arena_nbytes": 2**31}  # otherwise the file contradicts itself
    huge = dataclasses.replace(whole, arena_nbytes=2**31, account=account)
    path = huge.save(tmp_path / "huge.edge")
    floor = floor_nbytes(small, tmp_path)
    ended = run(train(path, tmp_path / "capped"), address_space(floor + huge.arena_nbytes // 2))
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr and f"arena of {huge.arena_nbytes}" in ended.stderr


@pytest.mark.parametrize("how", ["plain", "traced"])
def test_500_steps_grow_nothing(small: Path, how: str) -> None:
    argv = [*command(measured=True)[:1], "-c", _GROWTH, str(small), how]
    resident, traced = json.loads(succeeded(run(argv)))
    assert traced < 32 * 2**10
    if how == "plain":
        assert resident < 3 * 2**20
