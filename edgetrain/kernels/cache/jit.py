"""Kernels as objects, compiled from Python or read from the cache (disk.py).

A second start neither compiles nor imports numba and llvmlite. Objects for other processors come
from the same LLVM text.
"""

import functools
import importlib.util
import json
import platform
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import NotInstalledError
from ...units.sha import sha256
from . import closures, library, processor
from .processor import Target

__all__ = ["AARCH64", "CORTEX_M7", "Target", "host", "objects_for"]

AARCH64 = Target("aarch64-unknown-linux-gnu", "cortex-a72", "", 4)
CORTEX_M7 = Target("thumbv7em-none-eabihf", "cortex-m7", "", 1, 32)


class NotKept(NotInstalledError):
    """An object is not in the cache, and nothing can be compiled here.

    Attributes:
      symbol: the kernel's.
    """

    def __init__(self, symbol: str) -> None:
        super().__init__(
            f"{symbol}: not in the cache, and it cannot be compiled without numba. Run: "
            f"{library.how_to_install()}, or pip install numba."
        )
        self.symbol = symbol


@functools.cache
def host() -> Target:
    """The processor this process runs on. Without llvmlite, or if nothing has to be compiled, it is
    described as far as the system tells."""
    lanes = processor.lanes()
    installed = library.installed()
    asked = available() and not (lanes and installed is not None and installed.same)
    before = None if available() else compiled_before()
    if asked:
        triple, cpu, features = _identity()
    elif before is not None:
        triple, cpu, features = before["host"]
    else:
        names = (*processor.levels(), "")
        return Target(f"{platform.machine()}-unknown-linux-gnu", names[0], "", lanes or 1)
    if lanes is None:
        lanes = 16 if "+avx512f" in features else 8 if "+avx2" in features else 4
    return Target(triple, cpu, features, lanes)


@functools.cache
def available() -> bool:
    """Whether kernels can be compiled here."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("numba", "llvmlite"))
    except ImportError:
        return False


_COMPILED_BY = "compiled-by.json"  # compiler and processor of the cache's newest objects


@functools.cache
def compiled_before() -> dict[str, Any] | None:
    """The compiler (`compiler`) and processor (`host`) of the last objects made on this machine.
    They locate those objects when nothing can be compiled; None if there are no such objects."""
    from . import disk

    kept = disk.read(_COMPILED_BY, _COMPILED_BY)
    result = json.loads(kept) if kept is not None else {}
    described = processor.description()
    return result if described and result.get("described") == described else None


@functools.cache
def note_compiler() -> None:
    """Write to the cache what `compiled_before` reads."""
    from . import disk

    target = host()
    machine = target.triple, target.cpu, target.features
    note = {"compiler": compiler(), "host": machine, "described": processor.description()}
    text = json.dumps(note).encode()
    if disk.read(_COMPILED_BY, _COMPILED_BY) != text:
        disk.write(_COMPILED_BY, _COMPILED_BY, text)


def _identity() -> tuple[str, str, str]:
    """Triple, processor and features as LLVM names them, asked for only once per machine."""
    import importlib.metadata

    from . import disk

    described = processor.description()
    about = repr((described, importlib.metadata.version("llvmlite")))
    name = f"host-{sha256(about.encode()).hexdigest()[:32]}.json"
    kept = disk.read(name, about) if described else None
    if kept is not None:
        triple, cpu, features = json.loads(kept)
        return triple, cpu, features
    from ..emission import engine

    result = engine.identity()
    if described:
        disk.write(name, about, json.dumps(result).encode())
    return result


@functools.cache
def compiler() -> str:
    """Versions of the compiler's packages; if nothing can be compiled, those that compiled last."""
    if not available():
        return (compiled_before() or {}).get("compiler", "")
    import importlib.metadata

    return " ".join(importlib.metadata.version(package) for package in ("numba", "llvmlite"))


