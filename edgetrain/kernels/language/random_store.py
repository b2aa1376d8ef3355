"""Stores of vectors rounded stochastically, with the bits that element by element `sr` has.

A loop over elements leaves up to 63 of them to single instructions; rows of a gradient are often
not much longer.
"""

import functools

from .inlining import inline
from .number import lanes_of, lanewise_of
from .prim import GOLDEN, Storage, mix, of_upper, u32
from .vector import WIDTH, stores

_steps = lanes_of("uint32", WIDTH, tuple(k * GOLDEN & 0xFFFFFFFF for k in range(WIDTH)))
PASS = WIDTH * GOLDEN & 0xFFFFFFFF  # from the counter of a vector to that of the next one


@inline
def counter(index, key):
    """What `mix` makes hash32(key, index + lane) of."""
    return _steps() + (u32(index * GOLDEN) + key)


@functools.cache
def _rounded(storage: Storage, upper: bool):
    """(value, random) -> what is stored of it, as float32."""
    drawn = storage.drawn
    assert drawn is not None
    emit = of_upper(drawn, storage.random_bits) if upper else drawn
    return lanewise_of(("float32", "uint32"), "float32", emit)


@functools.cache
def drawn_stores(storage: Storage, upper: bool = False):
    """(address, index, value, count, random): as `stores`, rounded by these random numbers.

    Args:
      upper: by their upper bits, as `storage.sr_upper`; else by the lower ones.
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
    """(address, index, value, count, key): as `stores`, rounded as `storage.sr` does."""
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
