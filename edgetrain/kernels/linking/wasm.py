"""What a relocatable WebAssembly object says of itself, as elf.py does of ELF.

Source: WebAssembly Core Specification 2.0, binary format; tool-conventions, Linking.md.
"""

from collections.abc import Iterator

MAGIC = b"\0asm"
_IMPORTS, _MEMORIES, _ELEMENTS, _CODE, _DATA = 2, 5, 9, 10, 11
# As sections of ELF are called: what is loaded into memory, or is in the module's code.
_NAMES = {_ELEMENTS: ".elem", _CODE: ".text", _DATA: ".rodata"}
_FUNCTION, _TABLE, _MEMORY, _GLOBAL, _TAG = range(5)


def _number(code: bytes, at: int) -> tuple[int, int]:
    """(an unsigned LEB128 number, where it ends)."""
    value = shift = 0
    while True:
        byte = code[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, at


def _sections(code: bytes) -> Iterator[tuple[int, int, int]]:
    """(kind, first byte, end) of every section."""
    assert code[:4] == MAGIC
    at = 8
    while at < len(code):
        kind = code[at]
        nbytes, start = _number(code, at + 1)
        at = start + nbytes
        yield kind, start, at


def sections(code: bytes) -> dict[str, int]:
    """Sizes in bytes of the code, the data and the function table, by the names of ELF sections."""
    found = ((_NAMES[kind], end - start) for kind, start, end in _sections(code) if kind in _NAMES)
    return dict(found)


def undefined(code: bytes) -> set[str]:
    """Names of the functions that another object or the page would have to define."""
    return {name for _, name, kind in _imports(code) if kind == _FUNCTION}


def _imports(code: bytes) -> Iterator[tuple[str, str, int]]:
    """(module, name, kind) of what is imported."""
    for section, at, _ in _sections(code):
        if section != _IMPORTS:
            continue
        count, at = _number(code, at)
        for _ in range(count):
            names = []
            for _ in range(2):
                nbytes, at = _number(code, at)
                names.append(code[at : at + nbytes].decode())
                at += nbytes
            kind = code[at]
            yield names[0], names[1], kind
            at = _past_kind(code, at + 1, kind)


def _past_kind(code: bytes, at: int, kind: int) -> int:
    """Where the description of an import ends."""
    if kind == _FUNCTION:
        return _number(code, at)[1]
    if kind == _GLOBAL:
        return at + 2
    if kind == _TAG:
        return _number(code, at + 1)[1]
    flags, at = _number(code, at + (kind == _TABLE))
    _, at = _number(code, at)
    return _number(code, at)[1] if flags & 1 else at


def filled(code: bytes, data: bytes) -> bytes:
    """The object with other bytes in its only segment of data, as many as that has."""
    start = next(start for kind, start, _ in _sections(code) if kind == _DATA)
    count, at = _number(code, start)
    assert count == 1 and code[at] == 0 and code[at + 1] == 0x41  # active, at an i32.const
    at = _number(code, at + 2)[1] + 1  # a signed number, of the same length; then `end`
    nbytes, at = _number(code, at)
    assert nbytes == len(data)
    return code[:at] + data + code[at + nbytes :]


def initial_pages(code: bytes) -> int:
    """Pages of 64 KiB that a linked module's memory begins with."""
    at = next(start for kind, start, _ in _sections(code) if kind == _MEMORIES)
    count, at = _number(code, at)
    assert count == 1
    _, at = _number(code, at)
    return _number(code, at)[0]