def identity_of(symbol: str, kinds: str, target: Target, module: str, builtins: bool) -> str:
    """Everything that an object depends on; "" for a kernel whose module is not in this package."""
    if not closures.closure(module):
        return ""
    machine = target.triple, target.cpu, target.features, target.pointer_bits
    about = symbol, kinds, machine, builtins, closures.digest(module), compiler()
    return repr(about)


def kept_as(identity: str) -> str:
    """The cache's file name for an object of this identity."""
    return f"objects/{sha256(identity.encode()).hexdigest()[:40]}.o"


def _named_as(identity: str) -> str:
    """The cache's file name for the other identity that the object is stored under: its meaning."""
    return kept_as(identity).removesuffix(".o") + ".name"


def kept(identity: str) -> bytes | None:
    """The object of this identity in the cache, or None."""
    from . import disk

    name = disk.read(_named_as(identity), identity)
    key = identity if name is None else name.decode()
    return disk.read(kept_as(key), key)


def keep(identity: str, code: bytes, meaning: str = "") -> None:
    """Put an object into the cache. If `meaning` is given, the object is stored under it, so that
    it is found again after sources change in ways that don't affect the code."""
    from . import disk

    disk.write(kept_as(meaning or identity), meaning or identity, code)
    if meaning:
        disk.write(_named_as(identity), identity, meaning.encode())


def objects_for(
    symbol: str,
    build: Callable[[], Callable],
    kinds: str,
    targets: Sequence[Target],
    module: str,
    fields: Sequence[tuple[str, int]] = (),
) -> list[bytes]:
    """The objects of one kernel for some processors, from the cache if it has them.

    Args:
      symbol: name of the exported function.
      build: makes the Python function `(thread, nthreads, operands)`.
      kinds: a letter for each operand, `r` reference (byte offset from base, negative = absent and
        passed as 0), `t` per-thread scratch (two words: offset, stride), `i` integer, `f` float32
        bits.
      module: file of this package, such as `conv.plain`; kernels of other modules are not cached.
      fields: as in `Spec`, of the record `operands`; a family's helper (emission/soft_float.py) has
        no record and takes its operands one by one.
    Raises:
      NotKept: one is not in the cache, and nothing can be compiled here.
    """
    from . import disk

    made, out = _Made(symbol, build, kinds, fields), []
    for target in targets:
        builtins = target == host()
        identity = identity_of(symbol, kinds, target, module, builtins)
        code = kept(identity) if identity else None
        if code is None and not available():
            raise NotKept(symbol)
        if code is None:
            meaning = made.meaning(target, builtins) if identity else ""
            code = disk.read(kept_as(meaning), meaning) if meaning else None
            code = code or made.object(target, builtins)
            if identity:
                keep(identity, code, meaning)
        out.append(code)
    return out


class _Made:
    """A kernel being compiled; its function and text are made once."""

    def __init__(
        self, symbol: str, build: Callable, kinds: str, fields: Sequence[tuple[str, int]]
    ) -> None:
        self._symbol, self._build, self._kinds, self._fields = symbol, build, kinds, fields

    @functools.cached_property
    def _function(self) -> Callable:
        return self._build()

    @functools.cached_property
    def _text(self) -> str:
        from ..emission import lowering

        return lowering.llvm_text(self._symbol, self._function, self._kinds, self._fields)

    def meaning(self, target: Target, builtins: bool) -> str:
        """Everything the object depends on, with the function's meaning in place of its sources; ""
        if the meaning is unknown."""
        from ..emission.code import key_of

        key, machine = key_of(self._function), (target.triple, target.cpu, target.features)
        about = self._symbol, self._kinds, tuple(self._fields), machine, target.pointer_bits
        return repr((*about, builtins, key, compiler())) if key else ""

    def object(self, target: Target, builtins: bool) -> bytes:
        """Compile the kernel."""
        from ..emission.objects import HOST, TARGET, emit_object

        return emit_object(self._text, target, HOST if builtins else TARGET)
