"""Counter-based random bits: they depend only on their purpose, so a resumed run repeats them."""

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def mix(values: np.ndarray) -> np.ndarray:
    """64 well-mixed bits for each u64 of `values`, of any shape; a bijection.

    Source: Steele, Lea, Flood 2014, the finaliser of SplitMix64.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def key_of(*numbers: int) -> np.uint64:
    """One u64 for a tuple of integers such as (seed, epoch, purpose); order matters."""
    state = 0
    for number in numbers:
        state = _mix_int((state + number + _GOLDEN) & _MASK)
    return np.uint64(state)


def random_bits(key: np.uint64, counters: np.ndarray) -> np.ndarray:
    """64 bits for each counter (an array of integers >= 0) under one key."""
    return mix(counters.astype(np.uint64) * np.uint64(_GOLDEN) + key)


def _mix_int(value: int) -> int:
    """`mix` of one number."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)
