"""Modules of the standard library that others load and a command does not use.

pathlib loads urllib.parse for one function, and that loads ipaddress: four tenths of a megabyte,
on a device a net's weights twenty times over. For other systems' paths and for patterns it loads
ntpath and fnmatch.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Module -> functions that others take from it when they are loaded.
_SELDOM = {"urllib.parse": ("quote_from_bytes",), "ntpath": (), "fnmatch": ()}


class _Later(ModuleType):
    """Stands for a module until something of it is asked for. (importlib's LazyLoader loads as
    soon as a second `import` names it.)"""

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
    """Have these loaded when something of them is asked for."""
    for name in _SELDOM:
        if name not in sys.modules:
            package, _, own = name.rpartition(".")
            module = sys.modules[name] = _Later(name)
            if package:
                setattr(importlib.import_module(package), own, module)
