"""An installed library of kernels: training needs no compiler, and other versions are refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit, library, sources
from edgetrain.kernels.cache.load import IMPORTS
from edgetrain.kernels.linking import packing
from edgetrain.kernels.tapes import decode

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not jit.host().triple.startswith(("x86_64", "aarch64")),
    reason="ELF files are made for x86-64 and AArch64 Linux",
)
SCRIPT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite", "onnx", "scipy", "rich"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Blocked())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name in ("numba", "llvmlite") else found(name, *rest))
import hashlib
import edgetrain as et
"""
RUN = """
trainer = et.Trainer(et.load_program(sys.argv[1]), data="digits")
trainer.fit(steps=5)
state = trainer.session.state()
print(hashlib.sha256(b"".join(state[name].tobytes() for name in sorted(state))).hexdigest())
print(trainer.evaluate())
print(trainer.export_onnx(sys.argv[1] + ".onnx").stat().st_size)
"""


def kernels_of(program: et.Program) -> list:
    """The kernels that training and evaluating the Program call."""
    control = [n for n in registry.names() if n == "run_tape" or n.startswith(("drive_", "rate_"))]
    found = [*decode.bound(program.kernels), *((registry.variants(n)[0], {}) for n in control)]
    return list(
        {kernel.symbol(storages): (kernel, storages) for kernel, storages in found}.values()
    )


@pytest.fixture(scope="module")
def installed(digits: et.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of the kernels that the digits need."""
    folder = tmp_path_factory.mktemp("library")
    code = [one for (one,) in packing.objects(kernels_of(digits), [jit.host()])]
    planner = packing.planner(jit.host())
    packing.write_library(folder, "host", et.__version__, code, IMPORTS, planner=planner)
    return folder


def run(script: str, path: Path, folder: Path | str, tmp_path: Path):
    environment = {
        **os.environ, "EDGETRAIN_KERNELS": str(folder), "EDGETRAIN_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", script, str(path)], env=environment, capture_output=True, text=True
    )


def test_training_from_a_library_has_the_same_bits_without_numba(installed, digits_edge, tmp_path):
    done = run(SCRIPT + RUN, digits_edge, installed, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not (tmp_path / "cache").exists()
    environment = {**os.environ, "EDGETRAIN_KERNELS": "none"}
    same = "import sys, hashlib\nimport edgetrain as et\n" + RUN
    here = subprocess.run(
        [sys.executable, "-c", same, str(digits_edge)], env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert here.stdout == done.stdout and not done.stderr


COMMAND = """
from edgetrain.cli import main
sys.exit(main(["eval", sys.argv[1], "--data", "digits"]))
"""
PAIRED = """
from edgetrain.runtime import executor
executor.rewrites = lambda recipe: ("pairs",)
"""
PLAN = """
import sys
from edgetrain.cli import main
assert main(["compile", sys.argv[1], "--budget", "256KiB", "-o", sys.argv[1] + ".edge"]) == 0
assert main(["plan", sys.argv[1], "--precision", "fp16", "--density", "0.5"]) == 0
print({name.partition(".")[0] for name in sys.modules} & {"numba", "llvmlite"})
"""


def test_planning_from_a_library_compiles_nothing(installed, tmp_path):
    model = Path(shutil.copy("examples/digits/model.onnx", tmp_path))
    done = run(PLAN, model, installed, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "set()"
    kept = {path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert not kept & {".o", ".so"}
    index = json.loads((installed / library.INDEX).read_text())
    other = index["units"] | {"greedy placement": "old"}
    (tmp_path / library.INDEX).write_text(json.dumps(index | {"units": other}))
    found = library.Library(tmp_path, json.loads((tmp_path / library.INDEX).read_text()))
    assert found.loops("greedy placement", index["units"]["greedy placement"]) is None


def test_a_process_without_library_and_numba_says_what_to_install(digits_edge, tmp_path, installed):
    made = json.loads((installed / library.INDEX).read_text())
    (tmp_path / library.INDEX).write_text(json.dumps({**made, "digests": {}}))
    shutil.copy(installed / sources.DECLARATIONS, tmp_path)
    done = run(SCRIPT + RUN, digits_edge, tmp_path, tmp_path)
    assert done.returncode == 1 and "NotInstalledError" in done.stderr
    assert "Run: pip install edgetrain-kernels-" in done.stderr.splitlines()[-1]
    done = run(SCRIPT + COMMAND, digits_edge, tmp_path, tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "Run: pip install edgetrain-kernels-" in done.stderr
    done = run(SCRIPT + PAIRED + COMMAND, digits_edge, installed, tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "arithmetic" in done.stderr


@pytest.mark.parametrize("kind", ["another kernel", "another format", "no index"])
def test_a_library_of_another_version_is_not_called(kind, installed, tmp_path, monkeypatch, capsys):
    index = json.loads((installed / library.INDEX).read_text())
    if kind == "another kernel":
        index |= {"package": "old", "digests": {**index["digests"], "update": "old"}}
    elif kind == "another format":
        index["format"] = 99
    (tmp_path / library.LIBRARY).write_bytes((installed / library.LIBRARY).read_bytes())
    if kind != "no index":
        (tmp_path / library.INDEX).write_text(json.dumps(index))
    monkeypatch.setenv("EDGETRAIN_KERNELS", str(tmp_path))
    found = library.installed.__wrapped__()
    if kind == "another kernel":
        assert found.address("et_sgd__plain__f32__f32__f32", "update") is None
        assert found.address("et_run_tape__plain", "tapes.tape") is not None
    else:
        assert found is None
        assert capsys.readouterr().err.count("\n") == 1


def test_a_kernel_that_the_library_lacks_has_no_address(installed, monkeypatch):
    monkeypatch.setenv("EDGETRAIN_KERNELS", str(installed))
    found = library.installed.__wrapped__()
    assert found.address("et_lstm__plain", "recurrent.lstm") is None


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("way", ["api", "command"])
def test_training_from_a_library_takes_few_megabytes(way, installed, digits_edge, tmp_path):
    """Memory above a process with numpy, ctypes and the library: 5.4 and 5.8 MB; Python 3.14: 7.1.

    Wheels have leaner sources, but tests/test_wheels.py counts all of the standard library.
    """
    high = "\nprint([s for s in open('/proc/self/status') if s.startswith('VmHWM')][0].split()[1])"
    bare = f"import numpy, ctypes\nctypes.CDLL({str(installed / library.LIBRARY)!r})"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "PYTHONPYCACHEPREFIX": str(tmp_path / "pyc"),
        "EDGETRAIN_KERNELS": str(installed),
    }
    train = "import sys\nimport edgetrain as et\n" + (
        "et.Trainer(et.load_program(sys.argv[1]), data='digits').fit(steps=20)"
    )
    if way == "command":
        train = (
            "import sys\nfrom edgetrain.cli import main\nassert main(['train', sys.argv[1], "
            + ("'--data', 'digits', '--steps', '20', '--out', sys.argv[2]]) == 0")
        )

    def used(script: str, number: int) -> int:
        command = [
            sys.executable,
            "-c",
            script + high,
            str(digits_edge),
            str(tmp_path / f"{number}"),
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return int(done.stdout.split()[-1])

    # The median of five: on a machine short of memory, single values are lower.
    found = [sorted(used(script, k) for k in range(5))[2] for script in (bare, train)]
    limit = 6_000_000 if sys.version_info < (3, 14) else 7_250_000
    assert (found[1] - found[0]) * 1024 <= limit, found
