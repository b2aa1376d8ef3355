"""Addresses of kernels in this process: from an installed library, else from cached objects."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import library

if TYPE_CHECKING:
    from ..registry import Kernel

LOADED: dict[str, int] = {}  # symbol -> address


def addresses(
    kernels: Sequence[tuple["Kernel", Mapping[str, str]]],
    soon: Sequence[tuple["Kernel", Mapping[str, str]]] = (),
) -> list[int]:
    """Addresses of (kernel, storages); for the C signature see emission/lowering.py.

    Args:
      soon: kernels needed next: compiled along with these, if processes have to be started.
    Raises:
      NotInstalledError: a kernel is in no installed library, and cannot be compiled here.
    """
    wanted = {kernel.symbol(storages): (kernel, storages) for kernel, storages in kernels}
    installed = library.installed()
    for symbol, (kernel, _) in wanted.items():
        if installed is not None and symbol not in LOADED:
            result = installed.address(symbol, kernel.module)
            if result is not None:
                LOADED[symbol] = result
    missing = {symbol: wanted[symbol] for symbol in wanted if symbol not in LOADED}
    if missing:
        from . import load

        load.compile_missing(missing, installed, soon)
    return [LOADED[kernel.symbol(storages)] for kernel, storages in kernels]
