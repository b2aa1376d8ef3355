"""Vectors of 64 elements with one bit each: relu that keeps a mask, and its gradient."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .prim import F32, I64, STORAGES, element
from .vector import load_vector

store_bits, load_bits = STORAGES["u8"].st, STORAGES["u8"].ld

_FLOATS = ir.VectorType(F32, 64)
_BITS = ir.VectorType(ir.IntType(1), 64)


def _load(builder, storage, address, index):
    pointer = element(builder, address, index, storage.nbytes)
    return load_vector(builder, storage, pointer, 64)


def _store(builder, storage, address, index, value):
    pointer = element(builder, address, index, storage.nbytes)
    builder.store(storage.narrow(builder, value), pointer, align=storage.nbytes)


def _byte(builder, address, index):
    return element(builder, address, builder.lshr(index, ir.Constant(I64, 3)), 1)


def relu64(storage):
    """relu of 64 elements at `index`, a multiple of 8, and their 64 mask bits."""

    @intrinsic
    def function(typingctx, x, y, mask, index):
        def codegen(context, builder, signature, args):
            x, y, mask, index = args
            value = _load(builder, storage, x, index)
            zero = ir.Constant(_FLOATS, None)
            positive = builder.fcmp_unordered(">", value, zero)
            _store(builder, storage, y, index, builder.select(positive, value, zero))
            bits = builder.bitcast(positive, I64)
            builder.store(bits, _byte(builder, mask, index), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return function


def masked64(storage, add: bool):
    """dx = (dx +) dy where the mask's bit is 1, for 64 elements at `index`, a multiple of 8."""

    @intrinsic
    def function(typingctx, mask, dy, dx, index):
        def codegen(context, builder, signature, args):
            mask, dy, dx, index = args
            bits = builder.load(_byte(builder, mask, index), typ=I64, align=1)
            value = _load(builder, storage, dy, index)
            keep = builder.bitcast(bits, _BITS)
            value = builder.select(keep, value, ir.Constant(_FLOATS, None))
            if add:
                value = builder.fadd(_load(builder, storage, dx, index), value)
            _store(builder, storage, dx, index, value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return function
