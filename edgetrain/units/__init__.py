"""Bytes as people write them (`6.7MB` is 10^6, `6.4MiB` is 2^20), and numbers within bounds."""

import math
import numbers
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
# Kernels compute in 32 bits: beyond these a number is infinite there, or nothing.
LARGEST, SMALLEST = 3.4e38, 1.2e-38
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


def finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not know."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def budget_nbytes(budget: str | int | None) -> int | None:
    """Bytes of a budget as people give it; None: no limit.

    Raises:
      UsageError: as `parse_bytes`.
    """
    return None if budget is None else parse_bytes(budget)


def format_bytes(nbytes: int) -> str:
    """`41.3 MiB`, `512 B`: binary units, one decimal, for people."""
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
    """`value`, a finite number that 32 bits hold, within bounds.

    Args:
      label: what the message calls it, such as "optimizer sgd: lr".
      above, least, most, below: bounds; above and below are themselves outside.
    Raises:
      error: it is no number, not finite or out of bounds.
    """
    plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if plain and least <= value <= most and above < value < below:
        return value if isinstance(value, int | float) else float(value)
    low = f" above {above:g}" if above > -math.inf else f" of {least:g} or more"
    high = f" below {below:g}" if below < math.inf else f" at most {most:g}"
    raise error(f"{label} {value!r}: expected a finite number{low},{high}.")


def whole_number(
    label: str,
    value: Any,
    *,
    least: int = 0,
    most: int = 2**63 - 1,
    error: type[EdgetrainError] = UsageError,
) -> int:
    """`value`, an integer from `least` to `most`.

    Raises:
      error: it is something else.
    """
    plain = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if plain and least <= value <= most:
        return int(value)
    range_ = f"of {least} or more" if most == 2**63 - 1 else f"from {least} to {most}"
    raise error(f"{label} {value!r}: expected a whole number {range_}.")
