"""This process's processor, found without a compiler: its lanes, and the code that it can run."""

import functools
import itertools
import platform
from pathlib import Path
from typing import NamedTuple


class Target(NamedTuple):
    """A processor that kernels are emitted for. `lanes`: 32-bit lanes of a vector register."""

    triple: str
    cpu: str
    features: str
    lanes: int
    pointer_bits: int = 64


_CPUINFO = Path("/proc/cpuinfo")
# x86-64 psABI levels by the flags that Linux shows, highest first.
_LEVELS = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
)
_MACHINES = {
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "armv7l": "armv7",
    "armv8l": "armv7",
    "riscv64": "riscv64",
}
_X86 = ("x86_64", "AMD64", "amd64")


@functools.cache
def description() -> str:
    """The system's description of the first processor, without values that vary over time (MHz)."""
    try:
        with _CPUINFO.open(errors="replace") as file:
            lines = list(itertools.takewhile(str.strip, file))
    except OSError:
        return ""
    return "".join(line for line in lines if "mhz" not in line.lower())


@functools.cache
def flags() -> frozenset[str]:
    """Features of this processor, under Linux's names; empty if unknown."""
    for line in description().splitlines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(words.split())
    return frozenset()


def lanes() -> int | None:
    """32-bit lanes of this processor's vectors that kernels use; None if unknown."""
    machine = platform.machine()
    if machine in _X86:
        result = flags()
        return (16 if "avx512f" in result else 8 if "avx2" in result else 4) if result else None
    return 4 if _MACHINES.get(machine) == "aarch64" else 1


def levels() -> tuple[str, ...]:
    """Names of the targets (targets.py) whose code this processor runs, best first."""
    machine = platform.machine()
    if machine in _X86:
        return tuple(name for name, needed in _LEVELS if needed <= flags())
    return (_MACHINES[machine],) if machine in _MACHINES else ()
