"""What gets installed: the full package, and a subset that trains without the compiler."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy
import pytest

import edgetrain
from edgetrain.cli.parser import device_commands
from edgetrain.cli.parser.device_commands import AT_HOME
from edgetrain.cli.parser.host_commands import command_parsers
from edgetrain.kernels import targets
from edgetrain.kernels.cache import jit, processor, sources
from edgetrain.program import Program
from tests.runtime.test_library import kernels_of
from tools.kernel_wheels import PLATFORMS, _zipped, build_kernels
from tools.wheels import KERNELS, ROOT, build, copy_source

# Modules of public names that need the full edgetrain.
HOME = {"api", "demo", "importer", "lr_finder", "migration"}
# Trains, predicts and exports a Program of its own from Python.
LIBRARY = """
import sys, zlib
import numpy as np
import edgetrain as et
trainer = et.Trainer(et.load_program(sys.argv[1] + "/program.edge"), data="digits")
trainer.resume(sys.argv[1])
x = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 1, 8, 8)
print(zlib.crc32(trainer.session.predict({"x": x}).tobytes()), trainer.evaluate())
trainer.program.save(sys.argv[1] + "/again.edge")
print(et.load_program(sys.argv[1] + "/again.edge").arena_nbytes)
"""


@pytest.mark.slow
def test_the_whole_installs_one_package(tmp_path: Path) -> None:
    build(ROOT, tmp_path)
    (wheel,) = tmp_path.glob("edgetrain-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"edgetrain"}
    digits = "data/sources/digits.bin", "demo/digits.onnx"
    for name in ("exporters/parity.py", "exporters/__init__.py", "py.typed", *digits):
        assert f"edgetrain/{name}" in names


@pytest.mark.slow
def test_pip_installs_one_name_and_its_exporters(tmp_path: Path) -> None:
    """`pip install .` in an empty environment; build isolation fetches setuptools."""
    copy_source(ROOT, tmp_path / "source")
    given = {path.name for path in (tmp_path / "source").iterdir()}
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
    assert {path.name for path in (tmp_path / "source").iterdir()} == given
    found = {path.name for path in site.iterdir()} - before
    assert {name.partition("-")[0] for name in found} == {"edgetrain"} and len(found) == 2
    # torch, onnx and the others come from this environment
    needed = f"{sysconfig.get_path('purelib')}"
    code = "from edgetrain.exporters import export_torch; print(export_torch.__module__)"
    done = subprocess.run(
        [python, "-c", f"import sys; sys.path.append({needed!r}); {code}"],
        cwd=tmp_path, env=kept, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("edgetrain.exporters"), done.stderr


def _alone(function: str, folder: Path) -> None:
    """Call a function of tools.wheels in its own process: this one may know kernels of tests."""
    script = f"import pathlib, tools.wheels; tools.wheels.{function}(pathlib.Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def device(digits: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with numpy, edgetrain-runtime and kernels for this processor.

    Only kernels that the digits need are compiled.
    """
    target = next(iter(processor.levels()), "")
    if target not in PLATFORMS or targets.get(target).lanes != jit.host().lanes:
        pytest.skip("no wheel of kernels is made for this processor")
    folder = tmp_path_factory.mktemp("device")
    (kernels,) = build_kernels(folder, [target], kernels_of(digits))
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    _alone("build_runtime", folder)
    (runtime,) = folder.glob("edgetrain_runtime-*.whl")
    for wheel in (runtime, kernels):
        zipfile.ZipFile(wheel).extractall(site)
    for path in Path(numpy.__file__).parents[1].glob("numpy*"):
        (site / path.name).symlink_to(path)
    return folder / "venv" / "bin" / "python"


