"""Memory of an interpreted kernel: every access is checked against the operand it is meant for.

A region is an operand, a thread's scratch or a buffer on the stack. Regions are 64 GiB apart, so
even a very wrong index still shows which region was meant. A byte is ready, not yet written, or
undefined: written with a value that depends on bytes that were not written (lanes.py).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .faults import Fault, source_line
from .lanes import Lanes, Partly, parts

SLOT = 36  # bits of an address within its region's part of the address space
MIDDLE = 1 << SLOT - 1  # offset of a region's first byte in its part
READY, UNWRITTEN, UNDEFINED = 0, 1, 2


@dataclass(eq=False)
class Region:
    """A range of bytes that a kernel may use.

    Attributes:
      bytes: uint8[n]; for an operand, a view of the caller's array.
      item: bytes of an element, for messages.
      states: uint8[n], READY, UNWRITTEN or UNDEFINED for each byte.
      origin: source line that first stored something undefined here.
      lines: source line that last wrote each byte; None if not recorded.
    """

    name: str
    bytes: np.ndarray
    item: int = 1
    writable: bool = True
    states: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))
    address: int = 0
    origin: str = ""
    lines: np.ndarray | None = None

    def place(self, offset: int) -> str:
        """A byte offset in the form used by messages: x[12], or x[12] + 2 bytes."""
        index, rest = divmod(offset, self.item)
        return f"{self.name}[{index}]" + (f" + {rest} bytes" if rest else "")


class Memory:
    """The regions of one call of a kernel.

    Attributes:
      functions: address -> Python function, for calls through a pointer.
    """

    def __init__(self) -> None:
        self.functions: dict[int, Any] = {}
        self._regions: dict[int, Region] = {}
        self._next = 1

    def add(self, region: Region, *, ready: bool = True) -> Region:
        """Give a region its address, a multiple of 64."""
        region.address = (self._next << SLOT) + MIDDLE
        region.states = np.full(region.bytes.size, READY if ready else UNWRITTEN, np.uint8)
        self._regions[self._next] = region
        self._next += 1
        return region

    def buffer(self, name: str, nbytes: int, item: int) -> Region:
        """A new region for the kernel's own use, with nothing written to it."""
        return self.add(Region(name, np.full(nbytes, 0xFF, np.uint8), item), ready=False)

    def release(self, region: Region) -> None:
        """Remove a region: its addresses are invalid from now on."""
        del self._regions[region.address >> SLOT]

    def _find(self, address: int, nbytes: int, align: int, verb: str) -> tuple[Region, int]:
        address = int(address)
        region = self._regions.get(address >> SLOT)
        if region is None:
            raise Fault(
                f"address {address:#x} {verb}; it is not in an operand, workspace or live local "
                "buffer (an absent operand has address 0)"
            )
        offset = address - region.address
        if offset < 0 or offset + nbytes > region.bytes.size:
            count = region.bytes.size // region.item
            wrong = offset if offset < 0 else max(offset, region.bytes.size)
            raise Fault(
                f"{region.place(wrong)} {verb} ({nbytes} bytes from {region.place(offset)}), "
                f"expected an index from 0 to {count - 1}"
            )
        if offset % align:
            raise Fault(
                f"{region.place(offset)} {verb} with alignment {align}, but the address is "
                f"{offset % align} bytes off"
            )
        return region, offset

    def load(self, address: int, dtype: np.dtype, align: int) -> Lanes:
        """Load one element."""
        n = dtype.itemsize
        region, offset = self._find(address, n, align, "read")
        value = region.bytes[offset : offset + n].view(dtype)[0]
        if region.states[offset : offset + n].any():
            return Partly(value, np.True_, _origin(region, offset))
        return value

    def load_vector(self, address: int, dtype: np.dtype, count: int, align: int) -> Lanes:
        """Load `count` consecutive elements."""
        n = dtype.itemsize * count
        region, offset = self._find(address, n, align, "read")
        values = region.bytes[offset : offset + n].view(dtype).copy()
        states = region.states[offset : offset + n]
        if not states.any():
            return values
        undefined = states.reshape(count, -1).any(axis=1)
        first = offset + int(np.argmax(undefined)) * dtype.itemsize
        return Partly(values, undefined, _origin(region, first))

    def load_first(
        self, address: int, dtype: np.dtype, mask: Lanes, align: int, rest: np.ndarray
    ) -> Lanes:
        """Like `load_vector`, for the first lanes, which the mask selects; `rest` in the others."""
        count = _leading(mask)
        if count == 0:
            return rest
        result, undefined, origin = parts(self.load_vector(address, dtype, count, align))
        out = np.array(rest)
        out[:count] = result
        if not origin:
            return out
        return Partly(out, np.pad(undefined, (0, out.size - count)), origin)

    def store(self, value: Lanes, address: int, align: int) -> None:
        """Store one element, or consecutive lanes."""
        plain, undefined, origin = parts(value)
        region, offset = self._find(address, plain.nbytes, align, "written")
        if not region.writable:
            raise Fault(f"{region.place(offset)} written; expected read-only access")
        region.bytes[offset : offset + plain.nbytes] = np.atleast_1d(plain).view(np.uint8)
        states = region.states[offset : offset + plain.nbytes]
        states[:] = READY
        if region.lines is not None:
            region.lines[offset : offset + plain.nbytes] = source_line()
        if origin:
            states.reshape(plain.size, -1)[np.atleast_1d(undefined)] = UNDEFINED
            region.origin = region.origin or origin

    def store_first(self, value: Lanes, address: int, align: int, mask: Lanes) -> None:
        """Like `store`, for the first lanes, which the mask selects."""
        count = _leading(mask)
        if count:
            self.store(value[:count], address, align)


def _leading(mask: Lanes) -> int:
    """Number of lanes that a mask of first lanes selects."""
    plain, undefined, _ = parts(mask)
    return int(plain.sum()) if not undefined.any() else bool(mask)


def _origin(region: Region, offset: int) -> str:
    return region.origin or f"{region.place(offset)}, read at {source_line()}"
