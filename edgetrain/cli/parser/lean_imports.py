"""Imports pathlib without three modules that most commands never use.

They are urllib.parse (which imports ipaddress), ntpath and fnmatch. Together they take 0.4 MB,
twenty times the weights of a small network.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Module -> its functions that pathlib imports with `from MODULE import FUNCTION`.
_SELDOM = {"urllib.parse": ("quote_from_bytes",), "ntpath": (), "fnmatch": ()}


class _Later(ModuleType):
    """pathlib's placeholder for a module: loads the module when an attribute is first used."""

    def __getattr__(self, name: str) -> Any:
        if name in _SELDOM[self.__name__]:
            return self._function(name)
        if name.startswith("__"):  # requested by the import system, such as __spec__
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)

    def _function(self, name: str) -> Callable[..., Any]:
        """A function that loads the module when it is called."""
        module = self.__name__
        return lambda *args, **options: getattr(importlib.import_module(module), name)(
            *args, **options
        )


def import_pathlib() -> None:
    """Import pathlib; placeholders are in `sys.modules` only while that takes."""
    if "pathlib" in sys.modules:
        return
    placeholders = {name: _Later(name) for name in _SELDOM if name not in sys.modules}
    sys.modules |= placeholders
    try:
        importlib.import_module("pathlib")
    finally:
        for name in placeholders:
            del sys.modules[name]
