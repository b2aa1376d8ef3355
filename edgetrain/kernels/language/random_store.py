"""Stores of vectors rounded stochastically, with the bits that element by element `sr` has.

A loop over elements leaves up to 63 of them to single instructions; rows of a gradient are often
not much longer. The arithmetic is that of `hash32` and `round_f16` (language/prim.py), lane by
lane.
"""

import functools

from llvmlite import ir
from numba import types

from .prim import I16, I32, Storage
from .vector import V16, VECTOR, WIDTH, constant, define, splat, stores

GOLDEN = 0x9E3779B9
_I32S, _I16S = ir.VectorType(I32, WIDTH), ir.VectorType(I16, WIDTH)


def _c(value: int) -> ir.Constant:
    return ir.Constant(_I32S, [value] * WIDTH)


def _hash(builder, key, index):
    lanes = ir.Constant(_I32S, [lane * GOLDEN & 0xFFFFFFFF for lane in range(WIDTH)])
    first = builder.add(builder.mul(builder.trunc(index, I32), I32(GOLDEN)), key)
    x = builder.add(splat(builder, first), lanes)  # (index + lane) * GOLDEN + key
    x = builder.mul(builder.xor(x, builder.lshr(x, _c(16))), _c(0x21F0AAAD))
    x = builder.mul(builder.xor(x, builder.lshr(x, _c(15))), _c(0x735A2D97))
    return builder.xor(x, builder.lshr(x, _c(15)))


def _round(builder, value, random):
    """Bits of fp16, as `round_f16`."""
    b = builder
    bits = b.bitcast(value, _I32S)
    sign = b.and_(b.lshr(bits, _c(16)), _c(0x8000))
    size = b.and_(bits, _c(0x7FFFFFFF))
    normal = b.add(size, b.and_(random, _c(0x1FFF)))
    normal = b.select(b.icmp_unsigned("<", normal, _c(0x47800000)), normal, _c(0x47800000))
    normal = b.sub(b.lshr(normal, _c(13)), _c(112 << 10))  # of 2^16 and more that is infinity
    normal = b.select(b.icmp_unsigned("<=", size, _c(0x7F800000)), normal, _c(0x7E00))
    tiny = b.icmp_unsigned("<", size, _c(0x38800000))
    small = b.bitcast(b.select(tiny, size, _c(0x38800000)), VECTOR)
    steps = b.fptosi(b.fmul(small, constant(2.0**44)), _I32S)
    subnormal = b.lshr(b.add(steps, b.lshr(random, _c(12))), _c(20))
    return b.trunc(b.or_(b.select(tiny, subnormal, normal), sign), _I16S)


def _rounded(builder, args):
    value, index, key = args
    half = ir.VectorType(ir.HalfType(), WIDTH)
    return builder.fpext(
        builder.bitcast(_round(builder, value, _hash(builder, key, index)), half), VECTOR
    )


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
