"""Loads objects of kernels into this process, compiling those that the cache lacks.

Kernels that no library has are joined into one shared object per Program, cached beside the
objects. LLVM's own loader is used only on systems whose files are not ELF.
"""

import contextlib
import ctypes
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import NotInstalledError, RunError, UnsupportedOpError, warn
from ...units.phases import phase
from ...units.sha import sha256
from . import closures, jit, library, sources

if TYPE_CHECKING:
    from ..registry import Kernel

# LLVM turns loops that fill and copy into these calls; every C library has them.
IMPORTS = ("memset", "memcpy", "memmove")
_loaded: dict[str, int] = {}  # symbol -> address, of `load`
_handles: list[ctypes.CDLL] = []  # loaded files stay loaded, so addresses never dangle
_count = itertools.count(1)


def compile_missing(
    missing: Mapping[str, tuple], installed: library.Library | None, soon: Sequence[tuple]
) -> dict[str, int]:
    """Load kernels that no library has: from the cache, or compiled now.

    Args:
      missing: symbol -> (kernel, storages).
      soon: kernels needed next, as in `addresses`.
    Returns:
      Symbol -> address.
    Raises:
      NotInstalledError: one is not in the cache, and cannot be compiled here.
    """
    alone = sources.made() is not None  # a runtime without sources of kernels
    if alone or (not jit.available() and jit.compiled_before() is None):
        raise NotInstalledError(_not_there(next(iter(missing)), installed))
    if installed is not None:
        _say_once(installed, len(missing))
    try:
        return _kept_or_made(missing, soon)
    except jit.NotKept as error:
        raise NotInstalledError(_not_there(error.symbol, installed)) from error


def _kept_or_made(missing: Mapping[str, tuple], soon: Sequence[tuple]) -> dict[str, int]:
    """Symbol -> address, from one cached file with all these kernels, or from a new one.

    Raises:
      NotKept: one is not in the cache, and nothing can be compiled.
    """
    if jit.available():
        jit.note_compiler()
    target = jit.host()
    identities = [_identity(kernel, storages) for kernel, storages in missing.values()]
    makers = {
        symbol: partial(kernel.object, storages, target)
        for symbol, (kernel, storages) in missing.items()
    }
    if not all(identities):
        return load(makers)
    identity = sha256("\n".join(identities).encode()).hexdigest()
    name = f"libraries/{identity[:40]}.so"
    from . import disk

    path = disk.path_of(name, identity)
    if path is None:
        _make_at_once(list(missing.values()), soon)
        objects = []
        for number, (symbol, make) in enumerate(makers.items(), 1):
            with phase(f"kernel {number} of {len(makers)}: {symbol}"):
                objects.append(make())
        code = joined(objects)
        if code is not None:
            disk.write(name, identity, code)
            path = disk.path_of(name, identity)
        if path is None:
            return opened(objects, missing)
    return found(path, missing)


def _identity(kernel: "Kernel", storages: Mapping[str, str]) -> str:
    symbol, kinds = kernel.symbol(storages), kernel.spec.kinds
    return jit.identity_of(symbol, kinds, jit.host(), kernel.module, builtins=True)


def _make_at_once(missing: Sequence[tuple], soon: Sequence[tuple]) -> None:
    """Compile the kernels that the cache lacks into it, on all processors."""
    from .. import registry
    from . import workers

    tasks = []
    for kernel, storages in (*missing, *soon):
        variants = registry.variants(kernel.name)
        if kernel in variants and jit.kept(_identity(kernel, storages)) is None:
            number = variants.index(kernel)
            group = kernel.family
            task = {"kernel": kernel.name, "number": number, "storages": dict(storages)}
            tasks.append((closures.nbytes(kernel.module), task | {"group": group}))
    if len(tasks) < 2:
        return
    tasks.sort(key=lambda item: -item[0])  # the longest first, so that all end together
    with _Counted(len(tasks)) as counted:
        running = workers.started([task for _, task in tasks], made=counted)
        if running is not None:
            running.wait()


