"""The sample format of callers without Python, and synthetic samples for checks."""

import numpy as np

from .program import Program
from .sets import TARGET, WEIGHT, Slot


def elements(program: Program, slot: Slot) -> int:
    """Number of elements per sample."""
    return slot.size // program.microbatch


def limit_of(program: Program, name: str) -> int:
    """Upper bound of synthetic integers; -1 for numeric targets and weights."""
    limit = int(program.limits.get(name, 0))
    return limit or (-1 if name in (TARGET, WEIGHT) else 2)


def record_nbytes(program: Program, small: bool = False) -> int:
    """The size of a sample in a file.

    Args:
      small: the first input is stored in bytes.
    """
    slots = list(program.staged("micro").values())
    whole = sum(slot.format.raw.nbytes(elements(program, slot)) for slot in slots)
    return whole - 3 * elements(program, slots[0]) * small


def made_up(
    program: Program, slot: Slot, number: int, sample: int, name: str, spike: float | None = None
) -> np.ndarray:
    """Raw values of field `number` of a sample, like `made_up` in a bundle's main.

    Float inputs are in [-1, 1), float targets in [0, 1), and integers below their limit.

    Args:
      spike: absolute value of the float inputs of sample 0.
    """
    limit = limit_of(program, name)
    key = _mixed(np.array(sample * 0x9E3779B9 + number & 0xFFFFFFFF, np.uint32))
    bits = _mixed(np.arange(elements(program, slot), dtype=np.uint32) + key)
    if not slot.format.floats:
        return (bits % np.uint32(max(limit, 2))).astype(np.int32)
    values = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
    if limit == -1:
        return values
    values = values * np.float32(2) - np.float32(1)
    return values if sample or spike is None else np.copysign(np.float32(spike), values)


def _mixed(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        values = (values ^ (values >> np.uint32(15))) * np.uint32(0x735A2D97)
    return values ^ (values >> np.uint32(15))
