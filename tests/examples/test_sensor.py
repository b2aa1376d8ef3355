"""The sensor loop in Python and in C: the same readings, answers and bits."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.kernels import targets

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "raspberry_pi"
EMULATORS = {"host": "", "aarch64": "qemu-aarch64-static", "armv7": "qemu-arm-static"}
WINDOWS = "192"


def compiled(target: str, folder: Path) -> Path:
    """The Program as the README compiles it."""
    program = et.compile(
        et.load_onnx(FOLDER / "model.onnx"), optimizer=et.SGD(lr=0.05, momentum=0.9),
        minibatch=16, threads=1, target=target,
    )  # fmt: skip
    return program.save(folder / "net.edge")


def said_by_python(path: Path) -> str:
    command = [sys.executable, "-m", "examples.raspberry_pi.sensor", str(path), WINDOWS]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "target",
    [pytest.param(name, marks=pytest.mark.slow) for name in EMULATORS],
)
def test_the_loop_in_c_says_what_the_loop_in_python_says(target: str, tmp_path: Path) -> None:
    compiler = targets.get(target).compiler
    for command in filter(None, (compiler, EMULATORS[target])):
        if shutil.which(command) is None:
            pytest.skip(f"{command} not installed")
    path = compiled(target, tmp_path)
    bundle(et.load_program(path), tmp_path, name="net")
    given = [compiler, "-O2", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-static"]
    sources = [FOLDER / "sensor.c", tmp_path / "libnet.a"]
    subprocess.run([*given, f"-I{tmp_path}", "-o", tmp_path / "sensor", *sources], check=True)
    emulator = [EMULATORS[target]] if EMULATORS[target] else []
    run = [*emulator, tmp_path / "sensor", WINDOWS, tmp_path / "state.bin"]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert found == said_by_python(path)
    assert found.count("right") == 2 and found.split()[-2] == "digest"
