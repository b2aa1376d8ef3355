"""The processors that kernels are emitted for, by name, and what differs between them.

A Program is planned for the lanes of a target: they choose among a kernel's variants and size its
scratch, so they fix its bits. Everything else here is about machine code: any Program's kernels can
be emitted for any target, with the bits that its own kernels have.

Triples have four parts: of three, LLVM would take the last (`eabihf`) for the operating system,
and pass floats as if there were no unit for them.
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
    """A processor, and the conventions of the code for it.

    Attributes:
      name: as in `--target`.
      triple, cpu, features: as LLVM knows them.
      lanes: 32-bit lanes of a vector register; 1 takes the plain kernels.
      pointer_bits: 32 or 64.
      fp64: whether the unit computes in float64; Programs planned for one that does not compute
        with pairs of float32, those planned for others have float64 in integers there.
      abi: how floats are passed to functions, in words for a manifest.
      fma: whether it has fused multiply-add; Programs planned for one without round products before
        they add to them (`separate` arithmetic) unless asked otherwise.
      relocation: `pic`, or `static` if code runs in place.
      compiler: command of its C compiler on Debian; "": the machine's own.
      options: that compiler's options.
      halves: how LLVM's conversions pass a half: in a register for floats, or as an integer.
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
        """Bytes of one object at most: C tells addresses apart by a signed number."""
        return 2 ** (self.pointer_bits - 1) - 1

    @property
    def arithmetic(self) -> str:
        """The default arithmetic of Programs for this target."""
        return FUSED if self.fma else SEPARATE

    @property
    def processor(self) -> "jit.Target":
        """What the planner and the registry choose kernels by; the host's is `jit.host()`."""
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
        # Its vectors (NEON) flush subnormals to zero, which is other bits: VFP, one at a time.
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
    """What `get` knows."""
    return [HOST, *TARGETS]


def named(name: str) -> str:
    """The name that holds anywhere: of `host`, that of the target with its vectors.

    `host` where this processor is like no target of the list.
    """
    result = get(name)
    if result.name != HOST:
        return result.name
    machine = result.triple.partition("-")[0]
    alike = (t.name for t in TARGETS.values() if t.triple.partition("-")[0] == machine)
    return next((name for name in alike if TARGETS[name].lanes == result.lanes), HOST)


def lanes_of(recipe: Mapping[str, Any]) -> int:
    """The lanes that a Program was planned for; if not recorded, those of this processor."""
    return recipe.get("lanes") or host().lanes


def rewrites(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """How a Program's arithmetic departs from what kernels say, on whatever processor it runs.

    SEPARATE: products are rounded before they are added. PAIRS: of float32 stand where kernels have
    float64; it was planned for a processor whose unit has none.
    """
    result = TARGETS.get(recipe.get("target") or HOST)
    pairs = (PAIRS,) if result is not None and not result.fp64 else ()
    # Programs from before the choice are fused.
    return ((SEPARATE,) if recipe.get("arithmetic", FUSED) == SEPARATE else ()) + pairs


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
