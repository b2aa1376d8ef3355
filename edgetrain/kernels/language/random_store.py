"""Stores of vectors rounded stochastically, with the bits that element by element `sr` has.

A loop over elements leaves up to 63 of them to single instructions; rows of a gradient are often
not much longer.
"""

import functools

from .inlining import inline
from .number import lanes_of, lanewise_of, of
from .prim import GOLDEN, Storage, mix, u32
from .vector import WIDTH, stores

_steps = lanes_of("uint32", WIDTH, tuple(k * GOLDEN & 0xFFFFFFFF for k in range(WIDTH)))


@functools.cache
def _rounded(storage: Storage):
    """(value, random) -> what is stored of it, as float32."""
    bits, element, widen = storage.rounded, storage.element, storage.widen
    assert bits is not None

    def emit(builder, value, random):
        stored = bits(builder, value, random)
        kind = of(value, element)
        return widen(builder, stored if stored.type == kind else builder.bitcast(stored, kind))

    return lanewise_of(("float32", "uint32"), "float32", emit)


@functools.cache
def random_stores(storage: Storage):
    """(address, index, value, count, key): as `stores`, rounded as `storage.sr` does."""
    put = stores(storage)

    @inline
    def store(address, index, value, count, key):
        put(address, index, value, count)

    if storage.rounded is None:
        return store
    rounded = _rounded(storage)

    @inline
    def store_rounded(address, index, value, count, key):
        random = mix(_steps() + (u32(index * GOLDEN) + key))
        put(address, index, rounded(value, random), count)

    return store_rounded
