"""Byte sizes (MB is 10^6 bytes, MiB 2^20), bounded numbers, and processor cores."""

import math
import numbers
import os
import re
from collections.abc import Mapping
from typing import Any

from ..errors import EdgetrainError, UsageError

_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
# Kernels compute in 32 bits: beyond these, numbers overflow to infinity or underflow to 0.
LARGEST, SMALLEST = 3.4e38, 1.2e-38
_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*")


def processors() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_bytes(text: str | int) -> int:
    """Parse sizes such as `262144`, `"256KiB"` or `"6.7MB"`; returns bytes, rounded down.

    Raises:
      UsageError: not a size in bytes, or not positive.
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise UsageError(f"budget {text!r}: expected an int or a string, such as '6.7MB'.")
    if isinstance(text, int):
        nbytes = text
    else:
        match = _PATTERN.fullmatch(text)
        factor = _FACTORS.get(match[2].lower()) if match else None
        if match is None or factor is None:
            raise UsageError(
                f"budget {text!r}: expected a whole number of bytes, or a number with a unit, such "
                "as '6.7MB' (B; kB, MB, GB = powers of 1000; KiB, MiB, GiB = powers of 1024)."
            )
        whole, _, fraction = match[1].partition(".")
        if fraction.strip("0") and factor == 1:
            raise UsageError(f"budget {text!r}: expected whole bytes. Add a unit, such as MiB.")
        digits = int((whole or "0") + fraction)
        nbytes = digits * factor // 10 ** len(fraction)
    if nbytes <= 0:
        raise UsageError(f"budget {text!r}: expected more than 0 bytes.")
    return nbytes


def finite(value: Any) -> Any:
    """Replace non-finite numbers by None, for JSON."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def budget_nbytes(budget: str | int | None) -> int | None:
    """The budget in bytes; None: no limit.

    Raises:
      UsageError: as `parse_bytes`.
    """
    return None if budget is None else parse_bytes(budget)


def format_bytes(nbytes: int) -> str:
    """Bytes for people, such as `41.3 MiB` or `512 B`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"


def finite_number(
    label: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -LARGEST,
    most: float = LARGEST,
    below: float = math.inf,
    error: type[EdgetrainError] = UsageError,
) -> float:
    """Check that `value` is a finite fp32 number within bounds, and return it.

    Args:
      label: what the message calls it, such as "optimizer sgd: lr".
      above, least, most, below: bounds; above and below are exclusive.
    Raises:
      error: it is not a number, not finite or out of bounds.
    """
    plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if plain and least <= value <= most and above < value < below:
        return value if isinstance(value, int | float) else float(value)
    low = f" above {above:g}" if above > -math.inf else f" of at least {least:g}"
    high = f" below {below:g}" if below < math.inf else f" at most {most:g}"
    raise error(f"{label} {value!r}: expected a finite number{low} and{high}.")


def whole_number(
    label: str,
    value: Any,
    *,
    least: int = 0,
    most: int = 2**63 - 1,
    error: type[EdgetrainError] = UsageError,
) -> int:
    """Check that `value` is an integer from `least` to `most`, and return it.

    Raises:
      error: it is not.
    """
    plain = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if plain and least <= value <= most:
        return int(value)
    range_ = f"of at least {least}" if most == 2**63 - 1 else f"from {least} to {most}"
    raise error(f"{label} {value!r}: expected a whole number {range_}.")
