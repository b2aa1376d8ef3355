"""What only bundles need of LLVM: a C struct of pointers, and calls of a store's functions."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..language.prim import I32, I64, POINTER


@intrinsic
def load_pointer(typingctx, address, index):
    """Pointer number `index` of an array `void *[]`, as an address."""

    def codegen(context, builder, signature, operands):
        where = builder.inttoptr(operands[0], POINTER)
        where = builder.gep(where, [operands[1]], source_etype=POINTER)
        return builder.ptrtoint(builder.load(where, typ=POINTER), I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def call_erase(typingctx, function, user, slot):
    """Call `int erase(void *user, int slot)`."""

    def codegen(context, builder, signature, operands):
        kind = ir.FunctionType(I32, [POINTER, I32])
        target = builder.inttoptr(operands[0], kind.as_pointer())
        user = builder.inttoptr(operands[1], POINTER)
        return builder.sext(builder.call(target, [user, builder.trunc(operands[2], I32)]), I64)

    return types.int64(*[types.int64] * 3), codegen


@intrinsic
def call_move(typingctx, function, user, slot, offset, data, nbytes):
    """Call `int f(void *user, int slot, uint32_t offset, void *data, uint32_t bytes)`."""

    def codegen(context, builder, signature, operands):
        kind = ir.FunctionType(I32, [POINTER, I32, I32, POINTER, I32])
        target = builder.inttoptr(operands[0], kind.as_pointer())
        user, data = (builder.inttoptr(operands[k], POINTER) for k in (1, 4))
        slot, offset, nbytes = (builder.trunc(operands[k], I32) for k in (2, 3, 5))
        return builder.sext(builder.call(target, [user, slot, offset, data, nbytes]), I64)

    return types.int64(*[types.int64] * 6), codegen


@intrinsic
def call_read(typingctx, function, user, to, offset, nbytes):
    """Call `int read(void *user, void *to, uint32_t offset, uint32_t bytes)`."""

    def codegen(context, builder, signature, operands):
        kind = ir.FunctionType(I32, [POINTER, POINTER, I32, I32])
        target = builder.inttoptr(operands[0], kind.as_pointer())
        user, to = (builder.inttoptr(operands[k], POINTER) for k in (1, 2))
        offset, nbytes = (builder.trunc(operands[k], I32) for k in (3, 4))
        return builder.sext(builder.call(target, [user, to, offset, nbytes]), I64)

    return types.int64(*[types.int64] * 5), codegen
