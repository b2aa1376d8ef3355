"""Reads relocatable WebAssembly objects, as elf.py does ELF objects.

Source: WebAssembly Core Specification 2.0, binary format; tool-conventions, Linking.md.
"""

from collections.abc import Iterator

MAGIC = b"\0asm"
_IMPORTS, _MEMORIES, _ELEMENTS, _CODE, _DATA = 2, 5, 9, 10, 11
# ELF names of the sections that are loaded into memory, or are in the module's code.
_NAMES = {_ELEMENTS: ".elem", _CODE: ".text", _DATA: ".rodata"}
_FUNCTION, _TABLE, _MEMORY, _GLOBAL, _TAG = range(5)


def _number(code: bytes, offset: int) -> tuple[int, int]:
    """(an unsigned LEB128 number, the offset of its end)."""
    value = shift = 0
    while True:
        byte = code[offset]
        offset += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, offset


def _sections(code: bytes) -> Iterator[tuple[int, int, int]]:
    """(kind, first byte, end) of every section."""
    assert code[:4] == MAGIC
    offset = 8
    while offset < len(code):
        kind = code[offset]
        nbytes, start = _number(code, offset + 1)
        offset = start + nbytes
        yield kind, start, offset


def sections(code: bytes) -> dict[str, int]:
    """Sizes in bytes of the code, the data and the function table, by the names of ELF sections."""
    result = ((_NAMES[kind], end - start) for kind, start, end in _sections(code) if kind in _NAMES)
    return dict(result)


def undefined(code: bytes) -> set[str]:
    """Names of the functions that another object or the page would have to define."""
    return {name for _, name, kind in _imports(code) if kind == _FUNCTION}


def _imports(code: bytes) -> Iterator[tuple[str, str, int]]:
    """(module, name, kind) of every import."""
    for section, offset, _ in _sections(code):
        if section != _IMPORTS:
            continue
        count, offset = _number(code, offset)
        for _ in range(count):
            names = []
            for _ in range(2):
                nbytes, offset = _number(code, offset)
                names.append(code[offset : offset + nbytes].decode())
                offset += nbytes
            kind = code[offset]
            yield names[0], names[1], kind
            offset = _past_kind(code, offset + 1, kind)


def _past_kind(code: bytes, offset: int, kind: int) -> int:
    """Offset of the end of an import's description."""
    if kind == _FUNCTION:
        return _number(code, offset)[1]
    if kind == _GLOBAL:
        return offset + 2
    if kind == _TAG:
        return _number(code, offset + 1)[1]
    flags, offset = _number(code, offset + (kind == _TABLE))
    _, offset = _number(code, offset)
    return _number(code, offset)[1] if flags & 1 else offset


def filled(code: bytes, data: bytes) -> bytes:
    """The object with other content, of the same size, in its only data segment."""
    start = next(start for kind, start, _ in _sections(code) if kind == _DATA)
    count, offset = _number(code, start)
    assert count == 1 and code[offset] == 0 and code[offset + 1] == 0x41  # active, at an i32.const
    offset = _number(code, offset + 2)[1] + 1  # a signed number, of the same length; then `end`
    nbytes, offset = _number(code, offset)
    assert nbytes == len(data)
    return code[:offset] + data + code[offset + nbytes :]


def initial_pages(code: bytes) -> int:
    """Initial size of a linked module's memory, in pages of 64 KiB."""
    offset = next(start for kind, start, _ in _sections(code) if kind == _MEMORIES)
    count, offset = _number(code, offset)
    assert count == 1
    _, offset = _number(code, offset)
    return _number(code, offset)[0]
