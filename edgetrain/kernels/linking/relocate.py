"""Relocations of x86-64 and AArch64: how addresses are filled into code.

Source: System V ABI, AMD64 supplement 1.0, section 4.4; ELF for the Arm 64-bit Architecture
(AAELF64), section 5.7.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...errors import UnsupportedOpError


@dataclass(frozen=True)
class Machine:
    """Conventions of a processor.

    Attributes:
      number: e_machine.
      page: distance between segments in bytes, the largest page size of its systems.
      direct: kind -> function that fills in (code, at, place, target).
      through: kinds whose target is the slot with the address.
      calls: kinds that may go through a stub.
      absolute: kind of a whole address, filled in by the loader.
      relative, slot: kinds for the loader: base + addend; address of a symbol.
      stub: (place, slot) -> code that jumps to the address in the slot.
      behind: least and most bytes from the place of an address to the place it is relative to.
    """

    number: int
    page: int
    direct: Mapping[int, Callable[[bytearray, int, int, int], None]]
    through: frozenset[int]
    calls: frozenset[int]
    absolute: int
    relative: int
    slot: int
    stub: Callable[[int, int], bytes]
    behind: tuple[int, int]


STUB_NBYTES = 16


def _within(value: int, bits: int) -> int:
    """Check that a value fits a signed field, and return it.

    Raises:
      UnsupportedOpError: it needs more bits.
    """
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise UnsupportedOpError(
            f"kernel library: a distance of {value} bytes does not fit in {bits} bits. Link fewer "
            "kernels."
        )
    return value


def _relative32(code: bytearray, offset: int, place: int, target: int) -> None:
    struct.pack_into("<i", code, offset, _within(target - place, 32))


def _relative64(code: bytearray, offset: int, place: int, target: int) -> None:
    struct.pack_into("<q", code, offset, target - place)


def _stub_x86(place: int, slot: int) -> bytes:
    """jmp *slot(%rip)"""
    return (b"\xff\x25" + struct.pack("<i", slot - place - 6)).ljust(STUB_NBYTES, b"\xcc")


X86_64 = Machine(
    62, 4096, {2: _relative32, 4: _relative32, 9: _relative32, 24: _relative64, 41: _relative32,
               42: _relative32},
    frozenset((9, 41, 42)), frozenset((4,)), 1, 8, 6, _stub_x86, (4, 8),
)  # fmt: skip


def _field(code: bytearray, offset: int, value: int, bits: int, shift: int) -> None:
    """Replace a field of an instruction."""
    mask = (1 << bits) - 1
    (word,) = struct.unpack_from("<I", code, offset)
    struct.pack_into("<I", code, offset, (word & ~(mask << shift)) | ((value & mask) << shift))


def _adr(code: bytearray, offset: int, value: int) -> None:
    value = _within(value, 21)
    _field(code, offset, value, 2, 29)
    _field(code, offset, value >> 2, 19, 5)


def _pages(code: bytearray, offset: int, place: int, target: int) -> None:
    """adrp: number of 4 KiB pages between instruction and target."""
    _adr(code, offset, (target >> 12) - (place >> 12))


def _bytes_away(code: bytearray, offset: int, place: int, target: int) -> None:
    _adr(code, offset, target - place)


def _low12(scale: int) -> Callable[[bytearray, int, int, int], None]:
    """Offset in the page, in units of 2^scale bytes."""

    def fill(code: bytearray, offset: int, place: int, target: int) -> None:
        _field(code, offset, (target & 0xFFF) >> scale, 12, 10)

    return fill


def _branch(bits: int, shift: int) -> Callable[[bytearray, int, int, int], None]:
    """A jump, with its distance in instructions."""

    def fill(code: bytearray, offset: int, place: int, target: int) -> None:
        _field(code, offset, _within(target - place, bits + 2) >> 2, bits, shift)

    return fill


def _stub_aarch64(place: int, slot: int) -> bytes:
    """adrp x16; ldr x17, [x16, low]; br x17"""
    code = bytearray(struct.pack("<4I", 0x90000010, 0xF9400211, 0xD61F0220, 0xD503201F))
    _pages(code, 0, place, slot)
    _low12(3)(code, 4, place + 4, slot)
    return bytes(code)


AARCH64 = Machine(
    183, 65536,
    {260: _relative64, 261: _relative32, 274: _bytes_away, 275: _pages, 276: _pages,
     277: _low12(0), 278: _low12(0), 279: _branch(14, 5), 280: _branch(19, 5), 282: _branch(26, 0),
     283: _branch(26, 0), 284: _low12(1), 285: _low12(2), 286: _low12(3), 299: _low12(4),
     311: _pages, 312: _low12(3)},
    frozenset((311, 312)), frozenset((282, 283)), 257, 1027, 1025, _stub_aarch64, (0, 0),
)  # fmt: skip

MACHINES = {machine.number: machine for machine in (X86_64, AARCH64)}
