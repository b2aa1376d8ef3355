"""The planner's compiled loops, kept as kernels are (cache.py) instead of in numba's own cache.

numba would read pickles without a checksum, and would take a loop as current after a change of
another file whose loops it calls.
"""

import functools
import hashlib
import importlib.metadata
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from . import cache


class PlannerCache(NullCache):
    """What numba asks for the machine code of one function."""

    def __init__(self, function: Callable) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._folder = Path(function.__code__.co_filename).parent

    def load_overload(self, sig, target_context):
        """The kept result of these argument types; None where it has to be compiled."""
        target_context.refresh()
        data = cache.read(*self._entry(sig, target_context.codegen()))
        return data and CompileResult._rebuild(target_context, *pickle.loads(data))

    def save_overload(self, sig, data):
        """Keep a result; those that hold addresses of this process are not."""
        if not data.lifted and not data.library.has_dynamic_globals:
            cache.write(*self._entry(sig, data.codegen), dumps(data._reduce()))

    def _entry(self, sig, codegen) -> tuple[str, str]:
        parts = (self._name, str(sig), codegen.magic_tuple(), _digest(self._folder))
        identity = repr(parts)
        return f"planner/{hashlib.sha256(identity.encode()).hexdigest()[:40]}.pickle", identity


@functools.cache
def _digest(folder: Path) -> str:
    """Changes with every source of the folder, and with what compiles it."""
    digest = hashlib.sha256(sys.version.encode())
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(importlib.metadata.version(package).encode())
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
