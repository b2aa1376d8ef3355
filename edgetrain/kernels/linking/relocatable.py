"""The parts of a 64-bit little-endian relocatable object that a linker needs.

Source: Tool Interface Standard, ELF 1.2; System V ABI supplements of x86-64 and AArch64.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ...errors import UnsupportedOpError

_SYMTAB, _RELA, _NOBITS = 2, 4, 8  # sh_type
WRITE, ALLOC, EXECUTE, MERGE = 1, 2, 4, 16  # sh_flags
_SECTION, _SYMBOL, _RELOCATION = "<IIQQQQIIQQ", "<IBBHQQ", "<QQq"
_ABSOLUTE = 0xFFF1


@dataclass(frozen=True, slots=True)
class Section:
    """A loaded section: its bytes, alignment in bytes, and flags. `entry`: bytes of each constant,
    if it contains mergeable constants (MERGE)."""

    name: str
    flags: int
    align: int
    data: bytes
    entry: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for `nbytes` from `offset` of a section on; `section` 0: another object defines it."""

    name: str
    section: int
    offset: int
    nbytes: int
    visible: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """Bytes of a section, at `offset`, that contain an address; `kind` is the ABI's number."""

    offset: int
    kind: int
    symbol: Symbol
    addend: int


def machine_of(code: bytes) -> int:
    """e_machine of a 64-bit little-endian relocatable file; 0 for anything else."""
    if code[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", code, 16) != (1,):
        return 0
    return struct.unpack_from("<H", code, 18)[0]


class Relocatable:
    """Sections, symbols and relocations of an object file.

    Attributes:
      machine: e_machine, 62 for x86-64, 183 for AArch64.
      sections: loaded sections by number.
      relocations: section number -> its relocations.

    Raises:
      UnsupportedOpError: not a 64-bit little-endian relocatable object.
    """

    def __init__(self, code: bytes) -> None:
        self.machine = machine_of(code)
        if not self.machine:
            raise UnsupportedOpError(
                "kernel object: expected a relocatable 64-bit little-endian ELF file; only these "
                "can be linked here."
            )
        self._code = code
        (table,) = struct.unpack_from("<Q", code, 40)
        count, names = struct.unpack_from("<HH", code, 60)
        self._rows = [struct.unpack_from(_SECTION, code, table + 64 * k) for k in range(count)]
        self._names = self._bytes(names)
        self.sections = {
            k: Section(
                self._text(self._names, row[0]), row[2], max(row[8], 1), self._bytes(k), row[9]
            )
            for k, row in enumerate(self._rows)
            if row[2] & ALLOC and not self._text(self._names, row[0]).startswith(".eh_frame")
        }
        self.relocations = dict(self._filled())

    def _bytes(self, number: int) -> bytes:
        _, kind, _, _, start, nbytes = self._rows[number][:6]
        return bytes(nbytes) if kind == _NOBITS else self._code[start : start + nbytes]

    @staticmethod
    def _text(strings: bytes, offset: int) -> str:
        return strings[offset : strings.index(b"\0", offset)].decode()

    @cached_property
    def symbols(self) -> list[Symbol]:
        """All symbols, in the order in which relocations number them."""
        out: list[Symbol] = []
        for number, row in enumerate(self._rows):
            if row[1] == _SYMTAB:
                strings = self._bytes(row[6])
                for name, info, _, section, offset, size in struct.iter_unpack(
                    _SYMBOL, self._bytes(number)
                ):
                    place = 0 if section >= _ABSOLUTE else section
                    out.append(
                        Symbol(self._text(strings, name), place, offset, size, info >> 4 != 0)
                    )
        return out

    def _filled(self) -> Iterator[tuple[int, list[Relocation]]]:
        for number, row in enumerate(self._rows):
            if row[1] == _RELA and row[7] in self.sections:
                yield (
                    row[7],
                    [
                        Relocation(offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend)
                        for offset, info, addend in struct.iter_unpack(
                            _RELOCATION, self._bytes(number)
                        )
                    ],
                )
