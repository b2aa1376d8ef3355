"""The runtime and its kernels elsewhere: Python in an emulator, and the library under musl."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.kernels.cache import library
from edgetrain.runtime.samples.check import checked_run
from tests.runtime.test_library import kernels_of
from tools.kernel_wheels import build_kernels
from tools.wheels import ROOT, stage

from .python_root import KINDS, command, environment, missing

LINKERS = {"armv7": "arm-linux-gnueabihf-gcc", "riscv64": "riscv64-linux-gnu-gcc"}
TRAIN = """
import sys
from edgetrain.cli import main
program, out = sys.argv[1:]
data = ["--data", "digits"]
assert main(["train", program, *data, "--steps", "2", "--no-eval", "--out", out]) == 0
assert main(["train", "--resume", out, *data, "--steps", "3"]) == 0
assert main(["eval", out, *data, "--json"]) == 0
assert main(["export", out, "-o", out + ".onnx"]) == 0
print("numba" in sys.modules, "llvmlite" in sys.modules)
"""
# Processor and kind of net, on made-up samples.
NETS = (("aarch64", "sparse"), ("aarch64", "attention"), ("armv7", "lstm"), ("riscv64", "lstm"))
STEPS = 3
CHECK = f"""
import sys
import edgetrain as et
from edgetrain.runtime.samples.check import checked_run
print(checked_run(et.load_program(sys.argv[1]), {STEPS}))
"""
MUSL = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW);
  if (!library) { puts(dlerror()); return 1; }
  void (*run)(long, long *, long, long) = dlsym(library, "et_run_tape__plain");
  if (!run) { puts(dlerror()); return 1; }
  long operands[5] = {0}; /* a tape without instructions */
  run(0, operands, 0, 1);
  for (int k = 2; k < count; ++k)
    if (!dlsym(library, words[k])) { puts(dlerror()); return 1; }
  puts("ran");
  return 0;
}
"""


@pytest.fixture(scope="module")
def program() -> et.Program:
    model = et.load_onnx(ROOT / "examples" / "digits" / "model.onnx")
    return et.compile(
        model,
        loss="cross_entropy",
        optimizer=et.SGD(lr=0.1, momentum=0.9, nesterov=True),
        minibatch=32,
        budget="256KiB",
    )


@pytest.fixture(scope="module")
def edge(program: et.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "digits.edge"
    program.save(path)
    return path


def trained(start: list[str], variables: dict[str, str] | None, edge: Path, out: Path) -> str:
    """Run the script and return its output."""
    done = subprocess.run(
        [*start, "-c", TRAIN, str(edge), str(out)],
        capture_output=True,
        text=True,
        env=variables,
        cwd=out.parent if variables else ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def here(edge: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """Results of this machine: the evaluation's line and the trained model."""
    out = tmp_path_factory.mktemp("here") / "run"
    lines = trained([sys.executable], None, edge, out).splitlines()
    (metrics,) = [line for line in lines if line.startswith("{")]
    return metrics.replace(str(out), "RUN"), Path(f"{out}.onnx").read_bytes()


def device(name: str, program: et.Program, folder: Path) -> Path:
    """Stage edgetrain-runtime and a Program's kernels for a processor's Python; return the folder.

    Skips the test if no such Python can run.
    """
    reason = missing(name)
    if not reason and name in LINKERS and shutil.which(LINKERS[name]) is None:
        reason = f"{LINKERS[name]} not installed; it links the library of kernels for {name}"
    if reason:
        pytest.skip(reason)
    (folder / "site").mkdir()
    site = stage(folder / "site")
    (wheel,) = build_kernels(folder, [name], kernels_of(program))
    zipfile.ZipFile(wheel).extractall(site)
    return site


@pytest.mark.parametrize("name", KINDS)
def test_python_on_another_processor_trains_with_the_same_bits(
    name: str, program: et.Program, edge: Path, here: tuple[str, bytes], tmp_path: Path
) -> None:
    site = device(name, program, tmp_path)
    out, variables = tmp_path / "run", environment(name, site, tmp_path / "cache")
    lines = trained(command(name), variables, edge, out).splitlines()
    (metrics,) = [line for line in lines if line.startswith("{")]
    assert (metrics.replace(str(out), "RUN"), Path(f"{out}.onnx").read_bytes()) == here
    assert lines[-1] == "False False"


@pytest.mark.parametrize(("name", "kind"), NETS)
def test_nets_of_every_kind_have_the_same_bits_there(name: str, kind: str, tmp_path: Path) -> None:
    reason = missing(name)
    if reason:
        pytest.skip(reason)
    from .kinds import planned_for
    from .kinds import program as program_of

    made, _ = program_of(kind, planned_for(name))
    site = device(name, made, tmp_path)
    made.save(tmp_path / "net.edge")
    done = subprocess.run(
        [*command(name), "-c", CHECK, str(tmp_path / "net.edge")],
        capture_output=True,
        text=True,
        env=environment(name, site, tmp_path / "cache"),
        cwd=tmp_path,
    )
    assert done.stdout == f"{checked_run(made, STEPS)}\n", done.stderr[-2000:]


def test_the_library_of_kernels_loads_under_musl(program: et.Program, tmp_path: Path) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc not installed; on Debian: apt install musl-tools")
    found = kernels_of(program)
    (wheel,) = build_kernels(tmp_path, ["x86-64-v3"], found)
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (tmp_path / "main.c").write_text(MUSL)
    command = ["musl-gcc", "-o", tmp_path / "main", tmp_path / "main.c"]
    subprocess.run(list(map(str, command)), check=True)
    path = tmp_path / library.package("x86-64-v3") / library.LIBRARY
    symbols = [kernel.symbol(storages) for kernel, storages in found]
    done = subprocess.run(
        [str(tmp_path / "main"), str(path), *symbols], capture_output=True, text=True
    )
    assert done.stdout == "ran\n"
