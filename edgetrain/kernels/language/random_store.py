"""Vector stores with stochastic rounding.

Element i is rounded with the random bits of (i, key), so the result equals, bit for bit, that of
`storage.sr` element by element. LLVM vectorizes a loop over `sr` too, but does up to 63 elements at
its end one by one, and a row of a gradient is often hardly longer.
"""

import functools

from .inlining import inline
from .number import lanes_of, lanewise_of, of
from .prim import GOLDEN, Storage, mix, u32
from .vector import WIDTH, stores

_steps = lanes_of("uint32", WIDTH, tuple(k * GOLDEN & 0xFFFFFFFF for k in range(WIDTH)))


@functools.cache
def _rounded(storage: Storage):
    """Intrinsic (float32 vector, uint32 random bits) -> float32 that the storage holds exactly."""
    bits, element, widen = storage.rounded, storage.element, storage.widen
    assert bits is not None

    def emit(builder, value, random):
        stored = bits(builder, value, random)
        kind = of(value, element)
        return widen(builder, stored if stored.type == kind else builder.bitcast(stored, kind))

    return lanewise_of(("float32", "uint32"), "float32", emit)


@functools.cache
def random_stores(storage: Storage):
    """Inline function (address, index, vector, count, key): store the first `count` lanes.

    Formats without stochastic rounding, such as float32, ignore `key`.
    """
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
