"""Delays modules that pathlib imports but most commands never use.

They are urllib.parse (which imports ipaddress), ntpath and fnmatch. Together they take 0.4 MB,
twenty times the weights of a small network.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Module -> its functions that pathlib takes with `from MODULE import FUNCTION`.
_SELDOM = {"urllib.parse": ("quote_from_bytes",), "ntpath": (), "fnmatch": ()}


class _Later(ModuleType):
    """A placeholder in `sys.modules`, replaced by the module when an attribute is first used.

    importlib.util.LazyLoader doesn't do: it loads the module at the second `import`.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _SELDOM[self.__name__]:
            return self._function(name)
        if name.startswith("__"):  # the import system asks, for example for __spec__
            raise AttributeError(name)
        return getattr(self._loaded(), name)

    def _loaded(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)

    def _function(self, name: str) -> Callable[..., Any]:
        """A function that loads the module when it is called."""
        return lambda *args, **options: getattr(self._loaded(), name)(*args, **options)


def load_later() -> None:
    """Load these modules when one of their attributes is first used."""
    for name in _SELDOM:
        if name not in sys.modules:
            package, _, own = name.rpartition(".")
            module = sys.modules[name] = _Later(name)
            if package:
                setattr(importlib.import_module(package), own, module)


def leave() -> None:
    """Take the modules that were not used out of the caller's `sys.modules` again. Those that
    imported one load it when they use it.
    """
    for name in _SELDOM:
        module = sys.modules.get(name)
        if isinstance(module, _Later):
            del sys.modules[name]
            package, _, own = name.rpartition(".")
            if package and vars(sys.modules[package]).get(own) is module:
                delattr(sys.modules[package], own)
