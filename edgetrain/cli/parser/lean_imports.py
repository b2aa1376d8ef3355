"""Delays standard-library modules that others import but commands do not use.

pathlib imports urllib.parse for one function, and that imports ipaddress: 0.4 MB, twenty times the
weights of a small network. It also imports ntpath and fnmatch.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Module -> functions that others take from it when they are loaded.
_SELDOM = {"urllib.parse": ("quote_from_bytes",), "ntpath": (), "fnmatch": ()}


class _Later(ModuleType):
    """Stands in for a module until one of its attributes is used. (importlib's LazyLoader loads it
    at the second `import`.)"""

    def __getattr__(self, name: str) -> Any:
        if name in _SELDOM[self.__name__]:
            return self._function(name)
        if name.startswith("__"):  # asked by `import` itself
            raise AttributeError(name)
        return getattr(self._loaded(), name)

    def _loaded(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)

    def _function(self, name: str) -> Callable[..., Any]:
        return lambda *given, **named: getattr(self._loaded(), name)(*given, **named)


def load_later() -> None:
    """Load these modules when one of their attributes is first used."""
    for name in _SELDOM:
        if name not in sys.modules:
            package, _, own = name.rpartition(".")
            module = sys.modules[name] = _Later(name)
            if package:
                setattr(importlib.import_module(package), own, module)