def _beside(python: Path | str, *argv: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the packages of that Python; this Python uses the source tree."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if python == sys.executable:
        kept["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [str(python), *map(str, argv)],
        capture_output=True, text=True, cwd=cwd, env=kept, timeout=300,
    )  # fmt: skip


TRAINED = """
import sys, zlib
import edgetrain as et
with et.Trainer(et.load_program(sys.argv[1]), data="digits", out=sys.argv[2]) as trainer:
    trainer.fit(steps=3)
    found = {name: zlib.crc32(a.tobytes()) for name, a in trainer.session.state().items()}
print(sys.modules["edgetrain"].__file__, sorted(found.items()), sep="\\n")
"""


def test_what_is_installed_trains_a_program_to_the_bits_of_the_sources(
    device: Path, digits_edge: Path, tmp_path: Path
) -> None:
    found = []
    for name, python in (("host", sys.executable), ("device", device)):
        done = _beside(python, "-c", TRAINED, digits_edge, tmp_path / name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.splitlines())
    (site,) = device.parents[1].glob("lib/python*/site-packages")
    assert Path(found[1][0]).is_relative_to(site) and Path(found[0][0]).is_relative_to(ROOT)
    assert found[0][1] == found[1][1]


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of edgetrain-runtime."""
    folder = tmp_path_factory.mktemp("staged")
    _alone("stage", folder)
    return folder


def test_the_runtime_has_the_kernels_sources_that_it_needs_and_no_others(staged: Path) -> None:
    kernels = staged / "edgetrain" / "kernels"
    found = {path.relative_to(kernels).as_posix() for path in kernels.rglob("*") if path.is_file()}
    assert found == {sources.MADE, sources.DECLARATIONS, *(f"{name}.py" for name in KERNELS)}


def _on_device(staged: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the sources of edgetrain-runtime and no package of the host but numpy."""
    site = Path(numpy.__file__).parents[1]
    paths = f"import sys\nsys.path[:0] = [{str(staged)!r}]\nsys.path.append({str(site)!r})\n"
    return subprocess.run(
        [sys.executable, "-S", "-c", paths + script], capture_output=True, text=True, cwd=staged
    )


IMPORTS = """
import pkgutil, edgetrain
for found in pkgutil.walk_packages(edgetrain.__path__, "edgetrain."):
    if not found.name.endswith("__main__"):
        try:
            __import__(found.name)
        except ModuleNotFoundError as error:
            assert error.name == "flwr", (found.name, error)
for name in edgetrain._PUBLIC:
    try:
        getattr(edgetrain, name)
    except edgetrain.UsageError as error:
        print(name, "not part of edgetrain-runtime" in str(error))
"""


def test_every_module_of_a_device_can_be_imported_and_the_rest_says_what_to_install(
    staged: Path,
) -> None:
    done = _on_device(staged, IMPORTS)
    assert done.returncode == 0, done.stderr
    absent = {name for name, home in edgetrain._PUBLIC.items() if (home or name) in HOME}
    assert done.stdout.splitlines() == [f"{n} True" for n in edgetrain._PUBLIC if n in absent]


COMMANDS = """
import contextlib, io
from edgetrain.cli import main
from edgetrain.cli.parser.device_commands import AT_HOME
train = "train m.onnx --data digits --steps 1".split()
for words in [*([name] for name in AT_HOME), train, ["plam"], ["train", "--help-all"], ["--help"],
              ["data", "digits"], ["doctor"]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    print(words[0], status, err.getvalue().count("\\n"), "pip install edgetrain" in err.getvalue())
"""


def test_a_device_names_the_commands_that_it_lacks_and_what_to_install(staged: Path) -> None:
    done = _on_device(staged, COMMANDS)
    assert done.returncode == 0, done.stderr
    own = ["plam 2 1 False", "train 0 0 False", "--help 0 0 False", "data 0 0 False"]
    expected = [*(f"{name} 2 1 True" for name in (*AT_HOME, "train")), *own, "doctor 0 0 False"]
    assert done.stdout.splitlines() == expected
    assert {*command_parsers()} == {*AT_HOME, *device_commands.parser_for("")[1]}


def test_files_of_a_wheel_can_be_read_by_all_and_its_record_names_them(tmp_path: Path) -> None:
    package = tmp_path / "edgetrain_kernels_x"
    package.mkdir()
    (package / "kernels.so").write_bytes(bytes(1000))
    with zipfile.ZipFile(_zipped(tmp_path, "x86-64-v3", package)) as wheel:
        entries, rows = wheel.infolist(), wheel.read(wheel.namelist()[-1]).decode().splitlines()
    assert {entry.external_attr >> 16 & 0o777 for entry in entries} == {0o644}
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_DEFLATED}
    assert [row.split(",")[0] for row in rows] == [entry.filename for entry in entries]


