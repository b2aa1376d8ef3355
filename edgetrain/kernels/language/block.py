"""Blocks of elements on the stack: what makes loops over the arena fast and their order fixed.

A kernel loads a block of operands to float32 in a buffer, computes there, and stores it: the
compiler sees that a buffer overlaps nothing, so every loop becomes vectors, also where the output
is one of the inputs.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .inlining import inline
from .prim import F32, F64, div

BLOCK = 256  # elements of a buffer


def _buffer(llvm_type, count: int):
    @intrinsic
    def new(typingctx):
        def codegen(context, builder, signature, args):
            with builder.goto_entry_block():
                memory = builder.alloca(ir.ArrayType(llvm_type, count))
                memory.align = 64
            return builder.bitcast(memory, context.get_value_type(types.voidptr))

        return types.voidptr(), codegen

    return new


def _place(builder, buffer, index, llvm_type):
    return builder.gep(builder.bitcast(buffer, llvm_type.as_pointer()), [index])


def _access(llvm_type, numba_type):
    @intrinsic
    def load(typingctx, buffer, index):
        def codegen(context, builder, signature, args):
            return builder.load(_place(builder, args[0], args[1], llvm_type))

        return numba_type(types.voidptr, types.int64), codegen

    @intrinsic
    def store(typingctx, buffer, index, value):
        def codegen(context, builder, signature, args):
            builder.store(args[2], _place(builder, args[0], args[1], llvm_type))
            return context.get_dummy_value()

        return types.void(types.voidptr, types.int64, numba_type), codegen

    return load, store


new = _buffer(F32, BLOCK)  # float32[BLOCK]
new_wide = _buffer(F64, BLOCK)  # float64[BLOCK]
get, put = _access(F32, types.float32)
get_wide, put_wide = _access(F64, types.float64)


def rounding(storage):
    """The function that gives what a float32 becomes when it is stored and loaded again."""

    @intrinsic
    def through(typingctx, value):
        def codegen(context, builder, signature, args):
            return storage.widen(builder, storage.narrow(builder, args[0]))

        return types.float32(types.float32), codegen

    return through


@inline
def first(n, thread, nthreads):
    """Start of a thread's part of n elements, a multiple of 64; n itself for thread nthreads."""
    return min(div(div(n + 63, 64) * thread, nthreads) * 64, n)


@inline
def add_wide(a, b):
    """a + b."""
    return a + b


@inline
def larger(a, b):
    """The greater; NaN where either is."""
    return a if a > b or a != a else b


@inline
def smaller(a, b):
    """The lesser; NaN where either is."""
    return a if a < b or a != a else b
