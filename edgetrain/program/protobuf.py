"""Reads, changes and writes protocol buffer messages without a schema.

A message is a list of (number, wire type, payload). Unchanged fields keep their bytes and order, so
a file changes only where intended. Nested messages are parsed when accessed. Payloads aren't copied
until they are written.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
MAX_DEPTH = 100  # nested messages, the limit of protobuf's own readers
_WIDTH = {EIGHT: 8, FOUR: 4}
_MASK = 2**64 - 1

Payload: TypeAlias = "int | bytes | memoryview | Message"


class Message:
    """A message; fields keep their order in the file."""

    __slots__ = ("_depth", "_fields")

    def __init__(self, data: bytes | memoryview = b"", depth: int = 0) -> None:
        """Parse the fields of `data`; nested messages are parsed when accessed.

        Raises:
          ValueError: the bytes are not a message, or nested deeper than `MAX_DEPTH`.
        """
        if depth > MAX_DEPTH:
            raise ValueError(f"messages are nested more than {MAX_DEPTH} deep")
        self._depth = depth
        self._fields: list[tuple[int, int, Payload]] = list(_parsed(memoryview(data)))

    # Reading.

    def has(self, number: int) -> bool:
        """Whether the field is present."""
        return any(field[0] == number for field in self._fields)

    def numbers(self) -> set[int]:
        """Numbers of the fields present, without empty packed fields."""
        return {n for n, _, p in self._fields if isinstance(p, int | Message) or len(p)}

    def integer(self, number: int, default: int = 0) -> int:
        """The last value of an integer field."""
        result = self.integers(number)
        return result[-1] if result else default

    def integers(self, number: int) -> list[int]:
        """All values of a repeated 64-bit integer field, packed or not."""
        out: list[int] = []
        for field, _, payload in self._fields:
            if field != number:
                continue
            if isinstance(payload, int):
                out.append(payload)
            else:
                data, index = memoryview(_view(payload)), 0
                while index < len(data):
                    value, index = _varint(data, index)
                    out.append(value)
        return [value - 2**64 if value >= 2**63 else value for value in out]

    def text(self, number: int) -> str:
        """The last value of a string field; "" if missing."""
        result = self.texts(number)
        return result[-1] if result else ""

    def texts(self, number: int) -> list[str]:
        """All values of a repeated string field."""
        return [str(_view(p), "utf-8") for n, _, p in self._fields if n == number]

    def size(self, number: int) -> int:
        """Size of the last value in bytes; 0 if missing."""
        sizes = [len(_view(p)) for n, _, p in self._fields if n == number]
        return sizes[-1] if sizes else 0

    def data(self, number: int) -> bytes:
        """The last value as bytes."""
        return [b"", *(bytes(_view(p)) for n, _, p in self._fields if n == number)][-1]

    def messages(self, number: int) -> "list[Message]":
        """The messages of a field; changes to them change this message."""
        out = []
        for k, (field, wire, payload) in enumerate(self._fields):
            if field == number:
                if not isinstance(payload, Message):
                    payload = Message(_view(payload), self._depth + 1)
                    self._fields[k] = field, wire, payload
                out.append(payload)
        return out

    # Changing.

    def set(self, number: int, value: "int | bytes | Message") -> None:
        """Set a field to one value, at its position by number."""
        self.replace(number, [value])

    def clear(self, *numbers: int) -> None:
        """Remove fields."""
        self._fields = [field for field in self._fields if field[0] not in numbers]

    def replace(self, number: int, values: "Sequence[int | bytes | Message]") -> None:
        """Replace the values of a repeated field, at the position of its first."""
        self.clear(number)
        index = next((k for k, f in enumerate(self._fields) if f[0] > number), len(self._fields))
        rows = [(number, VARINT if isinstance(v, int) else BYTES, v) for v in values]
        self._fields[index:index] = rows

    def keep(self, number: int, wanted: "Callable[[Message], bool]") -> None:
        """Keep only the wanted messages of a field."""
        self.replace(number, [m for m in self.messages(number) if wanted(m)])

    # Writing.

    def chunks(self) -> list[bytes | memoryview]:
        """The message's bytes in pieces, in order, without copying large payloads."""
        out: list[bytes | memoryview] = []
        for number, wire, payload in self._fields:
            head = _encoded(number << 3 | wire)
            if isinstance(payload, int):
                out.append(head + _encoded(payload & _MASK))
            elif wire != BYTES:
                out += [head, _view(payload)]
            else:
                inner = payload.chunks() if isinstance(payload, Message) else [_view(payload)]
                out += [head + _encoded(sum(map(len, inner))), *inner]
        return out

    def nbytes(self) -> int:
        """The encoded size of the message in bytes."""
        return sum(map(len, self.chunks()))


def entry(key: str, value: str) -> Message:
    """A message of two strings, fields 1 and 2: a key and its value."""
    message = Message()
    message.replace(1, [key.encode()])
    message.replace(2, [value.encode()])
    return message


def _view(payload: Payload) -> bytes | memoryview:
    if isinstance(payload, int):
        raise ValueError("found a number; expected bytes")
    return b"".join(payload.chunks()) if isinstance(payload, Message) else payload


def _parsed(data: memoryview) -> Iterator[tuple[int, int, Payload]]:
    offset = 0
    while offset < len(data):
        tag, head = _varint(data, offset)
        number, wire = tag >> 3, tag & 7
        if number < 1:
            raise ValueError(f"no valid field at byte {offset}")
        if wire == VARINT:
            value, offset = _varint(data, head)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, head = _varint(data, head)
        elif wire in _WIDTH:
            length = _WIDTH[wire]
        else:
            raise ValueError(f"the field at byte {offset} has wire type {wire}")
        offset = head + length
        if offset > len(data):
            raise ValueError(f"the field at byte {head} ends at byte {offset} of {len(data)}")
        yield number, wire, data[head:offset]


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    """(value, end position)."""
    value = shift = 0
    while offset < len(data) and shift < 70:
        byte = data[offset]
        value |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 128:
            return value & _MASK, offset
    raise ValueError(f"a varint does not end at byte {offset}")


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
