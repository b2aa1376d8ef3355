"""Standard output and error that are closed, full, a broken pipe, or limited to few characters."""

import contextlib
import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgetrain.cli import main
from edgetrain.kernels.cache import library
from edgetrain.runtime.run.checkpoint import latest, step_files
from edgetrain.screen.streams import Stream, lost
from tests.quick import slow_between

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
WAYS = ("closed", "full", "pipe")


def ended(argv: list[object], ways: dict[int, str], **environment: str):
    """Run a command with descriptors as in `ways`; return (exit status, stdout, stderr)."""
    full, (reader, broken) = os.open("/dev/full", os.O_WRONLY), os.pipe()
    os.close(reader)

    def prepare() -> None:
        for number, way in ways.items():
            if way == "closed":
                os.close(number)
            else:
                os.dup2(full if way == "full" else broken, number)

    try:
        done = subprocess.run(
            [sys.executable, "-m", "edgetrain.cli", *map(str, argv)], capture_output=True,
            preexec_fn=prepare, timeout=120, env={**os.environ, **environment}, pass_fds=(),
        )  # fmt: skip
    finally:
        os.close(full)
        os.close(broken)
    return done.returncode, done.stdout, done.stderr


def train(edge: Path, out: Path, *more: object) -> list[object]:
    return ["train", edge, "--data", "digits", "--steps", 9, "--no-eval", "--out", out, *more]


@pytest.mark.parametrize("json_", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("way", slow_between(WAYS, 2))
@pytest.mark.parametrize("which", [(1,), (2,), (0, 1, 2)], ids=str)
def test_training_goes_on_and_the_run_is_whole(
    digits_edge: Path, tmp_path: Path, which: tuple[int, ...], way: str, json_: bool
) -> None:
    out, more = tmp_path / "run", ["--json"] if json_ else []
    status, stdout, stderr = ended(
        train(digits_edge, out, *more),
        {number: way for number in which if number or way == WAYS[0]},
    )
    assert status == 0, stderr
    loaded = latest(out)
    assert loaded is not None and loaded.meta["step"] == 9 and loaded.warning is None
    assert {path.suffix for path in out.iterdir()} == {".edge", ".ckpt", ".json", ".svg"}
    if which == (1,):
        said = [line for line in stderr.decode().splitlines() if "standard output" in line]
        assert len(said) == 1 and b"Traceback" not in stderr and b"ignored" not in stderr
    if which == (2,) and json_:
        assert {json.loads(line)["event"] for line in stdout.splitlines()} >= {"step", "done"}


COMMANDS = {
    "ops": ["ops"], "help": ["train", "--help"], "doctor": ["doctor"],
    "inspect": ["inspect", "EDGE"], "data": ["data", "digits"],
    "eval": ["eval", "EDGE", "--data", "digits", "--json"],
    "plan": ["plan", "examples/digits/model.onnx", "--json"],
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", slow_between(COMMANDS, 2))
def test_a_command_says_that_its_output_is_lost(digits_edge: Path, name: str, way: str) -> None:
    argv = [digits_edge if word == "EDGE" else word for word in COMMANDS[name]]
    status, _, stderr = ended(argv, {1: way}, EDGETRAIN_PROGRESS="0")
    said = [line for line in stderr.decode().splitlines() if not line.startswith("note:")]
    assert status == 1 and len(said) == 1 and "standard output: " in said[0], stderr


@pytest.mark.parametrize("way", WAYS)
def test_an_error_that_nobody_can_read_keeps_its_status(tmp_path: Path, way: str) -> None:
    assert ended(["inspect", tmp_path / "none.edge"], {1: way, 2: way}) == (4, b"", b"")


def test_an_ascii_terminal_prints_escapes(tmp_path: Path) -> None:
    path = tmp_path / "größe.npz"
    y = np.arange(8) % 2
    np.savez(path, x=np.zeros((8, 2), np.float32), y=y)
    environment = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    status, stdout, stderr = ended(["data", f"npz:{path}"], {}, **environment)
    assert status == 0, stderr
    assert b"gr\\xf6\\xdfe" in stdout + stderr
    status, _, stderr = ended(["inspect", tmp_path / "größe.edge"], {}, **environment)
    assert status == 4 and b"gr\\xf6\\xdfe" in stderr and stderr.count(b"\n") == 1


def test_no_file_gets_the_number_of_a_closed_stream(digits_edge: Path, tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom edgetrain.cli import main\n"
        "from edgetrain.runtime.run import checkpoint\n"
        "save = checkpoint.save_checkpoint\n"
        "def noisy(*given, **named):\n"
        "    os.write(1, b'noise'); os.write(2, b'noise')\n"
        "    save(*given, **named)\n"
        "checkpoint.save_checkpoint = noisy\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    argv = train(digits_edge, tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, argv)], preexec_fn=lambda: os.closerange(0, 3)
    )
    assert done.returncode == 0 and len(step_files(tmp_path / "run")) == 1
    assert latest(tmp_path / "run") is not None


def test_the_streams_of_the_caller_are_given_back(capsys: pytest.CaptureFixture) -> None:
    before = sys.stdout, sys.stderr
    assert main(["ops", "--json"]) == 0 and (sys.stdout, sys.stderr) == before
    assert "ops" in json.loads(capsys.readouterr().out)


def test_a_stream_is_lost_once_and_says_why() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    said: list[str] = []
    stream = Stream(Full(), said.append)
    assert stream.write("") == 0 and not lost(stream)
    for _ in range(3):
        stream.write("text")
        stream.flush()
    assert said == [lost(stream)] == ["No space left on device"]


def _no_stderr(kind: str):
    if kind == "missing":
        return None
    stream = open("/dev/full", "w")  # noqa: SIM115 - the test's to close
    if kind == "closed":
        stream.close()
    return stream


@pytest.mark.parametrize("kind", ["missing", "closed", "full"])
def test_warnings_of_kernels_are_lost_and_end_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / library.INDEX).write_text("[")
    assert library._opened(folder) is None
    assert capsys.readouterr().err.startswith("edgetrain: warning: kernels library")
    stream = _no_stderr(kind)
    monkeypatch.setattr(sys, "stderr", stream)
    assert library._opened(folder) is None
    monkeypatch.undo()
    assert capsys.readouterr().out == ""
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.close()


def test_kernels_print_nothing_but_by_warn() -> None:
    """Printing to a closed or full standard error would end a run."""
    root = Path(library.__file__).parents[1]
    prints = [p for p in root.rglob("*.py") if re.search(r"^\s*print\(", p.read_text(), re.M)]
    found = {path.relative_to(root).as_posix() for path in prints}
    # replies on a pipe, and a command of its own
    assert found == {"cache/compile_worker.py", "run/__main__.py"}
