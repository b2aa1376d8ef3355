"""Stores of vectors rounded stochastically, with the bits that element by element `sr` has.

A loop over elements leaves up to 63 of them to single instructions; rows of a gradient are often
not much longer.
"""

import functools

from .inlining import inline
from .number import bits_as, lanes_of, to
from .prim import GOLDEN, Storage, mix, round_f16, u32
from .vector import WIDTH, stores

_steps = lanes_of("uint32", WIDTH, tuple(k * GOLDEN & 0xFFFFFFFF for k in range(WIDTH)))
_half, _wide = bits_as("float16"), to("float32")


@inline
def rounded_f16(value, index, key):
    """What fp16 elements from `index` on become, as float32."""
    random = mix(_steps() + (u32(index * GOLDEN) + key))
    return _wide(_half(round_f16(value, random)))


@functools.cache
def random_stores(storage: Storage):
    """(address, index, value, count, key): as `stores`, rounded as `storage.sr` does."""
    put = stores(storage)

    @inline
    def store(address, index, value, count, key):
        put(address, index, value, count)

    @inline
    def store_f16(address, index, value, count, key):
        put(address, index, rounded_f16(value, index, key), count)

    return store_f16 if storage.name == "f16" else store
