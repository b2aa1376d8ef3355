"""Vector stores with stochastic rounding.

Element i is rounded with the random bits of (i, key), so the result equals, bit for bit, that of
`storage.sr` element by element. LLVM vectorizes a loop over `sr` too, but handles up to 63 elements
at its end one by one, and a gradient's row is often hardly longer.
"""

import functools

from .inlining import inline
from .number import lanes_of, lanewise_of
from .prim import GOLDEN, Storage, mix, of_upper, u32
from .vector import WIDTH, stores

_steps = lanes_of("uint32", WIDTH, tuple(k * GOLDEN & 0xFFFFFFFF for k in range(WIDTH)))
PASS = WIDTH * GOLDEN & 0xFFFFFFFF  # step of the counter from one vector to the next


@inline
def counter(index, key):
    """The vector that `mix` turns into hash32(key, index + lane)."""
    return _steps() + (u32(index * GOLDEN) + key)


@functools.cache
def _rounded(storage: Storage, upper: bool):
    """Intrinsic (float32 vector, uint32 random bits) -> float32 that is exact in the storage."""
    drawn = storage.drawn
    assert drawn is not None
    emit = of_upper(drawn, storage.random_bits) if upper else drawn
    return lanewise_of(("float32", "uint32"), "float32", emit)


@functools.cache
def drawn_stores(storage: Storage, upper: bool = False):
    """(address, index, value, count, random): like `stores`, rounded with these random numbers.

    Args:
      upper: use their upper bits, as `storage.sr_upper` does; else the lower ones.
    """
    put = stores(storage)

    @inline
    def store(address, index, value, count, random):
        put(address, index, value, count)

    if storage.rounded is None:
        return store
    rounded = _rounded(storage, upper)

    @inline
    def store_rounded(address, index, value, count, random):
        put(address, index, rounded(value, random), count)

    return store_rounded


@functools.cache
def random_stores(storage: Storage):
    """Inline function (address, index, vector, count, key): store the first `count` lanes.

    Formats without stochastic rounding, such as float32, ignore `key`.
    """
    put, nearest = drawn_stores(storage), stores(storage)

    @inline
    def store(address, index, value, count, key):
        nearest(address, index, value, count)

    if storage.rounded is None:
        return store

    @inline
    def store_rounded(address, index, value, count, key):
        put(address, index, value, count, mix(counter(index, key)))

    return store_rounded
