"""Bytes as people write them: `6.7MB` is 10^6, `6.4MiB` is 2^20."""

import re

from .errors import UsageError

_FACTORS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip
_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str | int) -> int:
    """Bytes of `262144`, `"256KiB"` or `"6.7MB"`; a fraction of a byte is dropped.

    Raises:
      UsageError: not a number with a unit of bytes, or not positive.
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise UsageError(f"budget {text!r}: expected an int or text such as '6.7MB' or '6.4MiB'.")
    if isinstance(text, int):
        nbytes = text
    else:
        match = _PATTERN.fullmatch(text)
        factor = _FACTORS.get(match[2].lower()) if match else None
        if match is None or factor is None:
            raise UsageError(
                f"budget {text!r}: expected a number and a unit of bytes (B, kB, MB, GB = powers "
                "of 1000; KiB, MiB, GiB = powers of 1024), such as '6.7MB'."
            )
        whole, _, fraction = match[1].partition(".")
        digits = int((whole or "0") + fraction)
        nbytes = digits * factor // 10 ** len(fraction)
    if nbytes <= 0:
        raise UsageError(f"budget {text!r}: expected more than 0 bytes.")
    return nbytes


def format_bytes(nbytes: int) -> str:
    """`41.3 MiB`, `512 B`: binary units, one decimal, for people."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"
