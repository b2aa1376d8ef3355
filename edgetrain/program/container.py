"""Tensors and text in one file with a checksum, in the safetensors format, using only numpy.

    u64 header length | JSON header, padded with spaces | tensors, each at a multiple of 64 bytes

safetensors allows no gaps, so gaps are u8 tensors named `__pad_<k>`, which `read_container` drops.
The header starts with the SHA-256 of the whole file (computed with zeros in its place) and the
file's length, so damage is found before anything is parsed or allocated.

Source: https://github.com/huggingface/safetensors (format section of the README).
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from edgetrain.errors import EdgetrainError, ProgramError
from edgetrain.units.files import NotRegular, open_regular, refusal
from edgetrain.units.sha import sha256

from .atomic import write_atomically
from .container_header import (
    DIGEST,
    LENGTH,
    MAX_HEADER_NBYTES,
    MIDDLE,
    PAD,
    PREFIX_NBYTES,
    PROGRAM_KIND,
    START,
    BadFile,
    Entry,
    in_file,
    parse_entries,
    parse_header,
    parse_meta,
    plan_header,
)
from .mapped_file import MappedFile, mark

_CHUNK_NBYTES = 2**18
# Kinds of files, as shown in messages.
_FILES = {PROGRAM_KIND: "an edgetrain Program (.edge)", "checkpoint": "a checkpoint (.ckpt)"}


def write_container(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    meta: Mapping[str, str],
    *,
    kind: str,
    version: int,
    keep_previous: bool = False,
    links: bool = True,
    verify: bool = False,
) -> None:
    """Write a file atomically, without allocating anything as large as a tensor.

    Args:
      tensors: {name: array of any shape and layout}; f64, f32, f16, i8..i64, u8..u64.
      meta: text; the keys sha256, nbytes, kind and version are reserved.
      kind: the kind of file, such as "program"; checked by readers.
      version: version of the contents.
      keep_previous, links, verify: as in `write_atomically`.
    Raises:
      RunError: the file can't be written; an older one is unchanged.
    """
    arrays = {name: in_file(np.asarray(array)) for name, array in tensors.items()}
    header, entries, nbytes = plan_header(arrays, {"kind": kind, "version": str(version)}, meta)

    def write(file: BinaryIO) -> None:
        digest = sha256(expected=nbytes)

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
        file.seek(8 + DIGEST.start)
        file.write(digest.hexdigest().encode())

    write_atomically(path, write, keep_previous, links=links, verify=verify)


def read_container(
    path: str | os.PathLike[str],
    *,
    kind: str,
    versions: range,
    mmap: bool = False,
    links: bool = True,
    into: Mapping[str, np.ndarray] | None = None,
    error: type[EdgetrainError] = ProgramError,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read and verify a file written by `write_container`.

    Args:
      kind: the expected kind.
      versions: versions this build can read.
      mmap: return read-only views of the mapped file instead of new arrays.
      links: follow a link at `path`; otherwise reject it.
      into: C-contiguous arrays by name, into which tensors are read directly; they are written only
        if the file is intact and all of them fit.
      error: the exception class to raise.
    Returns:
      Tensors by name, in file order (for names in `into`, those arrays), and the text.
    Raises:
      error: not a regular file, truncated, damaged, of another kind or version, a header that
        doesn't match the data, or tensors that don't fit `into`.
    """
    with _verified(path, kind, versions, error, links) as (file, entries, meta):
        places = {name: in_file(array) for name, array in (into or {}).items()}
        _check_into(entries, places)
        whole = _mapped(path, file, kind, versions) if mmap else None
        return _load(file, entries, whole, places) | dict(into or {}), meta


def is_good_container(
    path: str | os.PathLike[str], *, kind: str, versions: range, links: bool = True
) -> bool:
    """Whether `path` passes all checks of `read_container`, without loading tensors."""
    try:
        with _verified(path, kind, versions, ProgramError, links):
            return True
    except ProgramError:
        return False


