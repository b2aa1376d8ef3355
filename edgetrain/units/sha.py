"""SHA-256 without the system's crypto library, which takes 3.5 MB of memory."""

from typing import Any

_LARGE = 2**24  # bytes above which the system library's speed is worth its size


def sha256(data: Any = b"", *, expected: int = 0) -> Any:
    """Like `hashlib.sha256`.

    Args:
      expected: expected number of bytes, if large.
    """
    if expected <= _LARGE:
        try:
            from _sha2 import sha256 as own  # type: ignore[import-not-found]  # Python 3.12
        except ImportError:
            try:
                from _sha256 import sha256 as own  # type: ignore[import-not-found]
            except ImportError:
                from hashlib import sha256 as own
        return own(data)
    import hashlib

    return hashlib.sha256(data)
