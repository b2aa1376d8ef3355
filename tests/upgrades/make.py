"""A set of interrupted runs of the version at hand, for later ones to go on with.

python -m tests.upgrades.make NAME [KIND ...] writes tests/upgrades/NAME.tar.xz; with kinds, only
these are made again. For each kind the set contains the model, the run's directory after STOPPED
steps, and in expected.json the result that the same version reached after WHOLE steps.
"""

import argparse
import io
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from edgetrain.errors import Interrupted
from edgetrain.runtime.run.checkpoint import step_files
from tests.digests import digest

from .kinds import KINDS, STOPPED, WHOLE, Kind, compiled, trainer
from .nets import write_net

FOLDER = Path(__file__).parent
EXPECTED, MODEL, RUN = "expected.json", "model.onnx", "run"


def reached(kind: Kind, folder: Path, out: Path) -> dict[str, Any]:
    """Continue the run in `folder` to WHOLE steps and return its result.

    Args:
      out: where checkpoints are written: `folder` itself, or another folder.
    """
    found = trainer(kind, folder / "program.edge", out)
    try:
        assert found.resume(folder)
        last = found.fit(steps=WHOLE)
        state = digest(found.session.state())
        return {"digest": state, "counters": found.session.counters(), "loss": last["loss"][-1]}
    finally:
        found.close()


def _interrupted(kind: Kind, model: Path, folder: Path) -> None:
    """Make a run that is stopped in the middle of an epoch."""

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == STOPPED:
            found.interrupt()

    found = trainer(kind, compiled(kind, model), folder, on_event=stop)
    try:
        found.fit(steps=WHOLE)
        raise AssertionError("it was not interrupted")
    except Interrupted:
        pass
    finally:
        found.close()
    for path in step_files(folder)[:-1]:
        path.unlink()


def _one(name: str, kind: Kind, place: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of a kind, and its run's result."""
    model = write_net(kind.net, place / MODEL)
    folder, copy = place / RUN, place / "copy"
    _interrupted(kind, model, folder)
    shutil.copytree(folder, copy)
    end = reached(kind, copy, copy)
    files = {f"{name}/{MODEL}": model.read_bytes()}
    for path in sorted(folder.iterdir()):
        files[f"{name}/{RUN}/{path.name}"] = path.read_bytes()
    return files, end


def read_set(path: Path) -> dict[str, bytes]:
    """Read the files of a set, by name: `KIND/model.onnx`, `KIND/run/program.edge` and so on."""
    with tarfile.open(path) as archive:
        members = [one for one in archive.getmembers() if one.isfile()]
        return {one.name: archive.extractfile(one).read() for one in members}  # type: ignore


def _write(path: Path, files: dict[str, bytes]) -> None:
    """Write the same bytes every time; equal weights of several runs are compressed away."""
    with tarfile.open(path, "w:xz") as archive:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size = len(files[name])
            archive.addfile(info, io.BytesIO(files[name]))


def main() -> int:
    """Write a set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", metavar="NAME", help="of the set: the version or commit at hand")
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[[], *KINDS])
    arguments = parser.parse_args()
    path = FOLDER / f"{arguments.name}.tar.xz"
    files = read_set(path) if arguments.kinds and path.exists() else {}
    expected = json.loads(files.get(EXPECTED, b"{}"))
    for name in arguments.kinds or KINDS:
        with tempfile.TemporaryDirectory() as place:
            more, expected[name] = _one(name, KINDS[name], Path(place))
        files = {k: v for k, v in files.items() if not k.startswith(f"{name}/")} | more
        print(f"{name:16} {sum(map(len, more.values())):,} bytes", flush=True)
    files[EXPECTED] = json.dumps(expected, indent=1).encode()
    _write(path, files)
    print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
