"""Tensors and text in one checked file, in the safetensors format, with numpy alone.

    u64 header length | JSON header, padded with spaces | tensors, each from a multiple of 64 bytes

safetensors allows no holes, so gaps are u8 tensors named `__pad_<k>`, which `read_container`
drops. The header always begins with the SHA-256 of the whole file (taken with zeros in its own
place) and the file's length: damage is found before anything is parsed or allocated.

Source: https://github.com/huggingface/safetensors (format section of the README).
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from edgetrain.errors import EdgetrainError, ProgramError

from .atomic import write_atomically

ALIGNMENT = 64  # bytes
MAX_HEADER_NBYTES = 8 * 2**20
_MAX_NDIM = 32
_MAX_ELEMENTS = 2**48
_CHUNK_NBYTES = 2**18
_PAD = "__pad_"
_RESERVED = ("sha256", "nbytes", "kind", "version")
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
_CODES = {np.dtype(text): code for code, text in _DTYPES.items()}

_START = b'{"__metadata__":{"sha256":"'
_DIGEST = slice(len(_START), len(_START) + 64)
_MIDDLE = b'","nbytes":"'
_NBYTES = slice(_DIGEST.stop + len(_MIDDLE), _DIGEST.stop + len(_MIDDLE) + 20)
_PREFIX_NBYTES = _NBYTES.stop


@dataclass(frozen=True)
class _Entry:
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int  # bytes from the start of the file
    stop: int


def write_container(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    meta: Mapping[str, str],
    *,
    kind: str,
    version: int,
    keep_previous: bool = False,
) -> None:
    """Write one file atomically; nothing as large as a tensor is allocated.

    Args:
      tensors: name -> array of any shape and layout; f64, f32, f16, i8..i64, u8..u64.
      meta: text; the keys sha256, nbytes, kind and version belong to the format.
      kind: what the file is for, such as "program"; checked when it is read.
      version: of that kind's contents.
      keep_previous: as in `write_atomically`.
    Raises:
      RunError: the file cannot be written; an older one is untouched.
    """
    arrays = {name: np.asarray(array) for name, array in tensors.items()}
    header, entries, nbytes = _plan(arrays, {"kind": kind, "version": str(version)}, meta)

    def write(file: BinaryIO) -> None:
        digest = hashlib.sha256()

        def put(data: Any) -> None:
            file.write(data)
            digest.update(data)

        put(len(header).to_bytes(8, "little"))
        put(header)
        for name, entry in entries.items():
            if name in arrays:
                _put_array(put, arrays[name], entry.dtype)
            else:
                put(bytes(entry.stop - entry.start))
        assert file.tell() == nbytes
        file.seek(8 + _DIGEST.start)
        file.write(digest.hexdigest().encode())

    write_atomically(path, write, keep_previous)


def read_container(
    path: str | os.PathLike[str],
    *,
    kind: str,
    versions: range,
    mmap: bool = False,
    into: Mapping[str, np.ndarray] | None = None,
    error: type[EdgetrainError] = ProgramError,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read and verify what `write_container` wrote.

    Args:
      kind: the kind the file must have.
      versions: those this build reads.
      mmap: read-only views of the mapped file instead of arrays of their own.
      into: C-contiguous arrays, by name, that take their tensors' bytes without a copy in
        between; nothing is written to them unless the file is sound and all of them fit.
      error: the class to raise.
    Returns:
      Tensors by name, in file order (those of `into` are the arrays handed in), and the text.
    Raises:
      error: no regular file, cut short, damaged, another kind, a version not in `versions`,
        a header that does not describe the data, or tensors unlike those of `into`.
    """
    with _verified(path, kind, versions, error) as (file, entries, meta):
        _check_into(entries, into or {})
        return _load(file, entries, mmap, into or {}), meta


def is_good_container(path: str | os.PathLike[str], *, kind: str, versions: range) -> bool:
    """Whether `path` passes every check of `read_container`; no tensor is loaded."""
    try:
        with _verified(path, kind, versions, ProgramError):
            return True
    except ProgramError:
        return False


