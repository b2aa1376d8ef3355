"""Loads and stores of loops that go over operands element by element, without a buffer between.

Where an output may be one of the inputs the compiler would have to test for it, or take one element
at a time. The words here say what it cannot see, so that every loop over them becomes vectors:

  - a store changes nothing that a load here has yet to read. It holds where an output is an input
    whole, never shifted, and every element that is read is read for the last time before, or for,
    the store of the same place. What a loop reads that an earlier one of the kernel stored, it
    loads with the storage's own `ld`.
  - buffers on the stack overlap no operand.
"""

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .block import _place
from .inlining import inline
from .lanes import LANES
from .prim import F32, F64, I32, Storage, div, element

_KINDS = ("loads", "stores", "buffers")


def _scopes(module, kinds):
    """The list of these alias scopes."""
    domain = module.add_metadata(["edgetrain operands"])
    return module.add_metadata(
        [module.add_metadata([f"edgetrain {kind}", domain]) for kind in kinds]
    )


def _marked(builder, instruction, kind: str):
    """The instruction, which touches what those of other kinds do not."""
    instruction.set_metadata("alias.scope", _scopes(builder.module, [kind]))
    others = [other for other in _KINDS if other != kind]
    instruction.set_metadata("noalias", _scopes(builder.module, others))
    return instruction


@functools.cache
def loads_apart(storage: Storage):
    """(address, index) -> float32, as `storage.ld`."""

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
    """(address, index, value: float32), as `storage.st`."""

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


def _access(llvm_type, numba_type):
    @intrinsic
    def load(typingctx, buffer, index):
        def codegen(context, builder, signature, args):
            value = builder.load(_place(builder, args[0], args[1], llvm_type))
            return _marked(builder, value, "buffers")

        return numba_type(types.voidptr, types.int64), codegen

    @intrinsic
    def store(typingctx, buffer, index, value):
        def codegen(context, builder, signature, args):
            stored = builder.store(args[2], _place(builder, args[0], args[1], llvm_type))
            _marked(builder, stored, "buffers")
            return context.get_dummy_value()

        return types.void(types.voidptr, types.int64, numba_type), codegen

    return load, store


# as those of block.py
get, put = _access(F32, types.float32)
get_wide, put_wide = _access(F64, types.float64)


@inline
def full(columns, blocks, n):
    """How many blocks of a work item (lanes.py) have all LANES; they are the first ones."""
    if columns == 0:
        return div(n, LANES)
    return blocks if columns == LANES else 0


@intrinsic
def greatest(typingctx, buffer):
    """The greatest of LANES float32, of which none is NaN."""

    def codegen(context, builder, signature, args):
        whole = ir.VectorType(F32, LANES)
        value = builder.load(builder.bitcast(args[0], whole.as_pointer()), align=64)
        half = LANES // 2
        while half:
            nothing = ir.Constant(value.type, ir.Undefined)
            low, high = (
                builder.shuffle_vector(
                    value,
                    nothing,
                    ir.Constant(ir.VectorType(I32, half), list(range(start, start + half))),
                )
                for start in (0, half)
            )
            more = builder.fcmp_ordered(">", low, high)
            value, half = builder.select(more, low, high), half // 2
        return builder.extract_element(value, ir.Constant(I32, 0))

    return types.float32(types.voidptr), codegen
