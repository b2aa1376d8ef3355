"""Installed libraries of kernels: package `edgetrain_kernels_TARGET`, all kernels for a processor.

A package contains `kernels.so`, `declarations.txt` and `index.json`, which has the digests of the
sources. A kernel is used only if its sources are the same as this build's, so a library of another
version is never called with operands that it doesn't expect. On machines that also plan,
`planner.so` has the planner's loops.
"""

import ctypes
import functools
import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import warn
from ...units.files import read_regular
from . import processor, sources

FORMAT = 1
LIBRARY, PLANNER, INDEX = "kernels.so", "planner.so", "index.json"
_CHOICE = "EDGETRAIN_KERNELS"
COMPILES = "edgetrain numba"  # packages that compile kernels if no library is installed


def package(target: str) -> str:
    """The Python package of a target's library, such as `edgetrain_kernels_x86_64_v3`."""
    return f"edgetrain_kernels_{target.replace('-', '_')}"


def how_to_install() -> str:
    """The command that installs kernels for this processor."""
    from ... import __version__

    names = [f"edgetrain-kernels-{target}=={__version__}" for target in processor.levels()]
    if not names:
        return f"pip install {COMPILES}"
    return f"pip install {names[0]}, a wheel that `make wheels` builds in edgetrain's sources"


@dataclass(eq=False)
class Library:
    """One library.

    Attributes:
      index: `package` and `digests` as in sources.py; `units` as in loops/functions.py.
    """

    folder: Path
    index: Mapping[str, Any]
    _handle: list[ctypes.CDLL] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether all sources of its kernels are the same as this build's."""
        return self.index["package"] == sources.package_digest()

    @property
    def declarations(self) -> Path:
        """The file with its kernels' declarations, as in registry.py."""
        return self.folder / sources.DECLARATIONS

    def address(self, symbol: str, module: str) -> int | None:
        """Address of a kernel of this build; None if the library lacks it or has another version.

        Args:
          module: file of this package that declares the kernel.
        """
        digest = self.index["digests"].get(module)
        if digest is None or not (self.same or digest == _digest(module)):
            return None
        if not self._handle:
            self._handle.append(ctypes.CDLL(str(self.folder / LIBRARY)))
        try:
            return ctypes.cast(self._handle[0][symbol], ctypes.c_void_p).value
        except AttributeError:
            return None

    def loops(self, unit: str, digest: str) -> Path | None:
        """The file with a unit of the planner's loops; None unless its sources have this digest."""
        is_there = self.index.get("units", {}).get(unit) == digest
        return self.folder / PLANNER if is_there else None


def _digest(module: str) -> str:
    from . import closures  # only needed beside other sources than the library's

    return closures.digest(module)


def _is_index(index: dict[str, Any]) -> bool:
    """Whether the index has digests by name, as linking/packing.py writes them."""
    tables = index.get("digests"), index.get("units", {})
    named = isinstance(index.get("package"), str)
    return named and all(
        isinstance(table, dict) and all(isinstance(digest, str) for digest in table.values())
        for table in tables
    )


@functools.cache
def installed() -> Library | None:
    """The best library for this processor; None if none is installed or readable.

    `EDGETRAIN_KERNELS` names another library's folder; `none` disables libraries.
    """
    chosen = os.environ.get(_CHOICE)
    if chosen:
        return None if chosen == "none" else _opened(Path(chosen))
    for target in processor.levels():
        result = importlib.util.find_spec(package(target))
        for place in (result and result.submodule_search_locations) or ():
            return _opened(Path(place))
    return None


def _opened(folder: Path) -> Library | None:
    try:
        index = json.loads(read_regular(folder / INDEX))
        result = index.get("format") if isinstance(index, dict) else None
        if result == FORMAT and _is_index(index):
            return Library(folder, index)
        fault = f"its format is {str(result)[:40]!r}; this build reads {FORMAT}"
        fault = fault if result != FORMAT else f"{INDEX} is damaged"
    except (OSError, ValueError, RecursionError) as error:
        fault = f"{INDEX} cannot be read ({type(error).__name__})"
    warn(
        f"kernels library {folder} is not used: {fault}. Install the one of "
        "this version of edgetrain."
    )
    return None
