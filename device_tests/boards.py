"""Links and runs bundles: natively, under user-mode emulation, or on an emulated board."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgetrain.kernels.targets import Target
from tests.bundle.node import checked as module_checked
from tests.bundle.node import missing as module_missing

from . import avx512

BOARD = Path(__file__).resolve().parents[1] / "examples" / "cortex_m7"
PACKAGES = (
    "gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf gcc-riscv64-linux-gnu gcc-arm-none-eabi "
    "qemu-user-static qemu-system-arm musl-tools"
)
TICK = 40  # instructions per tick of the counter, at one per nanosecond and 25 MHz


@dataclass(frozen=True)
class Machine:
    """A qemu board: its name, start of flash and RAM, and the address of a 25 MHz counter."""

    name: str
    flash: int
    ram: int
    counter: int


MACHINES = {
    "cortex-m7": Machine("mps2-an500", 0x00000000, 0x60000000, 0x40028018),
    "cortex-m4": Machine("mps2-an386", 0x00000000, 0x21000000, 0x40028018),
    "cortex-m33": Machine("mps2-an505", 0x10000000, 0x38000000, 0x50302018),
}
EMULATORS = {
    "aarch64": "qemu-aarch64-static",
    "armv7": "qemu-arm-static",
    "riscv64": "qemu-riscv64-static",
}


def compiler_of(target: Target) -> str:
    """The C compiler that links the target's bundles; gcc for x86-64 and the host."""
    return "gcc" if target.name == "host" or target.name.startswith("x86-64") else target.compiler


def missing(target: Target) -> str:
    """Why the target's bundles cannot run here; "" if they can."""
    if target.module:
        return module_missing()
    needed = [compiler_of(target), "make"]
    needed += ["qemu-system-arm"] if target.name in MACHINES else []
    needed += [EMULATORS[target.name]] if target.name in EMULATORS else []
    absent = [command for command in needed if shutil.which(command) is None]
    if absent:
        return f"{', '.join(absent)} not installed; on Debian: apt install {PACKAGES}"
    if target.name == "x86-64-v4" and not avx512.supported():
        return "this processor has no AVX-512"
    return ""


def board_files(
    folder: Path, target: Target, name: str, ram: str = "16M", stack: str = "64K"
) -> None:
    """Write what a Cortex-M bundle needs besides its own files: board.c, board.h, board.ld.

    Args:
      stack: its size; a recurrent net uses up to 15 KB.
    """
    machine = MACHINES[target.name]
    shutil.copy(BOARD / "board.c", folder)
    script = (BOARD / "board.ld").read_text()
    words = {"FLASH_AT": f"{machine.flash:#x}", "RAM_AT": f"{machine.ram:#x}", "RAM_SIZE": ram}
    for word, value in {**words, "STACK_SIZE": stack}.items():
        script = script.replace(word, value)
    (folder / "board.ld").write_text(script)
    (folder / "board.h").write_text(
        f'#include "{name}.h"\n#define COUNTER {machine.counter:#x}\n'
        f'#define NET_SAMPLES "{name}_samples"\n'
        f"extern const {name}_store *const board_store;\n"
        f"#ifndef STORE\nconst {name}_store *const board_store = NULL;\n#endif\n"
    )


def made(folder: Path, target: Target, defines: Sequence[str] = (), static: bool = False) -> None:
    """Run the bundle's Makefile; warnings are errors.

    Args:
      static: the executable needs no libraries when it runs.

    Raises:
      AssertionError: make failed; contains its output.
    """
    given = ["make", "-B", "-C", str(folder), f"CC={compiler_of(target)} -Werror"]
    given[-1] += " -static" * static
    if defines:
        given[-1] += " " + " ".join(f"-D{define}" for define in defines)
    done = subprocess.run(given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def ran(folder: Path, target: Target, name: str, *arguments: str, seconds: int = 600) -> str:
    """Run the executable with a time limit in seconds and return its output."""
    binary = str(folder / name)
    machine, emulator = MACHINES.get(target.name), EMULATORS.get(target.name)
    command = [*([emulator] if emulator else []), binary, *arguments]
    if machine is not None:
        command = [
            "qemu-system-arm", "-M", machine.name, "-nographic", "-monitor", "none", "-serial",
            "none", "-semihosting-config", "enable=on,target=native", "-icount", "shift=0",
            "-kernel", binary,
        ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=folder)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-500:])
    return done.stdout + done.stderr


def said(text: str, name: str) -> int:
    """The number after a word in a board's output."""
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return int(line.split()[1], 16 if name == "digest" else 10)


def checked(folder: Path, target: Target, name: str, steps: int, spike: float | None = None) -> int:
    """The digest printed by the bundle's executable after `steps` steps on made-up samples."""
    if target.module:
        return module_checked(folder, name, steps, spike)
    defined = [] if spike is None else [f"SPIKE={spike}f"]
    if target.name not in MACHINES:
        made(folder, target, defined)
        return int(ran(folder, target, name, "check", str(steps)).split()[0], 16)
    board_files(folder, target, name)
    made(folder, target, ["CHECK", f"STEPS={steps}", *defined])
    return said(ran(folder, target, name), "digest")


def sections(binary: Path) -> dict[str, int]:
    """Sizes of the sections of a board's executable in bytes."""
    command = ["arm-none-eabi-size", "-A", str(binary)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(nbytes) for name, nbytes in re.findall(r"^(\.\S+)\s+(\d+)", text, re.M)}
