"""Reads a file without its large tensors, to save memory.

Protobuf keeps a copy of what it parses, the checker makes another, writing a third. So data of
large tensors stays in the file until it is read as arrays: each such tensor becomes one with
external data, in the model's own file. The rest is small in any normal model.
"""

import os
from collections.abc import Iterator

import onnx
from onnx import AttributeProto, TensorProto

from ..errors import ModelError
from .branches import subgraphs
from .outline import INNER, Field, fields

HERE = "\0"  # the location of data in the model's own file; no file has this name
MAX_LEAN_NBYTES = 2**27
MAX_NUMBERS = 2**25  # stored one by one; each may take one byte in the file and 16 here
_LARGE = 2**14
_DEEP = 48  # levels of nested messages; protobuf itself stops at 100

_DATA_TYPE, _FLOATS, _NAME, _RAW, _EXTERNAL, _LOCATION = 2, 4, 8, 9, 13, 14  # fields of TensorProto
_REPEATED = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def read_lean(descriptor: int, label: str) -> bytes:
    """The file's bytes, with large tensors replaced by references to their place in the file.

    Args:
      descriptor: an open regular file, checked by check_outline.
    Raises:
      ModelError: the rest is larger than MAX_LEAN_NBYTES.
    """
    whole = Field(0, 0, 0, os.fstat(descriptor).st_size)
    try:
        return _lean(descriptor, whole, "model", label, 0)
    except ValueError as error:
        raise ModelError(f"{label}: not an ONNX file ({error}). Export the model again.") from error


def _lean(descriptor: int, part: Field, kind: str, label: str, depth: int) -> bytes:
    out: list[bytes] = []
    nbytes, copied = 0, part.start

    def keep(*pieces: bytes) -> None:
        nonlocal nbytes
        nbytes += sum(map(len, pieces))
        out.extend(pieces)

    def copy(stop: int) -> None:
        if nbytes + stop - copied > MAX_LEAN_NBYTES:
            raise ModelError(
                f"{label}: more than {MAX_LEAN_NBYTES} bytes without the tensors' raw data. "
                f"Export the model again."
            )
        keep(_read(descriptor, copied, stop))

    for field in fields(descriptor, part.start, part.stop):
        inner = INNER.get(kind, {}).get(field.number)
        if inner is None or field.stop - field.start < _LARGE or depth > _DEEP:
            continue
        copy(field.at)
        made = (
            _tensor(descriptor, field)
            if inner == "tensor"
            else _lean(descriptor, field, inner, label, depth + 1)
        )
        if made is None:
            copied = field.at
            continue
        keep(_varint(field.number << 3 | 2), _varint(len(made)), made)
        copied = field.stop
    copy(part.stop)
    return b"".join(out)


def _tensor(descriptor: int, tensor: Field) -> bytes | None:
    """The tensor with its one large data field replaced; None if it has none."""
    parts = list(fields(descriptor, tensor.start, tensor.stop))
    data = [part for part in parts if part.number in (_RAW, _FLOATS)]
    if len(data) != 1 or data[0].stop - data[0].start < _LARGE:
        return None
    if data[0].number == _FLOATS:
        kinds = [_read(descriptor, p.at, p.start) for p in parts if p.number == _DATA_TYPE]
        if kinds != [_varint(_DATA_TYPE << 3) + _varint(TensorProto.FLOAT)]:
            return None
    rest = tensor.stop - tensor.start - (data[0].stop - data[0].at)
    if rest > _LARGE:
        return None
    place = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, value in (
        ("location", HERE),
        ("offset", data[0].start),
        ("length", data[0].stop - data[0].start),
    ):
        place.external_data.add(key=key, value=str(value))
    return (
        _read(descriptor, tensor.start, data[0].at)
        + _read(descriptor, data[0].stop, tensor.stop)
        + place.SerializeToString()
    )


def _read(descriptor: int, start: int, stop: int) -> bytes:
    data = os.pread(descriptor, stop - start, start)
    if len(data) != stop - start:
        raise ValueError("the file is truncated")
    return data


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def tensors_of(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """All tensors of a graph: initializers and attributes, including those in branches."""
    yield from graph.initializer
    yield from tensors_in(graph.node)


def tensors_in(nodes) -> Iterator[TensorProto]:
    """Tensors in attributes of nodes, including those in branches."""
    for node in nodes:
        if not node.attribute:
            continue
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
        for graph in subgraphs(node):
            yield from tensors_of(graph)


def check_numbers(proto: onnx.ModelProto, label: str) -> None:
    """Refuse a model with millions of numbers stored one by one.

    Raises:
      ModelError: more than MAX_NUMBERS in all attributes and tensors.
    """
    count = 0
    for graph in (proto.graph, *proto.functions):
        whole = isinstance(graph, onnx.GraphProto)
        tensors = tensors_of(graph) if whole else tensors_in(graph.node)
        count += sum(len(getattr(t, name)) for t in tensors for name in _REPEATED)
        count += sum(
            len(a.ints) + len(a.floats) + len(a.strings) for n in graph.node for a in n.attribute
        )
    if count > MAX_NUMBERS:
        raise ModelError(
            f"{label}: {count} numbers are stored one by one; expected at most {MAX_NUMBERS}. "
            "Export the model with raw data."
        )
