"""Unpacks compressed files once into a directory next to them."""

import glob
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.errors import DataError
from edgetrain.units.files import check_regular, create_file, read_regular
from edgetrain.units.sha import sha256

_STAMP = "unpacked-from.json"
_CHUNK_NBYTES = 2**20
_BOMB_NBYTES, _BOMB_RATIO = 2**30, 128  # refuse results above both this size and ratio
_LITTER_AGE = 24 * 3600  # seconds; older unfinished directories are removed


@dataclass(frozen=True)
class Member:
    """One file to unpack: how to open its stream, and its exact size in bytes."""

    open: Callable[[], AbstractContextManager[Any]]
    nbytes: int


def unpacked(
    path: str | os.PathLike[str], members: Mapping[str, Member], errors: tuple[type[Exception], ...]
) -> Path:
    """A directory with the unpacked `members`; reused if up to date.

    It is `<name>.unpacked` next to `path`, or in the user's cache directory if that is not
    writable. It is up to date if size and time of `path` match its stamp.

    Args:
      members: by file name.
      errors: exceptions of a damaged stream.
    Raises:
      DataError: a stream is damaged, has a wrong or implausible size, or there is not enough disk
        space.
    """
    source = Path(os.path.realpath(path))
    status = source.stat()
    stamp = {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "members": {name: member.nbytes for name, member in sorted(members.items())},
    }
    total = sum(member.nbytes for member in members.values())
    if total > max(_BOMB_NBYTES, _BOMB_RATIO * status.st_size):
        raise DataError(
            f"{os.fspath(path)}: {status.st_size} bytes unpack to {total}; expected at most "
            f"{_BOMB_RATIO} times as many. Save the data uncompressed."
        )
    places = [source.with_name(source.name + ".unpacked"), _cache_place(source)]
    for place in places:
        if _is_fresh(place, stamp):
            return place
    problem: OSError | None = None
    for place in places:
        try:
            _make(place, members, stamp)
            return place
        except errors as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise DataError(f"{os.fspath(path)}: damaged ({reason}). Download it again.") from None
        except OSError as error:
            problem = error
    raise DataError(
        f"{os.fspath(path)}: cannot be unpacked into {places[0]} or {places[1]}: "
        f"{problem.strerror if problem else ''}. Make one of them writable, or save the data "
        "uncompressed."
    )


def _cache_place(source: Path) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = sha256(os.fsencode(source)).hexdigest()[:16]
    return Path(root, "edgetrain", f"{digest}.unpacked")


def _is_fresh(place: Path, stamp: Mapping[str, Any]) -> bool:
    try:
        result = json.loads(read_regular(place / _STAMP, links=False))
        sizes = {
            name: check_regular(place / name, links=False).st_size for name in stamp["members"]
        }
    except (OSError, ValueError, RecursionError):
        return False
    return result == stamp and sizes == stamp["members"]


def _make(place: Path, members: Mapping[str, Member], stamp: Mapping[str, Any]) -> None:
    """Unpack into a temporary directory, then rename it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_litter(place)
    _check_room(place.parent, sum(member.nbytes for member in members.values()))
    work = place.with_name(f"{place.name}-{os.urandom(4).hex()}.tmp")
    work.mkdir()
    try:
        for name, member in members.items():
            _copy(member, work / name)
        _write(work / _STAMP, [json.dumps(stamp).encode()])
        _swap(work, place)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check_room(directory: Path, nbytes: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < nbytes:
        raise OSError(28, f"{nbytes} bytes are needed, {free} are free in {directory}")


def _copy(member: Member, target: Path) -> None:
    def chunks() -> Any:
        left = member.nbytes
        with member.open() as stream:
            while left:
                chunk = stream.read(min(left, _CHUNK_NBYTES))
                if not chunk:
                    raise EOFError(f"{target.name} is {left} bytes too short")
                left -= len(chunk)
                yield chunk
            if stream.read(1):
                raise EOFError(f"{target.name} is longer than {member.nbytes} bytes")

    _write(target, chunks())


def _write(path: Path, chunks: Any) -> None:
    with create_file(path) as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _swap(work: Path, place: Path) -> None:
    """Rename `work` to `place`; if another process was faster, use its directory."""
    old = work.with_name(work.name + ".old")
    if place.exists():
        os.rename(place, old)
    try:
        os.rename(work, place)
    except OSError:
        if not (place / _STAMP).exists():
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _remove_litter(place: Path) -> None:
    for path in place.parent.glob(f"{glob.escape(place.name)}-*.tmp*"):
        if time.time() - path.stat().st_mtime > _LITTER_AGE:
            shutil.rmtree(path, ignore_errors=True)
