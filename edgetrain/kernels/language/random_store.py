"""Stores of vectors rounded stochastically, with the bits that element by element `sr` has.

A loop over elements leaves up to 63 of them to single instructions; rows of a gradient are often
not much longer.
"""

import functools

from llvmlite import ir
from numba import types

from .prim import GOLDEN, I32, Storage, mixed, rounded
from .vector import V16, VECTOR, WIDTH, define, splat, stores


def _rounded(builder, args):
    value, index, key = args
    lanes = ir.VectorType(I32, WIDTH)
    steps = ir.Constant(lanes, [lane * GOLDEN & 0xFFFFFFFF for lane in range(WIDTH)])
    first = builder.add(builder.mul(builder.trunc(index, I32), I32(GOLDEN)), key)
    random = mixed(builder, builder.add(splat(builder, first), steps))
    half = ir.VectorType(ir.HalfType(), WIDTH)
    return builder.fpext(builder.bitcast(rounded(builder, value, random), half), VECTOR)


# (value, index, key): what fp16 elements from `index` on become, as float32
rounded_f16 = define(V16(V16, types.int64, types.uint32), _rounded)


@functools.cache
def random_stores(storage: Storage):
    """(address, index, value, count, key): as `stores`, rounded as `storage.sr` does."""
    from .inlining import inline

    put = stores(storage)

    @inline
    def store(address, index, value, count, key):
        put(address, index, value, count)

    @inline
    def store_f16(address, index, value, count, key):
        put(address, index, rounded_f16(value, index, key), count)

    return store_f16 if storage.name == "f16" else store
