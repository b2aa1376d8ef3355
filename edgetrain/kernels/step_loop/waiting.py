"""Lets a thread sleep while it waits at the barrier, and wakes it. On a machine with more threads
than processors, a thread that only yields takes time from the one it waits for.

The interpreter (tapes/tape.py) calls these like other kernels: base is the barrier's block, thread
the generation that is over. The system's futex is called through the C library's `syscall`; its
address and numbers are operands. Only for 64-bit Linux.
"""

from ..registry import kernel
from ..tapes.tape import GENERATION, PATIENCE, SLEEPING

_GENERATION, _SLEEPING, _PATIENCE = 8 * GENERATION, 8 * SLEEPING, 8 * PATIENCE
WAIT_OWN, WAKE_OWN = 128, 129  # futex operations private to this process
_ALL = 2**31 - 1


def asks():
    """(ask, counted, count_after): functions that kernels call, made when these are compiled."""
    from ..language.calls import add_shared, c_function, load_shared
    from ..language.inlining import inline

    call = c_function("int64_t", *["int64_t"] * 7)  # the number of a system call, six operands
    add, count_after = add_shared("seq_cst"), load_shared("seq_cst")

    @inline
    def ask(function, number, where, what, count, patience):
        call(function, number, where, what, count, patience, 0, 0)

    @inline
    def counted(where, change):
        """Add to a count that other threads read."""
        add(where, change)

    return ask, counted, count_after


@kernel("drive_wait", "block=host call=host number=host")
def drive_wait():
    """Sleep until the generation changes, or for some milliseconds."""
    ask, counted, _ = asks()

    def run(thread, nthreads, args):
        counted(args.block + _SLEEPING, 1)
        patience = args.block + _PATIENCE
        ask(args.call, args.number, args.block + _GENERATION, WAIT_OWN, thread, patience)
        counted(args.block + _SLEEPING, -1)

    return run


@kernel("drive_wake", "block=host call=host number=host")
def drive_wake():
    """Wake the sleeping threads, after the generation has changed."""
    ask, _, count_after = asks()

    def run(thread, nthreads, args):
        if count_after(args.block + _SLEEPING) > 0:
            ask(args.call, args.number, args.block + _GENERATION, WAKE_OWN, _ALL, 0)

    return run
