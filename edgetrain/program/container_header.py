"""The header of a container: laid out before writing, checked when reading."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..formats import FORMATS
from . import schema

ALIGNMENT = 64  # bytes
MAX_HEADER_NBYTES = 8 * 2**20
PAD = "__pad_"  # name prefix of tensors that only fill gaps
_MAX_NDIM = 32
_MAX_ELEMENTS = 2**48
PROGRAM_KIND = "edgetrain-program"
_RESERVED = ("sha256", "nbytes", "kind", "version")
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
} | {format.code: format.dtype for format in FORMATS.values() if format.code}  # fmt: skip
_SIZE = schema.integer(0, 2**63 - 1)
_ENTRY = schema.record(
    {
        "dtype": schema.one_of(*_DTYPES),
        "shape": schema.several(_SIZE, most=_MAX_NDIM),
        "data_offsets": schema.row(_SIZE, _SIZE),
    }
)
_META = schema.by_name(schema.text(MAX_HEADER_NBYTES))
_HEADER = schema.record({"__metadata__": _META}, others=_ENTRY)
_CODES = {np.dtype(text): code for code, text in _DTYPES.items()}

# Every header starts with START, 64 hexadecimal digits, MIDDLE and 20 decimal ones.
START = b'{"__metadata__":{"sha256":"'
DIGEST = slice(len(START), len(START) + 64)
MIDDLE = b'","nbytes":"'
LENGTH = slice(DIGEST.stop + len(MIDDLE), DIGEST.stop + len(MIDDLE) + 20)
PREFIX_NBYTES = LENGTH.stop


class Entry(NamedTuple):
    """A tensor in bytes [start, stop): of the data when planned, of the file when read."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


class BadFile(Exception):
    """Carries a message to the caller that knows the path and the error class."""


def in_file(array: np.ndarray) -> np.ndarray:
    """An array as stored in the file; elements without a type code are rows of bytes."""
    if array.dtype.kind != "V" or array.dtype in _CODES:
        return array
    return array.reshape(-1).view(np.uint8).reshape(*array.shape, array.dtype.itemsize)


def plan_header(
    arrays: Mapping[str, np.ndarray], head: Mapping[str, str], meta: Mapping[str, str]
) -> tuple[bytes, dict[str, Entry], int]:
    """Lay out tensors in the given order.

    Args:
      head: reserved text (kind, version).
      meta: the caller's text.
    Returns:
      The header with zeros as digest, tensors and padding in file order, size of the file.
    """
    assert not set(meta) & set(_RESERVED), f"reserved keys in {sorted(meta)}"
    assert all(isinstance(value, str) for value in meta.values())
    entries: dict[str, Entry] = {}
    end = 0
    for name, array in arrays.items():
        assert not name.startswith(PAD) and name != "__metadata__", name
        dtype = array.dtype.newbyteorder("<")
        assert dtype in _CODES, f"{name}: dtype {array.dtype} has no place in the format"
        gap = -end % ALIGNMENT
        if gap:
            entries[f"{PAD}{len(entries)}"] = Entry(np.dtype("u1"), (gap,), end, end + gap)
        start = end + gap
        end = start + array.nbytes
        entries[name] = Entry(dtype, array.shape, start, end)
    described = {
        name: {
            "dtype": _CODES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [entry.start, entry.stop],
        }
        for name, entry in entries.items()
    }
    rest = b'",' + json.dumps({**head, **meta}).encode()[1:]
    rest += b"," + json.dumps(described).encode()[1:] if described else b"}"
    length = PREFIX_NBYTES + len(rest)
    rest += b" " * (-(8 + length) % ALIGNMENT)
    nbytes = 8 + PREFIX_NBYTES + len(rest) + end
    header = START + b"0" * 64 + MIDDLE + b"%020d" % nbytes + rest
    assert len(header) <= MAX_HEADER_NBYTES, "move long text from meta into a u8 tensor"
    return header, entries, nbytes


def parse_header(header: bytes) -> dict[str, Any]:
    """Text and entries by name; raises BadFile for an invalid field."""
    try:
        parsed = schema.parse(header)
        _HEADER(parsed, "")
    except schema.Wrong as wrong:
        raise BadFile(f"damaged: header: {wrong}.") from None
    return parsed


def parse_meta(meta: Mapping[str, str], kind: str, versions: range) -> dict[str, str]:
    """The caller's text; raises BadFile for another kind or version."""
    if meta.get("kind") != kind:
        raise BadFile(
            f"a file of kind {str(meta.get('kind'))[:40]!r}; expected {kind!r}. Check the name."
        )
    version = meta.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise BadFile(f"damaged: version {version[:40]!r} is not a number.")
    if int(version) not in versions:
        known = f"{versions.start}-{versions[-1]}" if len(versions) > 1 else str(versions.start)
        again = "Compile the model again." if kind == PROGRAM_KIND else "Write it again."
        move = "Upgrade edgetrain." if int(version) > versions[-1] else again
        raise BadFile(f"format version {version}; this build reads {known}. {move}")
    return {key: text for key, text in meta.items() if key not in _RESERVED}


def parse_entries(parsed: Mapping[str, Any], base: int, size: int) -> dict[str, Entry]:
    """Entries in file order; they cover [base, size) exactly, without overlap.

    Raises:
      BadFile: they do not cover it, or an entry is inconsistent.
    """
    entries = {name: _parse_entry(name, fields, base) for name, fields in parsed.items()}
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)))
    end = base
    for name, entry in ordered.items():
        if entry.start != end:
            raise BadFile(
                f"damaged: tensor {name[:80]!r} starts at byte {entry.start}; expected {end}."
            )
        end = entry.stop
    if end != size:
        raise BadFile(f"damaged: tensors end at byte {end}; expected {size}.")
    return ordered


def _parse_entry(name: str, fields: Mapping[str, Any], base: int) -> Entry:
    label = f"damaged: tensor {name[:80]!r}"
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if math.prod(size or 1 for size in shape) > _MAX_ELEMENTS:
        raise BadFile(f"{label} has more than {_MAX_ELEMENTS} elements.")
    dtype = np.dtype(_DTYPES[code])
    nbytes = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != nbytes:
        raise BadFile(f"{label} has {offsets[1] - offsets[0]} bytes; expected {nbytes}.")
    return Entry(dtype, tuple(shape), base + offsets[0], base + offsets[1])
