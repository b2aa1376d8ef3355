"""What is installed: one package, and a subset of it that trains without the compiler."""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tools.wheels import ROOT, build, build_runtime

pytestmark = pytest.mark.slow


def test_the_whole_installs_one_package(tmp_path: Path) -> None:
    build(ROOT, tmp_path)
    (wheel,) = tmp_path.glob("edgetrain-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"edgetrain"}
    for name in ("exporters/parity.py", "exporters/__init__.py", "py.typed", "data/digits.npz"):
        assert f"edgetrain/{name}" in names


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with numpy, llvmlite and edgetrain-runtime alone."""
    folder = tmp_path_factory.mktemp("device")
    wheel = build_runtime(folder)
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    here = Path(sysconfig.get_path("purelib"))
    for package in ("numpy", "llvmlite"):
        assert importlib.util.find_spec(package) is not None
        for path in here.glob(f"{package}*"):
            (site / path.name).symlink_to(path)
    # Objects in the cache are named by the version of numba that made them: a device is told it.
    told = site / f"numba-{importlib.metadata.version('numba')}.dist-info"
    told.mkdir()
    shutil.copy(here / told.name / "METADATA", told)
    return folder / "venv" / "bin" / "python"


def test_the_runtime_trains_evaluates_and_exports(
    device: Path, digits_edge: Path, tmp_path: Path
) -> None:
    def command(python: Path | str, *argv: object) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if python == sys.executable:
            kept["PYTHONPATH"] = str(ROOT)
        return subprocess.run(
            [str(python), "-m", "edgetrain", *map(str, argv)],
            capture_output=True, text=True, cwd=tmp_path, env=kept, timeout=300,
        )  # fmt: skip

    for name, python in (("host", sys.executable), ("device", device)):
        out = tmp_path / name
        done = command(python, "train", digits_edge, "--data", "digits", "--steps", 3, "--out", out)
        assert done.returncode == 0, done.stderr
        done = command(python, "eval", out, "--data", "digits", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["samples"] > 0, done.stderr
        done = command(python, "export", out, "-o", tmp_path / f"{name}.onnx")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "host.onnx").read_bytes() == (tmp_path / "device.onnx").read_bytes()
    facts = json.loads(command(device, "doctor", "--json").stdout)
    assert facts["missing"] == [] and facts["packages"]["onnx"] is None
    done = command(device, "plan", "model.onnx")
    assert done.returncode == 2 and "pip install edgetrain" in done.stderr
