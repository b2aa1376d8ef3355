"""What only the drive needs of LLVM: calls through addresses, pointers of the processor's size."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..language.prim import I32, I64, POINTER, element


@intrinsic
def urem32(typingctx, a, b):
    """a % b of u64 that are below 2^32, in 32 bits."""

    def codegen(context, builder, signature, operands):
        x, y = (builder.trunc(v, I32) for v in operands)
        return builder.zext(builder.urem(x, y), I64)

    return types.uint64(types.uint64, types.uint64), codegen


def _function(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def call_entry(typingctx, function, base, args, thread, nthreads):
    """Call a kernel's entry `void f(i64 base, i64 args, i64 thread, i64 nthreads)`."""

    def codegen(context, builder, signature, operands):
        kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
        builder.call(_function(builder, operands[0], kind), operands[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def call_run(typingctx, function, user, tape):
    """Call `void run(void *user, void *tape)`."""

    def codegen(context, builder, signature, operands):
        kind = ir.FunctionType(ir.VoidType(), [POINTER] * 2)
        given = [builder.inttoptr(v, POINTER) for v in operands[1:]]
        builder.call(_function(builder, operands[0], kind), given)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@intrinsic
def call_fill(typingctx, function, user, split, sample, x, y):
    """Call `int fill(void *user, int split, int64_t sample, void *x, void *y)`."""

    def codegen(context, builder, signature, operands):
        kind = ir.FunctionType(I32, [POINTER, I32, I64, POINTER, POINTER])
        user, split, sample, x, y = operands[1:]
        user, x, y = (builder.inttoptr(v, POINTER) for v in (user, x, y))
        given = [user, builder.trunc(split, I32), sample, x, y]
        return builder.sext(builder.call(_function(builder, operands[0], kind), given), I64)

    return types.int64(*[types.int64] * 6), codegen


@intrinsic
def store_pointer(typingctx, address, index, value):
    """Store an address as pointer number `index` of an array `void *[]`."""

    def codegen(context, builder, signature, operands):
        where = builder.inttoptr(operands[0], POINTER)
        where = builder.gep(where, [operands[1]], source_etype=POINTER)
        builder.store(builder.inttoptr(operands[2], POINTER), where)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def real_bits(typingctx, value):
    """The 64 bits of a float64."""

    def codegen(context, builder, signature, operands):
        return builder.bitcast(operands[0], I64)

    return types.int64(types.float64), codegen


@intrinsic
def copy_byte(typingctx, target, source, index):
    """target[index] = source[index], one byte."""

    def codegen(context, builder, signature, operands):
        byte = builder.load(element(builder, operands[1], operands[2], 1), typ=ir.IntType(8))
        builder.store(byte, element(builder, operands[0], operands[2], 1))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen
