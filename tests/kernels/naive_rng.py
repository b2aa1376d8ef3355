"""The random generator and stochastic rounding in numpy, with integer arithmetic."""

import numpy as np

MASK = 0xFFFFFFFF


def hash32(key: int, index) -> np.ndarray:
    """Return 32 random bits (uint32) for each index."""
    x = (np.asarray(index, np.uint64) * 0x9E3779B9 + key) & MASK
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & MASK
    x = ((x ^ (x >> 15)) * 0x735A2D97) & MASK
    return (x ^ (x >> 15)).astype(np.uint32)


def stream(seed: int, key: int, step: int, microbatch: int) -> int:
    """Return the key of an instruction's random numbers."""
    x = int(hash32(seed & MASK, seed >> 32))
    for word in (key, step, microbatch):
        x = int(hash32(x, word))
    return x


def stochastic_f16(values: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Round float32 to float16, away from zero with the dropped fraction as probability."""
    x = np.abs(values)
    tiny = x < np.float32(2.0**-14)  # float32 keeps multiples of 2^-37 near 2^-14
    x[tiny] = (x[tiny] + np.float32(2.0**-14)) - np.float32(2.0**-14)
    x = x.astype(np.float64)
    out = np.full(x.shape, np.inf)
    out[np.isnan(x)] = np.nan
    finite = x < 65536
    exponent = np.maximum(np.frexp(x[finite])[1] - 11, -24)
    low = np.floor(np.ldexp(x[finite], -exponent))
    rest = np.ldexp(x[finite], -exponent) - low
    up = np.floor(rest * 2.0**13) + (random[finite] & 0x1FFF) >= 2.0**13
    out[finite] = np.ldexp(low + up, exponent)
    with np.errstate(over="ignore"):
        return np.copysign(out, values).astype(np.float16)
