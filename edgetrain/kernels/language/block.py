"""Blocks of elements on the stack, which make loops over the arena fast and fix their order.

A kernel loads a block of operands as float32 into a buffer, computes there, and stores the result.
The compiler sees that a buffer overlaps nothing, so it vectorizes every loop, even if the output is
one of the inputs. elementwise_access.py has loads and stores that tell the compiler more.
"""

import functools

from numba import types
from numba.extending import intrinsic

from .inlining import inline
from .number import Vector, vector_of, where
from .prim import F32, F64, I8, I64, Storage, array_of, div, element

BLOCK = 256  # elements of a buffer


def _place_of_own(builder, llvm_type, count: int):
    with builder.goto_entry_block():
        memory = builder.alloca(array_of(llvm_type, count))
        memory.align = 64
    return memory


def _buffer(llvm_type, count: int):
    @intrinsic
    def new(typingctx):
        def codegen(context, builder, signature, args):
            memory = _place_of_own(builder, llvm_type, count)
            return builder.bitcast(memory, context.get_value_type(types.voidptr))

        return types.voidptr(), codegen

    return new


def memory(count: int):
    """() -> a buffer of `count` float32 in the kernel's frame."""
    return _buffer(F32, count)


def wide_memory(count: int):
    """() -> a buffer of `count` float64 in the kernel's frame."""
    return _buffer(F64, count)


@functools.cache
def buffers(count: int):
    """() -> a tuple of `count` buffers, float32[BLOCK] each.

    They are in the caller's stack frame. A helper that returned them would return pointers into its
    own frame, which ends with it.
    """
    kind = types.UniTuple(types.voidptr, count)

    @intrinsic
    def several(typingctx):
        def codegen(context, builder, signature, args):
            array = array_of(F32, BLOCK)
            with builder.goto_entry_block():
                places = [builder.alloca(array) for _ in range(count)]
            for place in places:
                place.align = 64
            pointer = context.get_value_type(types.voidptr)
            return context.make_tuple(builder, kind, [builder.bitcast(p, pointer) for p in places])

        return kind(), codegen

    return several


@functools.cache
def stack(nbytes: int):
    """() -> address of `nbytes` bytes of the thread's stack, the same at every call in a kernel."""

    @intrinsic
    def address(typingctx):
        def codegen(context, builder, signature, args):
            return builder.ptrtoint(_place_of_own(builder, I8, nbytes), I64)

        return types.int64(), codegen

    return address


@intrinsic
def address_of(typingctx, buffer):
    """The address of a buffer."""

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(args[0], I64)

    return types.int64(types.voidptr), codegen


def whole(kind: Vector):
    """(buffer) -> a vector of its whole content."""

    @intrinsic
    def load(typingctx, buffer):
        def codegen(context, builder, signature, args):
            place = builder.bitcast(args[0], vector_of(kind).as_pointer())
            return builder.load(place, align=64)

        return kind(types.voidptr), codegen

    return load


_OF_OPERANDS = ("loads", "stores", "buffers")


def _scopes(module, kinds):
    """Metadata with the list of these alias scopes."""
    domain = module.add_metadata(["edgetrain operands"])
    return module.add_metadata(
        [module.add_metadata([f"edgetrain {kind}", domain]) for kind in kinds]
    )


def _marked(builder, instruction, kind: str):
    """The instruction, marked as not aliasing accesses of other kinds unless `kind` is empty."""
    if kind:
        instruction.set_metadata("alias.scope", _scopes(builder.module, [kind]))
        others = [other for other in _OF_OPERANDS if other != kind]
        instruction.set_metadata("noalias", _scopes(builder.module, others))
    return instruction


def access(llvm_type, numba_type, kind: str = ""):
    """(load, store) of a buffer's elements by index."""

    def place(builder, buffer, index):
        return builder.gep(builder.bitcast(buffer, llvm_type.as_pointer()), [index])

    @intrinsic
    def load(typingctx, buffer, index):
        def codegen(context, builder, signature, args):
            return _marked(builder, builder.load(place(builder, *args)), kind)

        return numba_type(types.voidptr, types.int64), codegen

    @intrinsic
    def store(typingctx, buffer, index, value):
        def codegen(context, builder, signature, args):
            _marked(builder, builder.store(args[2], place(builder, *args[:2])), kind)
            return context.get_dummy_value()

        return types.void(types.voidptr, types.int64, numba_type), codegen

    return load, store


@functools.cache
def loads_apart(storage: Storage):
    """(address, index) -> float32, like `storage.ld`."""

    @intrinsic
    def load(typingctx, address, index):
        def codegen(context, builder, signature, args):
            pointer = element(builder, *args, storage.nbytes)
            value = builder.load(pointer, typ=storage.element, align=storage.nbytes)
            return storage.widen(builder, _marked(builder, value, "loads"))

        return types.float32(types.int64, types.int64), codegen

    return load


@functools.cache
def stores_apart(storage: Storage):
    """(address, index, value: float32), like `storage.st`."""

    @intrinsic
    def store(typingctx, address, index, value):
        def codegen(context, builder, signature, args):
            pointer = element(builder, args[0], args[1], storage.nbytes)
            narrow = storage.narrow(builder, args[2])
            stored = builder.store(narrow, pointer, align=storage.nbytes)
            _marked(builder, stored, "stores")
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.float32), codegen

    return store


new = _buffer(F32, BLOCK)  # float32[BLOCK]
new_wide = _buffer(F64, BLOCK)  # float64[BLOCK]
get, put = access(F32, types.float32)
get_wide, put_wide = access(F64, types.float64)
# like these, for buffers in loops over `loads_apart` and `stores_apart`
get_apart, put_apart = access(F32, types.float32, "buffers")
get_wide_apart, put_wide_apart = access(F64, types.float64, "buffers")


def rounding(storage):
    """A function that rounds a float32 as storing and loading it would."""

    @intrinsic
    def through(typingctx, value):
        def codegen(context, builder, signature, args):
            return storage.widen(builder, storage.narrow(builder, args[0]))

        return types.float32(types.float32), codegen

    return through


@inline
def first(n, thread, nthreads):
    """Start of a thread's part of n elements, a multiple of 64; n for `thread` = nthreads."""
    return min(div(div(n + 63, 64) * thread, nthreads) * 64, n)


@inline
def add_wide(a, b):
    """a + b."""
    return a + b


@inline
def larger(a, b):
    """The greater of the two; NaN if either is NaN."""
    return where((a > b) | (a != a), a, b)


@inline
def smaller(a, b):
    """The lesser of the two; NaN if either is NaN."""
    return where((a < b) | (a != a), a, b)
