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
    """Put placeholders into `sys.modules` for those modules that are not loaded yet.

    Call it before anything imports pathlib.
    """
    for name in _SELDOM:
        if name in sys.modules:
            continue
        module = sys.modules[name] = _Later(name)
        package, _, attribute = name.rpartition(".")
        if package:  # `import urllib.parse` then reads urllib's attribute `parse`
            setattr(importlib.import_module(package), attribute, module)
