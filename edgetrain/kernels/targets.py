"""The processors that kernels are emitted for, by name, and how they differ.

A Program is planned for a target's lanes. They choose among a kernel's variants and size its
scratch, so they fix its bits. Everything else here is about machine code: any Program's kernels can
be emitted for any target, and give the same bits there.

Triples have four parts. From a triple with three parts, LLVM would take the last (`eabihf`) for the
operating system and pass floats as if there were no floating-point unit.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError

if TYPE_CHECKING:
    from .cache import jit


FUSED, SEPARATE = "fused", "separate"
# Values of `--arithmetic`, with their meanings.
ARITHMETICS = {
    FUSED: "once",
    SEPARATE: "the product first; faster on processors without fused multiply-add",
}
IN_INTEGER = "integer"
PAIRS = "pairs"  # of float32, in place of float64


class Target(NamedTuple):
    """A processor, and the conventions of its code.

    Attributes:
      name: as in `--target`.
      triple, cpu, features: as LLVM names them.
      lanes: 32-bit lanes of a vector register; 1 takes the plain kernels.
      pointer_bits: 32 or 64.
      fp64: whether the unit computes in float64. If not, Programs planned for this target use pairs
        of float32, and Programs planned for other targets emulate float64 in integers here.
      abi: how floats are passed to functions, in words for a manifest.
      fma: whether it has fused multiply-add. Programs planned for a target without it round
        products before adding (`separate` arithmetic) unless asked otherwise.
      relocation: `pic`, or `static` if code runs in place.
      compiler: command of its C compiler on Debian; "": the machine's own.
      options: that compiler's options.
      halves: how LLVM's conversions pass a half: in a float register, or as an integer.
      module: whether its bundles are WebAssembly modules, for pages and the like.
      hosted: whether there is an operating system, with threads and files.
    """

    triple: str
    cpu: str
    features: str
    lanes: int
    pointer_bits: int = 64
    name: str = ""
    fp64: bool = True
    fma: bool = True
    abi: str = "hard"
    relocation: str = "pic"
    compiler: str = ""
    options: tuple[str, ...] = ()
    hosted: bool = True
    halves: str = "float"
    module: bool = False

    @property
    def most_nbytes(self) -> int:
        """Largest size of one object in bytes: C subtracts addresses as signed numbers."""
        return 2 ** (self.pointer_bits - 1) - 1

    @property
    def arithmetic(self) -> str:
        """The default arithmetic of Programs for this target."""
        return FUSED if self.fma else SEPARATE

    @property
    def processor(self) -> "jit.Target":
        """The form of the target by which kernels are chosen (planner, registry); `jit.host()` for
        the host."""
        from .cache import jit

        if self.name == HOST:
            return jit.host()
        return jit.Target(self.triple, self.cpu, self.features, self.lanes, self.pointer_bits)


def _cortex(name: str, triple: str, options: str, fp64: bool) -> Target:
    return Target(
        f"{triple}-unknown-none-eabihf",
        name,
        "",
        1,
        32,
        name,
        fp64,
        relocation="static",
        compiler="arm-none-eabi-gcc",
        options=(f"-mcpu={name}", "-mthumb", *options.split()),
        hosted=False,
    )


_X86, _HARD = "x86_64-unknown-linux-gnu", "-mfloat-abi=hard"
_ARMV7 = "-mfpu=vfpv4 " + _HARD
TARGETS = {
    target.name: target
    for target in (
        Target(_X86, "x86-64-v3", "", 8, 64, "x86-64-v3", compiler="x86_64-linux-gnu-gcc"),
        Target(_X86, "x86-64-v4", "", 16, 64, "x86-64-v4", compiler="x86_64-linux-gnu-gcc"),
        # Android, macOS and Windows keep x18 for themselves.
        Target("aarch64-unknown-linux-gnu", "cortex-a53", "+reserve-x18", 4, 64, "aarch64",
               compiler="aarch64-linux-gnu-gcc"),
        # Its vectors (NEON) flush subnormals to zero, which changes bits. So VFP, one at a time.
        Target("armv7-unknown-linux-gnueabihf", "cortex-a7", "-neon", 1, 32, "armv7",
               compiler="arm-linux-gnueabihf-gcc", options=tuple(_ARMV7.split())),
        # Vectors (RVV) are not assumed.
        Target("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c", 1, 64, "riscv64",
               abi="lp64d", compiler="riscv64-linux-gnu-gcc"),
        _cortex("cortex-m7", "thumbv7em", "-mfpu=fpv5-d16 " + _HARD, True),
        _cortex("cortex-m4", "thumbv7em", "-mfpu=fpv4-sp-d16 " + _HARD, False),
        Target(
            "wasm32-unknown-unknown-wasm", "mvp",
            "+sign-ext,+nontrapping-fptoint,+bulk-memory,+mutable-globals,+simd128", 4, 32,
            "wasm32", fma=False, abi="wasm", relocation="static", hosted=False,
            halves=IN_INTEGER, module=True,
        ),
        _cortex("cortex-m33", "thumbv8m.main", "-mfpu=fpv5-sp-d16 " + _HARD, False),
    )
}  # fmt: skip
HOST = "host"
LANES = (1, 4, 8, 16)


@functools.cache
def host() -> Target:
    """The processor this process runs on, as `jit.host`."""
    from .cache import jit

    result = jit.host()
    return Target(
        result.triple,
        result.cpu,
        result.features,
        result.lanes,
        result.pointer_bits,
        HOST,
        compiler="gcc",
    )


def names() -> list[str]:
    """All names that `get` accepts."""
    return [HOST, *TARGETS]


def named(name: str) -> str:
    """The portable name of a target: for `host`, the listed target with the same machine and lanes.

    If no listed target matches this processor, the result is `host`.
    """
    result = get(name)
    if result.name != HOST:
        return result.name
    machine = result.triple.partition("-")[0]
    alike = (t.name for t in TARGETS.values() if t.triple.partition("-")[0] == machine)
    return next((name for name in alike if TARGETS[name].lanes == result.lanes), HOST)


def lanes_of(recipe: Mapping[str, Any]) -> int:
    """The lanes that a Program was planned for, or this processor's if the recipe records none."""
    return recipe.get("lanes") or host().lanes


def rewrites(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """How a Program's arithmetic differs from the kernels' source, on any processor.

    SEPARATE: products are rounded before they are added. PAIRS: float64 is replaced by pairs of
    float32, because the Program was planned for a processor without float64.
    """
    result = TARGETS.get(recipe.get("target") or HOST)
    pairs = (PAIRS,) if result is not None and not result.fp64 else ()
    # Programs from before the choice are fused.
    return ((SEPARATE,) if recipe.get("arithmetic", FUSED) == SEPARATE else ()) + pairs


def get(name: str) -> Target:
    """The target with this name.

    Raises:
      UsageError: no target has this name; the message lists the names.
    """
    if name == HOST:
        return host()
    if name not in TARGETS:
        raise UsageError(f"target {str(name)[:80]!r}: expected one of {', '.join(names())}.")
    return TARGETS[name]