@contextmanager
def _verified(
    path: str | os.PathLike[str], kind: str, versions: range, error: type[EdgetrainError]
) -> Iterator[tuple[BinaryIO, dict[str, _Entry], dict[str, str]]]:
    """The open file, what it holds and its text; nothing but `error` leaves the block."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise error(f"{os.fspath(path)}: not a regular file. Name a file that edgetrain wrote.")
        with open(path, "rb", buffering=0) as file:
            header = _checked_header(file, kind)
            parsed = _parse_header(header)
            meta = _parse_meta(parsed.pop("__metadata__"), kind, versions)
            entries = _parse_entries(parsed, 8 + len(header), os.fstat(file.fileno()).st_size)
            yield file, entries, meta
    except (OSError, ValueError) as reason:
        text = getattr(reason, "strerror", None) or reason
        raise error(
            f"{os.fspath(path)}: cannot be read: {text}. "
            f"Name a {kind} file that exists and is readable."
        ) from reason
    except _BadFile as reason:
        raise error(f"{os.fspath(path)}: {reason}") from None


class _BadFile(Exception):
    """Carries the message up to where the path and the error class are known."""


def _plan(
    arrays: Mapping[str, np.ndarray], head: Mapping[str, str], meta: Mapping[str, str]
) -> tuple[bytes, dict[str, _Entry], int]:
    """Header bytes with zeros for the digest, tensors and pads in file order, file size."""
    assert not set(meta) & set(_RESERVED), f"reserved keys in {sorted(meta)}"
    assert all(isinstance(value, str) for value in meta.values())
    entries: dict[str, _Entry] = {}
    end = 0
    for name, array in arrays.items():
        assert not name.startswith(_PAD) and name != "__metadata__", name
        dtype = array.dtype.newbyteorder("<")
        assert dtype in _CODES, f"{name}: dtype {array.dtype} has no place in the format"
        gap = -end % ALIGNMENT
        if gap:
            entries[f"{_PAD}{len(entries)}"] = _Entry(np.dtype("u1"), (gap,), end, end + gap)
        start = end + gap
        end = start + array.nbytes
        entries[name] = _Entry(dtype, array.shape, start, end)
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
    length = _PREFIX_NBYTES + len(rest)
    rest += b" " * (-(8 + length) % ALIGNMENT)
    nbytes = 8 + _PREFIX_NBYTES + len(rest) + end
    header = _START + b"0" * 64 + _MIDDLE + b"%020d" % nbytes + rest
    assert len(header) <= MAX_HEADER_NBYTES, "move long text from meta into a u8 tensor"
    return header, entries, nbytes


def _put_array(put: Any, array: np.ndarray, dtype: np.dtype) -> None:
    """Pass on the elements in C order, a chunk at a time."""
    chunks = np.nditer(
        array,
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_dtypes=[dtype],
        order="C",
        buffersize=_CHUNK_NBYTES // dtype.itemsize,
        casting="equiv",
    )
    for chunk in chunks:
        flat = np.ascontiguousarray(chunk)
        if flat.size:
            put(flat.view(np.uint8))


def _checked_header(file: BinaryIO, kind: str) -> bytes:
    """The header of a file whose length and checksum are right."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8 + _PREFIX_NBYTES) or b""
    prefix = start[8:]
    if (
        not prefix.startswith(_START)
        or len(prefix) < _PREFIX_NBYTES
        or prefix[_DIGEST.stop : _NBYTES.start] != _MIDDLE
        or not prefix[_NBYTES].isdigit()
    ):
        raise _BadFile(f"not an edgetrain {kind} file ({size} bytes). Check the name.")
    expected = int(prefix[_NBYTES])
    if size != expected:
        state = "cut short" if size < expected else "followed by foreign bytes"
        raise _BadFile(f"{state}: {size} bytes, expected {expected}. Take another copy of it.")
    length = int.from_bytes(start[:8], "little")
    if not _PREFIX_NBYTES <= length <= min(size - 8, MAX_HEADER_NBYTES):
        raise _BadFile(
            f"damaged: header of {length} bytes in a file of {size}, expected at most "
            f"{min(size - 8, MAX_HEADER_NBYTES)}. Take another copy of it."
        )
    file.seek(8)
    header = bytearray(length)
    _read_into(file, memoryview(header))
    found = bytes(header[_DIGEST])
    digest = hashlib.sha256(start[:8])
    header[_DIGEST] = b"0" * 64
    digest.update(header)
    while chunk := file.read(_CHUNK_NBYTES):
        digest.update(chunk)
    if digest.hexdigest().encode() != found:
        raise _BadFile(
            f"damaged: sha256 {digest.hexdigest()[:12]}..., "
            "not the one recorded in it. Take another copy of it."
        )
    return bytes(header)


