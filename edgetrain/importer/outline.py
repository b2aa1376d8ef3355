"""Identifies a file from its first bytes and its outline, before reading all of it.

A ModelProto is a sequence of fields (tag, length, bytes). Walking over the fields, and those of the
graph, reads a few bytes per field: large files that are not models, and graphs with too many nodes,
are refused without large allocations.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import ModelError

MAX_FILE_NBYTES = 2**31 - 1
MAX_NODES = 200_000
MAX_FIELDS = 1_000_000  # in the model and in its graph, each

_GRAPH, _FUNCTIONS, _NODES = 7, 25, 1  # of ModelProto and of GraphProto
# Message -> field -> nested message, if it may contain weights.
INNER: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph"},
}
_LARGE = 2**20  # bytes; only larger parts are examined
_LAST_FIELD = 64  # ONNX uses 27; some room for the future
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_BLOCK = 2**16

# (offset, magic bytes, kind of file, advice). Empty advice is "Export the model with
# torch.onnx.export".
_SIGNATURES: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"PK\x03\x04", "a zip archive, as written by torch.save or numpy.savez", ""),
    (0, b"\x1f\x8b", "compressed by gzip", "Unpack it first"),
    (0, b"BZh", "compressed by bzip2", "Unpack it first"),
    (0, b"\xfd7zXZ", "compressed by xz", "Unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "compressed by zstd", "Unpack it first"),
    (0, b"version https://git-lfs", "a pointer of git-lfs, not the file", "Run git lfs pull"),
    (0, b"\x89HDF", "an HDF5 file, as written by Keras", "Convert it with tf2onnx"),
    (4, b"TFL3", "a TensorFlow Lite model", "Convert it with tf2onnx"),
    (0, b"\x93NUMPY", "a numpy array", ""),
    (
        8,
        b'{"__metadata__":{"sha256":"',
        "an edgetrain Program or checkpoint",
        "Pass the model it was made from; the name of a Program must end in .edge",
    ),
    (8, b'{"', "a safetensors file, which has weights but no graph", ""),
    (0, b"\x80\x02", "a Python pickle, as written by old versions of torch.save", ""),
    *((0, b"\x80" + protocol, "a Python pickle", "") for protocol in (b"\3", b"\4", b"\5")),
    (0, b"\x7fELF", "a compiled program", ""),
)


class Field(NamedTuple):
    """One field of a message: number, position and extent.

    A varint has no bytes: `start` and `stop` are its end.
    """

    number: int
    at: int
    start: int
    stop: int


def check_outline(descriptor: int, label: str) -> None:
    """Refuse a file that is not an ONNX model, or one with too many nodes.

    Args:
      descriptor: an open regular file.
    Raises:
      ModelError: says what the file is, if it can be recognised.
    """
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, 512, 0)
    if size == 0:
        raise ModelError(f"{label}: the file is empty. Export the model again.")
    _check_head(head, label)
    if size > MAX_FILE_NBYTES:
        raise ModelError(
            f"{label}: {size} bytes; expected an ONNX file of at most {MAX_FILE_NBYTES}. "
            "Export the weights as external data."
        )
    try:
        parts = list(fields(descriptor, 0, size))
        graphs = [f for f in parts if f.number == _GRAPH]
        if not graphs:
            raise ValueError("it contains no graph")
        functions = sum(f.number == _FUNCTIONS for f in parts)
        nodes = sum(_walk(descriptor, graph, "graph") for graph in graphs)
    except ValueError as error:
        raise ModelError(f"{label}: not an ONNX file ({error}). Export the model again.") from error
    if max(nodes, functions) > MAX_NODES:
        raise ModelError(
            f"{label}: {nodes} nodes and {functions} functions; expected at most {MAX_NODES} of "
            "each. Export loops as LSTM, GRU or RNN nodes."
        )


def _walk(descriptor: int, part: Field, kind: str) -> int:
    """Count the nodes of a graph, checking the outline of all large messages."""
    nodes, counted, inside = 0, kind == "graph", INNER.get(kind, {})
    for field in fields(descriptor, part.start, part.stop):
        nodes += counted and field.number == _NODES
        if field.stop - field.start > _LARGE and (inner := inside.get(field.number)):
            _walk(descriptor, field, inner)
    return nodes


def _check_head(head: bytes, label: str) -> None:
    for offset, magic, what, move in _SIGNATURES:
        if head[offset:].startswith(magic):
            advice = move or "Export the model with torch.onnx.export"
            raise ModelError(f"{label}: this is {what}; expected an ONNX file. {advice}.")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise ModelError(
            f"{label}: this is a web page or XML; expected an ONNX file. Download the raw file."
        )
    if text.startswith((b"{", b"[")) or (len(head) > 16 and _printable(head)):
        raise ModelError(
            f"{label}: this is a text file; expected an ONNX file (binary). Export the model with "
            "torch.onnx.export."
        )


def _printable(head: bytes) -> bool:
    return all(32 <= byte < 127 or byte in (9, 10, 13) for byte in head)


def fields(descriptor: int, start: int, stop: int) -> Iterator[Field]:
    """Fields of a protobuf message.

    Raises:
      ValueError: not a protobuf message.
    """
    block, base, offset = b"", start, start
    for _ in range(MAX_FIELDS):
        if offset >= stop:
            return
        if offset - base + 20 > len(block) and base + len(block) < stop:
            block, base = os.pread(descriptor, min(_BLOCK, stop - offset), offset), offset
        tag, used = _number(block, offset - base)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number <= _LAST_FIELD:
            raise ValueError(f"no valid field at byte {offset}")
        head = offset + used
        if wire == _BYTES:
            length, used = _number(block, head - base)
            head += used
        elif wire == _VARINT:
            head, length = head + _number(block, head - base)[1], 0
        elif wire in (_EIGHT, _FOUR):
            length = 8 if wire == _EIGHT else 4
        else:
            raise ValueError(f"no valid field at byte {offset}")
        if head + length > stop:
            raise ValueError(
                f"the field at byte {offset} ends at byte {head + length} of {stop}: the file is "
                "truncated or damaged"
            )
        yield Field(number, offset, head, head + length)
        offset = head + length
    raise ValueError(f"more than {MAX_FIELDS} fields")


def _number(block: bytes, offset: int) -> tuple[int, int]:
    """(value, bytes used) of the varint at `at`."""
    if offset < len(block) and block[offset] < 128:
        return block[offset], 1
    value = 0
    for k in range(10):
        if offset + k >= len(block):
            raise ValueError("the file is truncated")
        byte = block[offset + k]
        value |= (byte & 127) << (7 * k)
        if byte < 128:
            return value, k + 1
    raise ValueError("a varint of more than ten bytes")
