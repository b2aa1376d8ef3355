"""examples/cortex_m7 and the docs on boards, as far as this can be tested without hardware."""

import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import edgetrain as et
from device_tests.boards import BOARD, board_files, checked, compiler_of, missing, ran, said
from edgetrain.kernels import targets
from edgetrain.runtime.samples.check import state_digest
from tests.digits_runs import MODEL

pytestmark = pytest.mark.slow
ROOT = BOARD.parents[1]
TARGET = targets.get("cortex-m7")


@pytest.fixture(autouse=True)
def _needs_a_board():
    if missing(TARGET):
        pytest.skip(missing(TARGET))


def _made(folder: Path, *words: str) -> str:
    command = ["make", "-C", str(BOARD / "activity"), f"BUILD={folder}", f"PYTHON={sys.executable}"]
    surroundings = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *words], capture_output=True, text=True, env=surroundings)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def activity(tmp_path_factory):
    """The example's folder, with its net trained on the host."""
    folder = tmp_path_factory.mktemp("activity")
    _made(folder, f"{folder}/activity-qemu.elf")
    return folder


def test_activities_of_a_new_person_are_learned_on_the_board(activity):
    text = _made(activity, "run")
    kept, before, after = (said(text, word) for word in ("kept", "before", "after"))
    assert before <= 0.7 * kept and after >= 0.95 * kept
    assert said(text, "ram") + said(text, "stack") <= 70_000


def test_the_example_links_for_a_real_board(activity):
    _made(activity, "BOARD=stm32h743")
    elf = (activity / "activity-stm32h743.elf").read_bytes()
    tool = ["arm-none-eabi-objcopy", "-O", "binary", "activity-stm32h743.elf", "flash.bin"]
    subprocess.run(tool, cwd=activity, check=True)
    image = (activity / "flash.bin").read_bytes()
    stack, reset = struct.unpack_from("<2I", image)
    assert stack == 0x20000000 + 16 * 1024
    assert 0x08000000 < reset < 0x08000000 + len(image) and reset % 2 == 1
    assert len(image) < 1792 * 1024 and elf[:4] == b"\x7fELF"


def test_the_page_on_boards_runs(tmp_path):
    section = (ROOT / "docs" / "board.md").read_text()
    commands = re.findall(r"^\$ edgetrain (.*)$", section, re.M)
    words = [line.split()[0] for line in commands]
    assert words == ["compile", "bundle", "bundle", "compile", "bundle"]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    surroundings = os.environ | {"PYTHONPATH": str(ROOT)}
    for line in commands:
        command = [sys.executable, "-m", "edgetrain", *shlex.split(line)]
        subprocess.run(command, cwd=tmp_path, env=surroundings, check=True)
    host = targets.host()
    for place, target, name in (
        ("board", TARGET, "digits"), ("linux", host, "digits"), ("head", TARGET, "head"),
    ):  # fmt: skip
        found = checked(tmp_path / place, target, name, 5)
        assert f"{found:08x}" in (tmp_path / place / "MANIFEST.json").read_text()
    samples = "digits.samples", "500", "state"  # as on the page
    assert "accuracy" in ran(tmp_path / "linux", host, "digits", *samples)


def test_two_nets_are_in_one_firmware_in_cpp(tmp_path):
    compiler = shutil.which("arm-none-eabi-g++")
    if compiler is None:
        pytest.skip("arm-none-eabi-g++ not installed; on Debian: apt install gcc-arm-none-eabi")
    programs = [
        et.compile(et.load_onnx(MODEL), threads=1, minibatch=m, target="cortex-m7") for m in (8, 16)
    ]
    for name, program in zip(("one", "two"), programs, strict=True):
        et.bundle(program, tmp_path, name=name, target="cortex-m7", size=True)
    board_files(tmp_path, TARGET, "one")
    (tmp_path / "both.cpp").write_text(
        '#include "one.h"\n#include "two.h"\n'
        'extern "C" void board_print(const char *text);\n'
        'extern "C" const one_store *const board_store = nullptr;\n'
        "static uint64_t a[ONE_MEMORY / 8 + 1], b[TWO_MEMORY / 8 + 1];\n"
        "static void print(uint32_t v) {\n  char t[10] = {};\n"
        '  for (int k = 8; k-- > 0; v >>= 4) t[k] = "0123456789abcdef"[v & 15];\n'
        "  t[8] = '\\n';\n  board_print(t);\n}\n"
        "int main() {\n  one *x = one_init(a, sizeof a);\n  two *y = two_init(b, sizeof b);\n"
        "  print(one_digest(x));\n  print(two_digest(y));\n  return 0;\n}\n"
    )
    flags = [*TARGET.options, "-Os", "-Wall", "-Wextra", "-Werror", "-ffreestanding"]
    flags += ["-fno-exceptions", "-fno-rtti"]
    subprocess.run([compiler, *flags, "-c", "both.cpp"], cwd=tmp_path, check=True)
    files = ["board.c", "both.o", "libone.a", "libtwo.a", "-lgcc", "-o", "both"]
    given = [compiler_of(TARGET), *flags[:-2], "-DSTORE", "-nostdlib", "-T", "board.ld", *files]
    subprocess.run(given, cwd=tmp_path, check=True)
    digests = ran(tmp_path, TARGET, "both").split()[:2]
    assert digests == [f"{state_digest(program, 0):08x}" for program in programs]