def _parse_header(header: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(header, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as reason:
        raise _BadFile(f"damaged: header is not JSON ({reason}).") from None
    if not isinstance(parsed, dict):
        raise _BadFile("damaged: header is not a JSON object.")
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _parse_meta(meta: Any, kind: str, versions: range) -> dict[str, str]:
    if not isinstance(meta, dict) or not all(isinstance(text, str) for text in meta.values()):
        raise _BadFile("damaged: __metadata__ is not text by name.")
    if meta.get("kind") != kind:
        raise _BadFile(
            f"a file of kind {str(meta.get('kind'))[:40]!r}, expected {kind!r}. Check the name."
        )
    version = meta.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise _BadFile(f"damaged: version {version[:40]!r} is not a number.")
    if int(version) not in versions:
        known = f"{versions.start}-{versions[-1]}" if len(versions) > 1 else str(versions.start)
        move = "Upgrade edgetrain." if int(version) > versions[-1] else "Write it again."
        raise _BadFile(f"format version {version}; this build reads {known}. {move}")
    return {key: text for key, text in meta.items() if key not in _RESERVED}


def _parse_entries(parsed: Mapping[str, Any], base: int, size: int) -> dict[str, _Entry]:
    """Entries in file order; they cover the data part exactly, without overlap."""
    entries = {name: _parse_entry(name, fields, base) for name, fields in parsed.items()}
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)))
    end = base
    for name, entry in ordered.items():
        if entry.start != end:
            raise _BadFile(
                f"damaged: tensor {name[:80]!r} starts at byte {entry.start}, expected {end}."
            )
        end = entry.stop
    if end != size:
        raise _BadFile(f"damaged: tensors end at byte {end}, expected {size}.")
    return ordered


def _parse_entry(name: str, fields: Any, base: int) -> _Entry:
    label = f"damaged: tensor {name[:80]!r}"
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise _BadFile(f"{label} is not described by dtype, shape and data_offsets.")
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise _BadFile(
            f"{label} has dtype {str(code)[:20]!r}, expected one of {', '.join(_DTYPES)}."
        )
    if not _are_sizes(shape) or len(shape) > _MAX_NDIM:
        raise _BadFile(f"{label} has no shape of at most {_MAX_NDIM} sizes.")
    if math.prod(size or 1 for size in shape) > _MAX_ELEMENTS:
        raise _BadFile(f"{label} has more than {_MAX_ELEMENTS} elements.")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _BadFile(f"{label} has no two data_offsets.")
    dtype = np.dtype(_DTYPES[code])
    nbytes = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != nbytes:
        raise _BadFile(f"{label} spans {offsets[1] - offsets[0]} bytes, expected {nbytes}.")
    return _Entry(dtype, tuple(shape), base + offsets[0], base + offsets[1])


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 2**63 for value in values
    )


def _check_into(entries: Mapping[str, _Entry], into: Mapping[str, np.ndarray]) -> None:
    for name, array in into.items():
        assert array.flags.c_contiguous and array.flags.writeable, name
        entry = entries.get(name)
        if entry is None or (entry.dtype, entry.shape) != (array.dtype, array.shape):
            found = f"is {entry.dtype.name} {list(entry.shape)}" if entry else "is missing"
            raise _BadFile(
                f"tensor {name[:80]!r} {found}; expected {array.dtype.name} {list(array.shape)}. "
                "The file belongs to another model or recipe."
            )


def _load(
    file: BinaryIO, entries: Mapping[str, _Entry], mmap: bool, into: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    whole = np.memmap(file, np.uint8, "r").view(np.ndarray) if mmap else None
    tensors = {}
    for name, entry in entries.items():
        if name.startswith(_PAD):
            continue
        if whole is not None and name not in into:
            data = whole[entry.start : entry.stop]
            tensors[name] = data.view(entry.dtype).reshape(entry.shape)
            continue
        array = into[name] if name in into else np.empty(entry.shape, entry.dtype)
        file.seek(entry.start)
        _read_into(file, array.reshape(-1).view(np.uint8).data)
        tensors[name] = array
    return tensors


def _read_into(file: BinaryIO, view: memoryview) -> None:
    """Fill `view`; a read may return less than asked for (2 GiB at most on Linux)."""
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise _BadFile("cut short while it was read.")
        done += count