@pytest.mark.slow
def test_the_runtime_is_small_and_carries_no_sources_of_kernels(device: Path) -> None:
    (site,) = device.parents[1].glob("lib/python*/site-packages")
    where = ["-s", site, "-p", "/home/user/.venv/lib/python3.11/site-packages"]  # is in each file
    subprocess.run([device, "-m", "compileall", "-qf", *where, site / "edgetrain"], check=True)
    files = [path for path in (site / "edgetrain").rglob("*") if path.is_file()]
    # 2.89 MB: callers' batches, stored states and refusals of what would train wrongly took 0.1 MB.
    assert sum(path.stat().st_size for path in files) <= 2_900_000
    assert not list((site / "edgetrain").glob("kernels/*emit*"))


HIGH = """
print([s for s in open("/proc/self/status") if s.startswith("VmHWM")][0].split()[1])
"""
COMMAND = """
import sys
from edgetrain.cli import main
assert main(["train", sys.argv[1], "--data", "digits", "--steps", "20", "--out", sys.argv[2]]) == 0
"""
TRAINER = """
import sys
import edgetrain as et
et.Trainer(et.load_program(sys.argv[1]), data="digits", out=sys.argv[2]).fit(steps=20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_training_takes_few_megabytes(device: Path, digits_edge: Path, tmp_path: Path) -> None:
    """Memory above numpy, ctypes and the kernels: command 5.9 MB, Python 5.8 MB.

    This includes the parts of the standard library that training needs.
    """
    (library,) = device.parents[1].glob("lib/python*/site-packages/edgetrain_kernels_*/kernels.so")
    bare = f"import numpy, ctypes\nctypes.CDLL({str(library)!r})"
    unwanted = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if k not in unwanted}

    def used(script: str, name: str) -> int:
        command = [device, "-c", script + HIGH, digits_edge, tmp_path / name]
        # not in the source folder, whose modules Python would import
        done = subprocess.run(
            command, env=kept, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return int(done.stdout.split()[-1])

    # the median of three: the first writes bytecode
    scripts = {"bare": bare, "command": COMMAND, "library": TRAINER}
    found = {
        name: sorted(used(script, f"{name}{k}") for k in range(3))[1]
        for name, script in scripts.items()
    }
    for name in ("command", "library"):
        assert (found[name] - found["bare"]) * 1024 <= 6_000_000, found


START = """
import sys, time
import edgetrain as et
session = et.Session(et.load_program(sys.argv[1]))
print(time.process_time())
"""


@pytest.mark.slow
def test_the_first_step_begins_within_two_seconds(
    device: Path, digits_edge: Path, tmp_path: Path
) -> None:
    """CPU time, so other load does not count; the file was never read before."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [device, "-c", START, digits_edge]
    done = subprocess.run(
        command, env=kept, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) <= 2


@pytest.mark.slow
def test_the_runtime_trains_evaluates_and_exports(
    device: Path, digits_edge: Path, tmp_path: Path
) -> None:
    def command(python: Path | str, *argv: object) -> subprocess.CompletedProcess[str]:
        return run(python, "-m", "edgetrain", *argv)

    def run(python: Path | str, *argv: object) -> subprocess.CompletedProcess[str]:
        return _beside(python, *argv, cwd=tmp_path)

    for name, python in (("host", sys.executable), ("device", device)):
        out = tmp_path / name
        for more in (("--steps", 3, "--out", out, digits_edge), ("--steps", 5, "--resume", out)):
            done = command(python, "train", "--data", "digits", *more)
            assert done.returncode == 0, done.stderr
        done = command(python, "eval", out, "--data", "digits", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["samples"] > 0, done.stderr
        done = command(python, "export", out, "-o", tmp_path / f"{name}.onnx")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "host.onnx").read_bytes() == (tmp_path / "device.onnx").read_bytes()
    for name, python in (("host", sys.executable), ("device", device)):
        done = run(python, "-c", LIBRARY, tmp_path / name)
        assert done.returncode == 0, done.stderr
        (tmp_path / f"{name}.out").write_text(done.stdout)
    assert (tmp_path / "host.out").read_text() == (tmp_path / "device.out").read_text()
    facts = json.loads(command(device, "doctor", "--json").stdout)
    assert facts["missing"] == [] and facts["packages"]["onnx"] is None
    asked = ("--data", "digits", "--steps", 1, "--out", tmp_path / "paged", "--report", "run.html")
    done = command(device, "train", digits_edge, *asked)
    assert done.returncode == 2 and "pip install edgetrain" in done.stderr
    assert not (tmp_path / "paged").exists()
    done = command(device, "plan", "model.onnx")
    assert done.returncode == 2 and "pip install edgetrain" in done.stderr
