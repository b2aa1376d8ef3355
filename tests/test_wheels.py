"""What is installed: one package, and a subset of it that trains without the compiler."""

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tools.wheels import ROOT, build, build_runtime, copy_source

pytestmark = pytest.mark.slow


def test_the_whole_installs_one_package(tmp_path: Path) -> None:
    build(ROOT, tmp_path)
    (wheel,) = tmp_path.glob("edgetrain-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"edgetrain"}
    for name in ("exporters/parity.py", "exporters/__init__.py", "py.typed", "data/digits.bin"):
        assert f"edgetrain/{name}" in names


def test_pip_installs_one_name_and_its_exporters(tmp_path: Path) -> None:
    """`pip install .` in an empty environment; build isolation fetches setuptools."""
    copy_source(ROOT, tmp_path / "source")
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    before = {path.name for path in site.iterdir()}
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "."]
    done = subprocess.run(pip, cwd=tmp_path / "source", env=kept, capture_output=True, text=True)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index to fetch setuptools from")
    assert done.returncode == 0, done.stderr
    found = {path.name for path in site.iterdir()} - before
    assert {name.partition("-")[0] for name in found} == {"edgetrain"} and len(found) == 2
    # torch, onnx and the others are this environment's
    needed = f"{sysconfig.get_path('purelib')}"
    code = "from edgetrain.exporters import export_torch; print(export_torch.__module__)"
    done = subprocess.run(
        [python, "-c", f"import sys; sys.path.append({needed!r}); {code}"],
        cwd=tmp_path, env=kept, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("edgetrain.exporters"), done.stderr


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with numpy, llvmlite, edgetrain-runtime and its kernels."""
    here = Path(sysconfig.get_path("purelib"))
    kernels = list(here.glob("edgetrain_kernels*"))
    if not kernels:
        pytest.skip("no library of kernels (edgetrain-kernels) is installed here")
    folder = tmp_path_factory.mktemp("device")
    wheel = build_runtime(folder)
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    for path in kernels:
        (site / path.name).symlink_to(path)
    for package in ("numpy", "llvmlite"):
        assert importlib.util.find_spec(package) is not None
        for path in here.glob(f"{package}*"):
            (site / path.name).symlink_to(path)
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
