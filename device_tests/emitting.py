"""Emits a Program for a processor, links it with a small main and runs it under emulation.

The same Program also runs in Python's runtime on the same samples, and the checksums of the states
are compared. The kernels for this machine and the emitted code are compiled from the same source in
different ways.
"""

import dataclasses
import shutil
import subprocess
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgetrain.kernels import control, registry
from edgetrain.kernels.emission import program as emit
from edgetrain.kernels.step_loop import layout
from edgetrain.kernels.targets import Target
from edgetrain.optim import Schedule
from edgetrain.program import TARGET, Program, Slot
from edgetrain.program.program import SAVED_ROLES
from edgetrain.runtime.session import Session
from tests.kernels.harness import entry

ASSETS = Path(__file__).parent / "emitted"
SAMPLES_OF = 2  # minibatches of data: the second epoch has another order
TAPES = ("rate", "micro", "update", "rewire", "eval")
DRIVE = ("drive_train", "drive_digest", "run_tape")
FLAGS = ("-O2", "-ffp-contract=off", "-ffreestanding", "-fno-math-errno", "-w")
_BOARDS = {  # -M, flash, RAM, counter
    "cortex-m7": ("mps2-an500", 0x00000000, 0x20000000, 0x40028018),
    "cortex-m4": ("mps2-an386", 0x00000000, 0x20000000, 0x40028018),
    "cortex-m33": ("mps2-an505", 0x10000000, 0x38000000, 0),
}
_EMULATORS = {
    "aarch64": "qemu-aarch64-static",
    "armv7": "qemu-arm-static",
    "riscv64": "qemu-riscv64-static",
}


def missing(target: Target) -> str:
    """List the tools that the target needs and this machine lacks; "" if none."""
    emulator = "qemu-system-arm" if target.name in _BOARDS else _EMULATORS.get(target.name, "")
    needed = [compiler_of(target), *([emulator] if emulator else [])]
    return ", ".join(name for name in needed if shutil.which(name) is None)


def compiler_of(target: Target) -> str:
    """The C compiler of a target; gcc if a native target has none of its own."""
    native = target.name == "host" or target.name.startswith("x86-64")
    return "gcc" if native and shutil.which(target.compiler) is None else target.compiler


@dataclass(frozen=True)
class Ran:
    """Output of the binary: numbers by name, in order; `flash`: bytes of its sections."""

    numbers: Mapping[str, list[int]]
    library: emit.Library

    @property
    def state(self) -> int:
        return self.numbers["state"][0]


