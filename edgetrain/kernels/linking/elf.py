"""Reads relocatable objects: sections and undefined symbols.

ELF, little-endian, 32 or 64 bits. Source: Tool Interface Standard, ELF 1.2.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_SYMBOLS, _LOADED = 2, 2  # SHT_SYMTAB, SHF_ALLOC


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    start: int
    nbytes: int
    link: int


def _sections(code: bytes) -> tuple[list[_Section], int]:
    """All sections, and the number of the section with their names."""
    assert code[:4] == b"\x7fELF" and code[5] == 1
    wide = code[4] == 2
    (table,) = struct.unpack_from("<Q" if wide else "<I", code, 40 if wide else 32)
    size, count, names = struct.unpack_from("<HHH", code, 58 if wide else 46)
    layout = "<IIQ8xQQI" if wide else "<III4xIII"
    rows = [struct.unpack_from(layout, code, table + k * size) for k in range(count)]
    return [_Section(*row) for row in rows], names


def _text(code: bytes, offset: int) -> str:
    return code[offset : code.index(b"\0", offset)].decode()


def sections(code: bytes) -> dict[str, int]:
    """Name -> bytes, of the loaded sections."""
    result, names = _sections(code)
    out: dict[str, int] = {}
    for section in result:
        if section.flags & _LOADED and section.nbytes:
            name = _text(code, result[names].start + section.name)
            out[name] = out.get(name, 0) + section.nbytes
    return out


def filled(code: bytes, section: str, data: bytes) -> bytes:
    """The object with other content, of the same size, in the first section of this name."""
    result, names = _sections(code)
    section_ = next(s for s in result if _text(code, result[names].start + s.name) == section)
    assert section_.nbytes == len(data)
    return b"".join([code[: section_.start], data, code[section_.start + section_.nbytes :]])


def _symbols(code: bytes) -> Iterator[tuple[str, bool, bool]]:
    """(name, whether it is visible to others, whether it is defined here) of every symbol."""
    result, _ = _sections(code)
    symbol, step = ("<IBBH", 24) if code[4] == 2 else ("<I8xBBH", 16)
    for section in result:
        if section.kind == _SYMBOLS:
            for offset in range(section.start + step, section.start + section.nbytes, step):
                name, info, _, place = struct.unpack_from(symbol, code, offset)
                yield _text(code, result[section.link].start + name), info >> 4 != 0, place != 0


def undefined(code: bytes) -> set[str]:
    """Names of the symbols that another object would have to define."""
    return {name for name, _, is_here in _symbols(code) if not is_here}


def exported(code: bytes) -> set[str]:
    """Names of the symbols that other objects can see."""
    return {name for name, is_seen, is_here in _symbols(code) if is_seen and is_here}
