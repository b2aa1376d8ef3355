"""Addresses of kernels in this process: from an installed library, else from cached objects."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import library

if TYPE_CHECKING:
    from ..registry import Kernel

_known: dict[str, int] = {}  # symbol -> address


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
        if installed is not None and symbol not in _known:
            result = installed.address(symbol, kernel.module)
            if result is not None:
                _known[symbol] = result
    missing = {symbol: wanted[symbol] for symbol in wanted if symbol not in _known}
    if missing:
        from . import load

        later = [pair for pair in soon if pair[0].symbol(pair[1]) not in _known]
        _known.update(load.compile_missing(missing, installed, later))
    return [_known[kernel.symbol(storages)] for kernel, storages in kernels]