class Case:
    """A Program, samples for it, and the state it starts from."""

    def __init__(self, program: Program, steps: int = 4, seed: int = 0) -> None:
        self.program, self.steps = program, steps
        self.samples = SAMPLES_OF * program.minibatch
        rng = np.random.default_rng(seed)
        slots = [*program.inputs["micro"], program.targets["micro"]]
        self.fields = [(slot, self._raw(slot, rng)) for slot in slots]
        self.parts = [s for s in program.persistent if s.role in (*SAVED_ROLES, "control")]
        self.zeroed = [s for s in program.persistent if s.role == "accumulator"]
        rate = np.array([len(program.kernels), 1, program.slot("ctl").offset], np.int64)
        self.rated = dataclasses.replace(
            program,
            kernels=(*program.kernels, ("rate_constant", "plain", ())),
            tapes={**program.tapes, "rate": rate},
        )

    def _raw(self, slot: Slot, rng) -> np.ndarray:
        shape = (self.samples, *slot.shape[1:])
        if slot.dtype in ("f32", "f16"):
            kind = np.float32 if slot.dtype == "f32" else np.float16
            if slot.name == TARGET and self.program.recipe["loss"]["kind"] != "mse":
                return rng.integers(0, 2, shape).astype(kind)
            return rng.standard_normal(shape).astype(kind)
        most = self.program.limits.get(slot.name, 4)
        kind = {"i32": np.int32, "i64": np.int64, "u8": np.uint8}[slot.dtype]
        return rng.integers(0, most, shape).astype(kind)

    def session(self) -> Session:
        """Load the Program in its initial state."""
        session = Session(self.program, 1)
        session.reals[control.LOSS_SCALE] = 8.0
        session.set_schedule(Schedule(), 2 * self.steps)
        return session

    def expected(self) -> int:
        """Return the checksum after the same steps in Python's runtime."""
        session = self.session()
        plan, fields = self._plan(session)
        for _ in range(self.steps):
            args = np.array([plan.ctypes.data, 1], np.int64)
            entry(registry.variants("drive_train")[0], ())(0, args.ctypes.data, 0, 1)
            assert plan[layout.STATUS] == layout.DONE, plan[layout.STATUS]
        crc = 0
        for slot in self.parts:
            crc = zlib.crc32(session.values[slot.name].tobytes(), crc)
        session.close()
        del fields
        return crc

    def _plan(self, session: Session) -> tuple[np.ndarray, np.ndarray]:
        """The session's plan block for samples in memory, and the array its fields point to."""
        plan = session._plan.copy()
        fields = np.zeros((len(self.fields), layout.FIELD_WORDS), np.int64)
        for row, (slot, raw) in zip(fields, self.fields, strict=True):
            row[layout.STAGED] = session.arena.view(slot).ctypes.data
            row[layout.STAGED_TYPE] = row[layout.RAW_TYPE] = layout.TYPES.index(slot.dtype)
            row[layout.SIZE] = raw[0].size
            row[layout.RAW], row[layout.RAW_STRIDE] = raw.ctypes.data, raw[0].nbytes
            row[layout.CHANNELS] = row[layout.INNER] = 1
        plan[layout.SOURCE], plan[layout.SAMPLES] = layout.FROM_MEMORY, self.samples
        plan[layout.FIELDS], plan[layout.TRAIN_FIELDS] = len(fields), fields.ctypes.data
        return plan, fields

    def emitted(self, target: Target, *, size: bool = False) -> emit.Library:
        """Emit the Program's code for a target."""
        return emit.library(
            self.rated, target, step_loop=DRIVE, text=_glue(self.rated), size=size,
            exports=("et_train", "et_digest", "et_find"),
        )  # fmt: skip

    def run(self, target: Target, folder: Path, *, size: bool = False) -> Ran:
        """Emit, link and run; return the output."""
        library = self.emitted(target, size=size)
        self.write(folder, library)
        binary = link(target, folder)
        done = subprocess.run(
            command(target, binary), capture_output=True, text=True, timeout=600, cwd=folder
        )
        numbers: dict[str, list[int]] = {}
        for line in (done.stdout + done.stderr).splitlines():
            name, value = line.split()
            numbers.setdefault(name, []).append(int(value, 16))
        assert "state" in numbers, (done.returncode, done.stdout[-500:], done.stderr[-500:])
        return Ran(numbers, library)

    def write(self, folder: Path, library: emit.Library) -> None:
        """Write all files that are compiled with main.c, and main.c itself."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernels.o").write_bytes(library.code)
        session = self.session()
        start = max(s.offset + s.nbytes for s in self.program.persistent)
        (folder / "start.bin").write_bytes(session.arena._bytes[:start].tobytes())
        session.close()
        at, rows = 0, []
        with open(folder / "samples.bin", "wb") as file:
            for slot, raw in self.fields:
                number = layout.TYPES.index(slot.dtype)
                rows.append((slot.offset, number, raw[0].size, at, raw[0].nbytes))
                padded = raw.tobytes() + bytes(-raw.nbytes % 64)
                at += file.write(padded)
        (folder / "program.h").write_text(self._header(library, start, rows))

    def _header(self, library: emit.Library, start: int, rows) -> str:
        program = self.program
        names = {
            "MINIBATCH_WORD": layout.MINIBATCH, "MICROBATCH_WORD": layout.MICROBATCH,
            "SAMPLES_WORD": layout.SAMPLES, "FIELDS_WORD": layout.FIELDS,
            "POLL_PARTS": layout.PARTS, "FIRST_TAPE": layout.RATE, "PLAN_WORDS": layout.WORDS,
        }  # fmt: skip
        same = (
            "CTL", "RUN_TAPE", "STRIDES", "TARGETS_PER_SAMPLE", "TRAIN_FIELDS", "ZERO", "ZEROS",
            "STATUS", "STAGED", "STAGED_TYPE", "SIZE", "RAW", "RAW_TYPE", "RAW_STRIDE",
            "CHANNELS", "INNER", "FIELD_WORDS",
        )  # fmt: skip
        names |= {name: getattr(layout, name) for name in same}
        names |= {
            "ARENA": program.arena_nbytes, "START_NBYTES": start, "STEPS": self.steps,
            "MINIBATCH": program.minibatch, "MICROBATCH": program.microbatch,
            "TARGETS": program.target_count, "SAMPLES": self.samples,
            "CTL_OFFSET": program.slot("ctl").offset, "FIELDS": len(rows),
            "PARTS": len(self.parts), "ZEROED": len(self.zeroed),
        }  # fmt: skip
        tables = {
            "FIELD_ROWS": rows,
            "PART_ROWS": [(s.offset, s.nbytes) for s in self.parts],
            "ZERO_ROWS": [(s.offset, s.nbytes) for s in self.zeroed] + [(0, 0)],
            "TAPE_NBYTES": [library.lengths.get(tape, 0) for tape in TAPES],
        }
        lines = [f"#define {name} {value}" for name, value in names.items()]
        for name, value in tables.items():
            text = repr(value).replace("(", "{").replace(")", "}")
            lines.append(f"#define {name} {text.replace('[', '{').replace(']', '}')}")
        return "\n".join(lines) + "\n"


def _glue(program: Program) -> str:
    """C functions around the step loop, and `et_find`, which finds the objects main.c points to."""
    found = [f"@tape.{tape}" if len(program.tapes.get(tape, ())) else "null" for tape in TAPES]
    found += ["@table", "@strides", "@et_run_tape__plain"]
    out = [f"{name} = external constant i8\n" for name in found[:-1] if name != "null"]
    for name in DRIVE:
        out.append(f"declare void @et_{name}__plain(i64, i64, i64, i64)\n")
    for name, kernel in (("et_train", "drive_train"), ("et_digest", "drive_digest")):
        out.append(
            f"define void @{name}(ptr %args) {{\n  %a = ptrtoint ptr %args to i64\n"
            f"  call void @et_{kernel}__plain(i64 0, i64 %a, i64 0, i64 1)\n  ret void\n}}\n"
        )
    cases = "\n".join(f"    i32 {k}, label %c{k}" for k in range(len(found)))
    blocks = "".join(f"c{k}:\n  ret ptr {name}\n" for k, name in enumerate(found))
    out.append(
        "define ptr @et_find(i32 %which) {\n"
        f"  switch i32 %which, label %none [\n{cases}\n  ]\nnone:\n  ret ptr null\n{blocks}}}\n"
    )
    return "".join(out)


def link(target: Target, folder: Path) -> Path:
    """Link the files in the folder; return the binary."""
    out = folder / "train"
    given = [compiler_of(target), *FLAGS, *target.options, "-I", str(folder), "-o", str(out)]
    sources = ["main.c"]
    if target.name in _BOARDS:
        _, flash, ram, counter = _BOARDS[target.name]
        script = folder / "board.ld"
        memory = (
            f"MEMORY {{ FLASH (rx) : ORIGIN = {flash:#x}, LENGTH = 2M\n"
            f"  RAM (rwx) : ORIGIN = {ram:#x}, LENGTH = 2M }}\n"
        )
        script.write_text(memory + (ASSETS / "board.ld").read_text())
        sources.append("board.c")
        given += [f"-DCOUNTER={counter:#x}", "-nostartfiles", "-nostdlib", "-T", str(script)]
    else:
        sources.append("linux.c")
        given += ["-static"]
    given += [str(ASSETS / name) for name in sources] + [str(folder / "kernels.o")]
    done = subprocess.run(given, capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


def command(target: Target, binary: Path) -> list[str]:
    """Command that runs a binary here."""
    if target.name in _BOARDS:
        return [
            "qemu-system-arm", "-M", _BOARDS[target.name][0], "-nographic", "-monitor", "none",
            "-serial", "none", "-icount", "shift=0",
            "-semihosting-config", "enable=on,target=native", "-kernel", str(binary),
        ]  # fmt: skip
    emulator = _EMULATORS.get(target.name)
    return [*([emulator] if emulator else []), str(binary)]
