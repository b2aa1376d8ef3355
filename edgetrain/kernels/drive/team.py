"""Threads that run tapes together and stay out of Python between them: `drive_lead` is called as
`run_tape` is and has the others come along; each of those is in `drive_serve` until the end.

Tapes follow each other within some microseconds, and to be woken takes longer than many of them:
a worker spins for a while before it sleeps. For 64-bit Linux, as what makes it sleep (waiting.py).
"""

from .. import tape
from ..registry import kernel
from .waiting import WAIT_OWN, WAKE_OWN, asks

IDLE_SPIN = 1_000_000  # turns, some tenths of a millisecond
_ALL = 2**31 - 1


def _job():
    """The number of the tape that is run, which all threads look at."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from ..words.prim import I32, I64

    @intrinsic
    def job(typingctx, block):
        def codegen(context, builder, signature, operands):
            where = builder.add(operands[0], ir.Constant(I64, 8 * tape.JOB))
            where = builder.inttoptr(where, I32.as_pointer())
            return builder.sext(builder.load_atomic(where, "acquire", 4, typ=I32), I64)

        return types.int64(types.int64), codegen

    return job


@kernel("drive_lead", "base code end table barrier threads")
def drive_lead():
    """Run a tape, with the other workers of `barrier` where `threads` is more than one."""
    from ..words.prim import ld_i64, st_i64
    from .words import call_entry

    ask, counted, count_after = asks()
    number, idle, entry, given = tape.JOB, tape.IDLE, tape.ENTRY, tape.JOB_OPERANDS
    system = tape.OPERANDS + 1

    def run(thread, nthreads, k):
        block = k.barrier
        st_i64(block, given, k.base)
        st_i64(block, given + 1, k.code)
        st_i64(block, given + 2, k.end)
        st_i64(block, given + 3, k.table)
        st_i64(block, given + 4, block)
        if k.threads > 1:
            counted(block + 8 * number, 1)
            if count_after(block + 8 * idle) > 0:
                to, call = ld_i64(block, system), ld_i64(block, system + 1)
                ask(to, call, block + 8 * number, WAKE_OWN, _ALL, 0)
        call_entry(ld_i64(block, entry), 0, block + 8 * given, 0, k.threads)

    return run


@kernel("drive_serve", "barrier")
def drive_serve():
    """Run the tapes that `drive_lead` is given, as thread `thread` of `nthreads`, until OVER."""
    from ..words.prim import ld_i64
    from .words import call_entry

    ask, counted, _ = asks()
    job = _job()
    number, idle, over, give_way = tape.JOB, tape.IDLE, tape.OVER, tape.YIELD
    entry, given, system = tape.ENTRY, tape.JOB_OPERANDS, tape.OPERANDS + 1
    last = tape.YIELD_EVERY - 1

    def run(thread, nthreads, k):
        block, seen = k.barrier, 0
        while True:
            turns = 0
            while job(block) == seen:
                turns += 1
                if turns & last == 0:
                    call_entry(ld_i64(block, give_way), 0, 0, thread, nthreads)
                if turns > IDLE_SPIN:
                    counted(block + 8 * idle, 1)
                    to, call = ld_i64(block, system), ld_i64(block, system + 1)
                    ask(to, call, block + 8 * number, WAIT_OWN, seen, 0)
                    counted(block + 8 * idle, -1)
            seen = job(block)
            if ld_i64(block, over) != 0:
                return
            call_entry(ld_i64(block, entry), 0, block + 8 * given, thread, nthreads)

    return run


@kernel("drive_part", "barrier")
def drive_part():
    """Have the workers leave `drive_serve`."""
    from ..words.prim import ld_i64, st_i64

    ask, counted, _ = asks()
    number, over, system = tape.JOB, tape.OVER, tape.OPERANDS + 1

    def run(thread, nthreads, k):
        st_i64(k.barrier, over, 1)
        counted(k.barrier + 8 * number, 1)
        to, call = ld_i64(k.barrier, system), ld_i64(k.barrier, system + 1)
        ask(to, call, k.barrier + 8 * number, WAKE_OWN, _ALL, 0)

    return run
