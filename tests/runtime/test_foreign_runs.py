"""A run directory made by somebody else: names in it that lead elsewhere, or block."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import EdgetrainError, RunError, UsageError
from edgetrain.history import HISTORY_FILE, History
from edgetrain.program import Program
from edgetrain.runtime.run.checkpoint import latest, save_checkpoint
from edgetrain.runtime.run.folder import BEST_FILE, PROGRAM_FILE, RunFolder
from edgetrain.runtime.run.lock import LOCK_FILE, RunLock
from edgetrain.runtime.run.state import open_run
from tests.test_opening import STRANGE

MINE = b"mine"


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Waiting for a FIFO fails the test."""

    def stop(*_: object) -> None:
        raise TimeoutError("waited")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A file of the user's that must not change."""
    path = tmp_path / "mine"
    path.write_bytes(MINE)
    yield path
    assert path.read_bytes() == MINE


def strange(kind: str, name: Path, mine: Path) -> None:
    """Replace a file by something of this kind; links lead to a file of the user's."""
    name.unlink(missing_ok=True)
    if kind == "link":
        name.symlink_to(mine)
    elif kind == "hard link":
        os.link(mine, name)
    else:
        STRANGE[kind](name)


@pytest.mark.parametrize("kind", [*STRANGE, "hard link"])
def test_a_strange_lock_is_refused(tmp_path: Path, mine: Path, kind: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    strange(kind, run / LOCK_FILE, mine)
    with pytest.raises(OSError):
        RunLock(run)
    with pytest.raises(UsageError, match="Remove it") as caught, RunFolder(run).held():
        pass
    assert str(run / LOCK_FILE) in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in STRANGE if kind != "directory"])
def test_a_strange_program_checkpoint_or_temporary_changes_nothing(
    tmp_path: Path, mine: Path, forked_program: Program, kind: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    strange(kind, run / PROGRAM_FILE, mine)
    strange(kind, run / ".step-00000001.ckpt.edgetrain-01234567.tmp", mine)
    for state in (False, True):
        with pytest.raises(EdgetrainError, match="not a regular file"):
            open_run(run) if state else et.Trainer(forked_program, "digits", run).fit(steps=1)
    (run / PROGRAM_FILE).unlink()
    et.Trainer(forked_program, "digits", run).fit(steps=1)
    newest = run / "step-00000001.ckpt"
    kept = newest.read_bytes()
    strange(kind, newest, mine)
    with pytest.raises(EdgetrainError, match="not a regular file"):
        open_run(run)
    with pytest.raises(RunError, match="not a regular file"):
        save_checkpoint(newest, {}, {})
    newest.unlink()
    newest.write_bytes(kept)
    strange(kind, run / "step-00000002.ckpt", mine)
    found = latest(run)
    assert found is not None and found.used == newest and "not a regular" in str(found.warning)
    strange(kind, run / BEST_FILE, mine)
    with pytest.raises(EdgetrainError, match="not a regular file"):
        open_run(run, best=True)


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_history_is_refused_before_training(
    tmp_path: Path, mine: Path, capsys: pytest.CaptureFixture[str], digits_edge: Path, kind: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    strange(kind, run / HISTORY_FILE, mine)
    argv = ["train", digits_edge, "--data", "digits", "--steps", 1, "--no-eval", "--out", run]
    assert main([str(part) for part in [*argv, "--report", tmp_path / "page.html"]]) == 1
    said = capsys.readouterr().err
    assert "history.json" in said and "not a regular file" in said and said.count("\n") == 1
    with pytest.raises(RunError, match="not a regular file"):
        History().write(run / HISTORY_FILE)
    assert not list(run.glob("*.ckpt"))


def test_the_names_of_a_new_run_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory survives a power cut only if its parent was flushed."""
    flushed: list[str] = []
    real = os.fsync

    def noted(handle: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    with RunFolder(tmp_path / "a" / "b" / "run").held():
        assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= {*flushed}
    flushed.clear()
    RunFolder.new(tmp_path / "runs", "net")
    assert {str(tmp_path), str(tmp_path / "runs")} <= {*flushed}