@contextmanager
def _verified(
    path: str | os.PathLike[str],
    kind: str,
    versions: range,
    error: type[EdgetrainError],
    links: bool,
) -> Iterator[tuple[BinaryIO, dict[str, Entry], dict[str, str]]]:
    """The open file, its entries and its text; errors leave the block only as `error`."""
    try:
        with open_regular(path, links=links, buffering=0) as file:
            header = _checked_header(file, kind)
            parsed = parse_header(header)
            meta = parse_meta(parsed.pop("__metadata__"), kind, versions)
            entries = parse_entries(parsed, 8 + len(header), os.fstat(file.fileno()).st_size)
            yield file, entries, meta
    except NotRegular as reason:
        raise error(
            f"{os.fspath(path)}: {reason.strerror}. Pass a file written by edgetrain."
        ) from None
    except (OSError, ValueError) as reason:
        raise error(
            f"{os.fspath(path)}: cannot be read: {refusal(reason)}. "
            f"Pass {_FILES.get(kind, f'a {kind} file')} that exists and is readable."
        ) from reason
    except BadFile as reason:
        raise error(f"{os.fspath(path)}: {reason}") from None


def _put_array(put: Any, array: np.ndarray, dtype: np.dtype) -> None:
    """Write the elements in C order, a chunk at a time."""
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
    """The header of a file, after checking length and checksum."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8 + PREFIX_NBYTES) or b""
    prefix = start[8:]
    if (
        not prefix.startswith(START)
        or len(prefix) < PREFIX_NBYTES
        or prefix[DIGEST.stop : LENGTH.start] != MIDDLE
        or not prefix[LENGTH].isdigit()
    ):
        what = _FILES.get(kind, f"an edgetrain {kind} file")
        raise BadFile(f"not {what} ({size} bytes). Check the name.")
    expected = int(prefix[LENGTH])
    if size != expected:
        state = "truncated" if size < expected else "followed by other bytes"
        raise BadFile(f"{state}: {size} bytes; expected {expected}. Use another copy.")
    length = int.from_bytes(start[:8], "little")
    if not PREFIX_NBYTES <= length <= min(size - 8, MAX_HEADER_NBYTES):
        raise BadFile(
            f"damaged: header of {length} bytes in a file of {size}; expected at most "
            f"{min(size - 8, MAX_HEADER_NBYTES)}. Use another copy."
        )
    file.seek(8)
    header = bytearray(length)
    _read_into(file, memoryview(header))
    result = bytes(header[DIGEST])
    digest = sha256(start[:8], expected=size)
    header[DIGEST] = b"0" * 64
    digest.update(header)
    while chunk := file.read(_CHUNK_NBYTES):
        digest.update(chunk)
    if digest.hexdigest().encode() != result:
        raise BadFile(
            f"damaged: sha256 {digest.hexdigest()[:12]}... differs from the one in the file. Use "
            "another copy."
        )
    return bytes(header)


def _check_into(entries: Mapping[str, Entry], into: Mapping[str, np.ndarray]) -> None:
    for name, array in into.items():
        assert array.flags.c_contiguous and array.flags.writeable, name
        entry = entries.get(name)
        if entry is None or (entry.dtype, entry.shape) != (array.dtype, array.shape):
            result = f"is {entry.dtype.name} {list(entry.shape)}" if entry else "is missing"
            raise BadFile(
                f"tensor {name[:80]!r} {result}; expected {array.dtype.name} {list(array.shape)}. "
                "The file belongs to another model or recipe."
            )


def _mapped(path: str | os.PathLike[str], file: BinaryIO, kind: str, versions: range) -> np.ndarray:
    """The whole file, mapped read-only; `check_files` detects later changes."""
    result = np.memmap(file, np.uint8, "r")
    prove = partial(is_good_container, kind=kind, versions=versions)
    mark(result, MappedFile(path, file, prove))
    return result.view(np.ndarray)


def _load(
    file: BinaryIO,
    entries: Mapping[str, Entry],
    whole: np.ndarray | None,
    into: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    tensors = {}
    for name, entry in entries.items():
        if name.startswith(PAD):
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
    """Fill `view`; a single read may return less (at most 2 GiB on Linux)."""
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise BadFile("truncated while it was read.")
        done += count
