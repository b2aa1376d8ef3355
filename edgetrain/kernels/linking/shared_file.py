"""The bytes of an ELF shared object: headers, symbols, hash table, and segments by access rights.

Source: Tool Interface Standard, ELF 1.2, chapters 1 and 2; System V ABI, "Dynamic Linking".
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .relocate import Machine

READ, _EXECUTE, _WRITE = 0, 4, 1  # as flags of sections (relocatable.py)
_RIGHTS = {READ: 4, _EXECUTE: 5, _WRITE: 6}  # p_flags
_HEADER, _PROGRAM, _SYMBOL, _SECTION = "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<IBBHQQ", "<IIQQQQIIQQ"
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_FUNCTION, _TEXT = 0x12, 6  # a global function; the number of .text among sections
_TABLES = 64 + 56 * 5  # header and program headers

Filler = Callable[[dict[int, int]], Iterator[tuple[int, int, int | str]]]


class Part(NamedTuple):
    """Bytes with the same access rights."""

    rights: int
    data: bytearray


class Export(NamedTuple):
    """A function of `nbytes` at `offset` in the part with these rights."""

    name: str
    rights: int
    offset: int
    nbytes: int


def _hash(name: str) -> int:
    value = 0
    for char in name.encode():
        value = (value << 4) + char
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def _hash_table(names: Sequence[str]) -> bytes:
    """nbucket, nchain, buckets, chains: symbols by name; `names` starts with symbol 1."""
    count = len(names) + 1
    buckets, chains = [0] * max(1, count // 2), [0] * count
    for number, name in enumerate(names, 1):
        bucket = _hash(name) % len(buckets)
        chains[number], buckets[bucket] = buckets[bucket], number
    return struct.pack(f"<{2 + len(buckets) + count}I", len(buckets), count, *buckets, *chains)


def _strings(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """The concatenated names, and the offset of each."""
    out, offsets = bytearray(b"\0"), []
    for name in names:
        offsets.append(len(out))
        out += name.encode() + b"\0"
    return bytes(out), offsets


class _File:
    """A file being written. Addresses are offsets plus one page for each change of rights."""

    def __init__(self, page: int) -> None:
        self.data, self._page = bytearray(_TABLES), page
        self.segments: list[list[int]] = [[READ, 0, 0]]  # rights, first offset, address - offset
        self.sections: list[tuple[str, int, int, int, int, int]] = []

    def add(
        self, data: bytes | bytearray, name: str, kind: int, link: int = 0, entry: int = 0
    ) -> int:
        """Add a section and return its address."""
        self.data += bytes(-len(self.data) % 64)
        offset = len(self.data)
        self.data += data
        self.sections.append((name, kind, offset, len(data), link, entry))
        return offset + self.segments[-1][2]

    def segment(self, rights: int) -> None:
        """Begin a segment with these access rights."""
        self.data += bytes(-len(self.data) % 64)
        self.segments.append([rights, len(self.data), self._page * len(self.segments)])

    def raised(self, offset: int) -> int:
        """The address of an offset."""
        return offset + next(by for _, first, by in reversed(self.segments) if first <= offset)

    def put(self, name: str, data: bytes | bytearray) -> None:
        """Replace a section's bytes."""
        offset = next(row[2] for row in self.sections if row[0] == name)
        self.data[offset : offset + len(data)] = data


def written(
    parts: Sequence[Part],
    exports: Sequence[Export],
    imports: Sequence[str],
    machine: Machine,
    count: int,
    fill: Filler,
) -> bytes:
    """The whole file.

    Args:
      parts: read-only data, code, writable data, in this order.
      exports: functions that others find by name.
      imports: symbols that the loader finds elsewhere.
      count: number of addresses that the loader fills in.
      fill: completes `parts`, given their start addresses, and yields what the loader fills in.
    """
    constants, code, data = parts
    names = [*imports, *(item.name for item in exports)]
    strings, offsets = _strings(names)
    file = _File(machine.page)
    tags = {4: file.add(_hash_table(names), ".hash", 5, 2, 4)}
    tags[6] = file.add(bytes(24 * (len(names) + 1)), ".dynsym", 11, 3, 24)
    tags |= {5: file.add(strings, ".dynstr", 3), 10: len(strings), 11: 24}
    tags |= {7: file.add(bytes(24 * count), ".rela.dyn", 4, 2, 24), 8: 24 * count, 9: 24}
    starts = {READ: file.add(constants.data, ".rodata", 1)}
    file.segment(_EXECUTE)
    starts[_EXECUTE] = file.add(code.data, ".text", 1)
    file.segment(_WRITE)
    if not count:
        tags = {tag: value for tag, value in tags.items() if not 7 <= tag <= 9}
    words = [word for tag in sorted(tags) for word in (tag, tags[tag])]
    dynamic = file.add(struct.pack(f"<{len(words) + 2}Q", *words, 0, 0), ".dynamic", 6, 3, 16)
    starts[_WRITE] = file.add(data.data, ".data", 1)
    loaded = list(fill(starts))
    assert len(loaded) == count, f"{len(loaded)} addresses for the loader, {count} were counted"
    file.put(".rela.dyn", _relocations(loaded, names))
    file.put(".dynsym", _symbols(exports, offsets, len(imports), starts))
    for part, name in zip(parts, (".rodata", ".text", ".data"), strict=True):
        file.put(name, part.data)
    return _finished(file, machine, dynamic, 16 * (len(tags) + 1))


def _relocations(loaded: Sequence[tuple[int, int, int | str]], names: Sequence[str]) -> bytes:
    number = {name: k for k, name in enumerate(names, 1)}
    out = bytearray()
    for address, kind, what in loaded:
        symbol, addend = (number[what], 0) if isinstance(what, str) else (0, what)
        out += struct.pack("<QQq", address, symbol << 32 | kind, addend)
    return bytes(out)


def _symbols(
    exports: Sequence[Export], offsets: Sequence[int], imported: int, starts: dict[int, int]
) -> bytes:
    out = bytearray(24)
    for name in offsets[:imported]:
        out += struct.pack(_SYMBOL, name, 0x10, 0, 0, 0, 0)
    for name, item in zip(offsets[imported:], exports, strict=True):
        address = starts[item.rights] + item.offset
        out += struct.pack(_SYMBOL, name, _FUNCTION, 0, _TEXT, address, item.nbytes)
    return bytes(out)


def _finished(file: _File, machine: Machine, dynamic: int, nbytes: int) -> bytes:
    """Add the headers, and the section table, which only tools read."""
    end, rows = len(file.data), []
    bounds = [first for _, first, _ in file.segments] + [end]
    for (rights, first, by), stop in zip(file.segments, bounds[1:], strict=True):
        size = stop - first
        rows.append((_LOAD, _RIGHTS[rights], first, first + by, size, machine.page))
    offset = dynamic - file.segments[-1][2]
    rows += [(_DYNAMIC, 6, offset, dynamic, nbytes, 8), (_STACK, 6, 0, 0, 0, 16)]
    names, offsets = _strings([row[0] for row in file.sections] + [".shstrtab"])
    file.data += names + bytes(-(end + len(names)) % 8)
    table = len(file.data)
    file.data += bytes(64)
    for (name, kind, first, size, link, entry), where in zip(
        file.sections, offsets[:-1], strict=True
    ):
        flags = {".text": 6, ".data": 3, ".dynamic": 3}.get(name, 2)
        info = 1 if name == ".dynsym" else 0
        row = where, kind, flags, file.raised(first), first, size, link, info, 64, entry
        file.data += struct.pack(_SECTION, *row)
    file.data += struct.pack(_SECTION, offsets[-1], 3, 0, 0, end, len(names), 0, 0, 1, 0)
    count = len(file.sections) + 2
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack(
        _HEADER, identity, 3, machine.number, 1, 0, 64, table, 0, 64, 56, len(rows), 64, count,
        count - 1,
    )  # fmt: skip
    for kind, rights, first, address, size, align in rows:
        header += struct.pack(_PROGRAM, kind, rights, first, address, address, size, size, align)
    file.data[: len(header)] = header
    return bytes(file.data)
