"""A static library: a symbol table, then members with 60-byte headers.

Source: System V ar, as read by GNU binutils and LLVM.
"""

import struct
from collections.abc import Mapping, Sequence

_MAGIC = b"!<arch>\n"
_NAME = 15  # most bytes of a member's name; longer ones need a table, not written here


def archive(members: Mapping[str, tuple[bytes, Sequence[str]]]) -> bytes:
    """The bytes of a `.a` file; equal for equal members.

    Args:
      members: {file name of at most 15 bytes: (content, global symbols it defines)}.
    """
    symbols = [name for _, names in members.values() for name in names]
    text = b"".join(name.encode() + b"\0" for name in symbols)
    index_nbytes = 4 + 4 * len(symbols) + len(text)
    offset = len(_MAGIC) + 60 + index_nbytes + index_nbytes % 2
    offsets: list[int] = []
    parts: list[bytes] = []
    for name, (content, names) in members.items():
        if len(name.encode()) > _NAME:
            raise ValueError(f"member {name!r}: its name has more than {_NAME} bytes")
        part = _member(f"{name}/", content)
        offsets += [offset] * len(names)
        offset += len(part)
        parts.append(part)
    index = struct.pack(f">{1 + len(offsets)}I", len(offsets), *offsets) + text
    return b"".join([_MAGIC, _member("/", index), *parts])


def _member(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)
