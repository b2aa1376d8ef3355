"""Keep the sections of loaded machine code within reach of each other.

LLVM asks the system for memory section by section, and code refers to its constants by 32-bit
offsets. If arrays or an arena of gigabytes separate earlier mappings from free address space, a
small section may be placed above them and a large one below: over 2 GiB apart, which ends the
process. So the holes above the largest free range are occupied while code is loaded.
"""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_REACH = 2**30  # bytes over which mappings may spread without harm
_NO_REPLACE = 0x100000  # MAP_FIXED_NOREPLACE: Linux 4.17; older ones take the address as a hint
_MAPS = Path("/proc/self/maps")


@contextmanager
def nearby() -> Iterator[None]:
    """Mappings made in this context are close together. Does nothing except on Linux."""
    held = [_hold(start, stop) for start, stop in _holes()]
    try:
        yield
    finally:
        for start, nbytes in held:
            if start:
                _libc().munmap(ctypes.c_void_p(start), ctypes.c_size_t(nbytes))


def _holes() -> list[tuple[int, int]]:
    """Free ranges [start, stop) between mappings, above the largest free range."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return []
    spans = [
        tuple(int(part, 16) for part in line.split(" ", 1)[0].split("-"))
        for line in lines
        if not line.endswith(("[stack]", "[vsyscall]"))
    ]
    gaps = [(item[1], other[0]) for item, other in zip(spans, spans[1:], strict=False)]
    if not gaps:
        return []
    largest = max(range(len(gaps)), key=lambda k: gaps[k][1] - gaps[k][0])
    if spans[-1][1] - gaps[largest][1] < _REACH:
        return []
    return [(start, stop) for start, stop in gaps[largest + 1 :] if stop > start]


def _hold(start: int, stop: int) -> tuple[int, int]:
    """(address, bytes) of the occupied range; (0, 0) if another thread took it first."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_REPLACE
    result = _libc().mmap(
        ctypes.c_void_p(start), ctypes.c_size_t(stop - start), 0, flags, -1, ctypes.c_long(0)
    )
    if result in (None, ctypes.c_void_p(-1).value):
        return 0, 0
    return result, stop - start


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    return libc
