"""A thread that waits at the barrier sleeps, and is woken: on a machine with more threads than
processors, one that only yields takes the turn of the thread that it waits for.

Kernels like others to their callers, the interpreter (tapes/tape.py): base is the barrier's
block, thread the generation that is over. The system's futex is called through the C library's
`syscall`, whose address and numbers are operands; for 64-bit Linux.
"""

from ..registry import kernel
from ..tapes.tape import GENERATION, PATIENCE, SLEEPING

_GENERATION, _SLEEPING, _PATIENCE = 8 * GENERATION, 8 * SLEEPING, 8 * PATIENCE
WAIT_OWN, WAKE_OWN = 128, 129  # of this process' own threads
_ALL = 2**31 - 1


def asks():
    """(ask, counted, count_after): what the kernels call, made when they are compiled."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from ..language.prim import I32, I64

    @intrinsic
    def ask(typingctx, function, number, where, what, count, patience):
        def codegen(context, builder, signature, operands):
            kind = ir.FunctionType(I64, [I64] * 7)
            target = builder.inttoptr(operands[0], kind.as_pointer())
            builder.call(target, [*operands[1:], ir.Constant(I64, 0), ir.Constant(I64, 0)])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    @intrinsic
    def counted(typingctx, where, change):
        """Add to a count that others read."""

        def codegen(context, builder, signature, operands):
            place = builder.inttoptr(operands[0], I32.as_pointer())
            builder.atomic_rmw("add", place, builder.trunc(operands[1], I32), "seq_cst")
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    @intrinsic
    def count_after(typingctx, where):
        """The count, looked at when what was stored before is seen by others."""

        def codegen(context, builder, signature, operands):
            place = builder.inttoptr(operands[0], I32.as_pointer())
            builder.fence("seq_cst")
            return builder.sext(builder.load_atomic(place, "monotonic", 4, typ=I32), I64)

        return types.int64(types.int64), codegen

    return ask, counted, count_after


@kernel("drive_wait", "block call number")
def drive_wait():
    """Sleep until the generation is another one, or some milliseconds."""
    ask, counted, _ = asks()

    def run(thread, nthreads, k):
        counted(k.block + _SLEEPING, 1)
        patience = k.block + _PATIENCE
        ask(k.call, k.number, k.block + _GENERATION, WAIT_OWN, thread, patience)
        counted(k.block + _SLEEPING, -1)

    return run


@kernel("drive_wake", "block call number")
def drive_wake():
    """Wake those who sleep; the new generation is there."""
    ask, _, count_after = asks()

    def run(thread, nthreads, k):
        if count_after(k.block + _SLEEPING) > 0:
            ask(k.call, k.number, k.block + _GENERATION, WAKE_OWN, _ALL, 0)

    return run
