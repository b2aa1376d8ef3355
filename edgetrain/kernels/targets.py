"""The processors that kernels are emitted for, by name, and what differs between them.

A Program is planned for the lanes of a target: they choose among a kernel's variants and size its
scratch, so they fix its bits. Everything else here is about machine code: any Program's kernels can
be emitted for any target, with the bits that its own kernels have.

Triples have four parts: of three, LLVM would take the last (`eabihf`) for the operating system,
and pass floats as if there were no unit for them.
"""

import functools
from dataclasses import dataclass

from ..errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """A processor, and the conventions of the code for it.

    Attributes:
      name: as in `--target`.
      triple, cpu, features: as LLVM knows them.
      lanes: 32-bit lanes of a vector register; 1 takes the plain kernels.
      pointer_bits: 32 or 64.
      fp64: whether the unit computes in float64; where not, that is done in integers.
      abi: how floats are passed to functions, in words for a manifest.
      relocation: `pic`, or `static` where code runs in place.
      compiler: what calls its C compiler on Debian, "" where that is the machine's own.
      options: what that compiler is given.
      hosted: whether there is an operating system, with threads and files.
    """

    name: str
    triple: str
    cpu: str
    features: str
    lanes: int
    pointer_bits: int = 64
    fp64: bool = True
    abi: str = "hard"
    relocation: str = "pic"
    compiler: str = ""
    options: tuple[str, ...] = ()
    hosted: bool = True


def _cortex(name: str, triple: str, options: str, fp64: bool) -> Target:
    return Target(
        name, f"{triple}-unknown-none-eabihf", name, "", 1, 32, fp64, relocation="static",
        compiler="arm-none-eabi-gcc", options=(f"-mcpu={name}", "-mthumb", *options.split()),
        hosted=False,
    )  # fmt: skip


_X86, _HARD = "x86_64-unknown-linux-gnu", "-mfloat-abi=hard"
_ARMV7 = "-mfpu=vfpv4 " + _HARD
TARGETS = {
    target.name: target
    for target in (
        Target("x86-64-v3", _X86, "x86-64-v3", "", 8, compiler="x86_64-linux-gnu-gcc"),
        Target("x86-64-v4", _X86, "x86-64-v4", "", 16, compiler="x86_64-linux-gnu-gcc"),
        Target("aarch64", "aarch64-unknown-linux-gnu", "cortex-a53", "", 4,
               compiler="aarch64-linux-gnu-gcc"),
        # Its vectors (NEON) flush subnormals to zero, which is other bits: VFP, one at a time.
        Target("armv7", "armv7-unknown-linux-gnueabihf", "cortex-a7", "-neon", 1, 32,
               compiler="arm-linux-gnueabihf-gcc", options=tuple(_ARMV7.split())),
        # Vectors (RVV) are not assumed.
        Target("riscv64", "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c", 1,
               abi="lp64d", compiler="riscv64-linux-gnu-gcc"),
        _cortex("cortex-m7", "thumbv7em", "-mfpu=fpv5-d16 " + _HARD, True),
        _cortex("cortex-m4", "thumbv7em", "-mfpu=fpv4-sp-d16 " + _HARD, False),
        _cortex("cortex-m33", "thumbv8m.main", "-mfpu=fpv5-sp-d16 " + _HARD, False),
    )
}  # fmt: skip
HOST = "host"


@functools.cache
def host() -> Target:
    """The processor this process runs on, as `jit.host`."""
    from . import jit

    found = jit.host()
    return Target(HOST, found.triple, found.cpu, found.features, found.lanes, found.pointer_bits)


def names() -> list[str]:
    """What `get` knows."""
    return [HOST, *TARGETS]


def get(name: str) -> Target:
    """The target of a name.

    Raises:
      UsageError: no target has it; lists those there are.
    """
    if name == HOST:
        return host()
    if name not in TARGETS:
        raise UsageError(f"target {str(name)[:80]!r}: expected one of {', '.join(names())}.")
    return TARGETS[name]