class _Counted:
    """Reports which kernel of how many is being compiled."""

    def __init__(self, total: int) -> None:
        self._total, self._phase = total, contextlib.ExitStack()

    def __enter__(self) -> "_Counted":
        self(0)
        return self

    def __call__(self, done: int) -> None:
        self._phase.close()
        if done < self._total:
            self._phase.enter_context(phase(f"compiling kernel {done + 1} of {self._total}"))

    def __exit__(self, *_: object) -> None:
        self._phase.close()


def load(objects: Mapping[str, Callable[[], bytes]]) -> dict[str, int]:
    """Load objects into this process, once each.

    Args:
      objects: exported symbol -> function that makes the host's object.
    Returns:
      Symbol -> address.
    """
    made = {symbol: make() for symbol, make in objects.items() if symbol not in _loaded}
    if made:
        _loaded.update(opened(list(made.values()), made))
    return {symbol: _loaded[symbol] for symbol in objects}


def opened(
    objects: Sequence[bytes], symbols: Iterable[str], imports: Sequence[str] = IMPORTS
) -> dict[str, int]:
    """Symbol -> address, after joining the host's objects into a file that is only in memory."""
    code = joined(objects, imports)
    return _in_memory(code, symbols) if code else _by_llvm(objects, symbols)


def joined(objects: Sequence[bytes], imports: Sequence[str] = IMPORTS) -> bytes | None:
    """The objects as one file; None if this isn't Linux, or the code can't be linked this way.

    Args:
      imports: functions of the process that the objects may call.
    """
    if sys.platform != "linux":
        return None
    from ..linking.shared_object import shared_object

    try:
        return shared_object(objects, imports)
    except UnsupportedOpError:
        return None


def _in_memory(code: bytes, symbols: Iterable[str]) -> dict[str, int]:
    file = os.memfd_create("edgetrain-kernels")
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(code)
        return found(f"/proc/self{_way(next(_count))}/fd/{file}", symbols)
    finally:
        os.close(file)


def _way(number: int) -> str:
    """A no-op detour in a path, different for each number. The system's loader identifies files by
    path, and paths have a maximum length."""
    return "".join("/." if bit == "1" else "//" for bit in f"{number:b}")


def _by_llvm(objects: Sequence[bytes], symbols: Iterable[str]) -> dict[str, int]:
    from ..emission import engine

    return engine.load(objects, symbols, jit.host())


def found(path: str | Path, symbols: Iterable[str]) -> dict[str, int]:
    """Symbol -> address in a shared object's file.

    Raises:
      RunError: the system does not load it.
    """
    try:
        handle = ctypes.CDLL(str(path))
    except OSError as error:
        from . import disk

        raise RunError(
            f"kernels: the system refuses to load {path} ({error}). Allow executable files in "
            f"{disk.directory() or 'memory (memfd)'}, set EDGETRAIN_CACHE to a folder that does, "
            "or open fewer sessions per process."
        ) from error
    _handles.append(handle)
    return {symbol: ctypes.cast(handle[symbol], ctypes.c_void_p).value or 0 for symbol in symbols}


def _not_there(symbol: str, installed: library.Library | None) -> str:
    from ..emission.rewritten import MARK

    what = f"kernel {symbol}: "
    if MARK in symbol:
        return (
            f"{what}its Program has another processor's arithmetic, whose kernels are in no "
            f"library, and nothing can be compiled here. Run: pip install {library.COMPILES}, or "
            "compile the model for another --target or --arithmetic."
        )
    if installed is not None:
        what += f"{installed.folder} has another version of it, or none, "
    else:
        what += "no library of kernels is installed for this processor, "
    return f"{what}and it cannot be compiled here. Run: {library.how_to_install()}"


@functools.cache
def _say_once(installed: library.Library, count: int) -> None:
    if not installed.same:
        warn(
            f"{installed.folder} was made from other sources: {count} kernels "
            f"are compiled here. Run: {library.how_to_install()}"
        )
