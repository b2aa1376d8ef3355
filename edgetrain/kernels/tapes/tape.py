"""The interpreter: runs a tape's instructions over the arena, with n threads in step.

An instruction is `[kernel, words, operand words ...]` in int64. Every thread goes through the whole
tape, each kernel splits its work by thread, and a barrier separates instructions: a bounded spin,
then a call that yields to the system or sleeps, since unpinned threads may share one core.

Waking a thread takes longer than most instructions, so a thread spins for a millisecond before it
sleeps. If it had to sleep, other programs need the processors, and spins start again at SPIN
iterations. A spin yields every YIELD_EVERY iterations. If the system has put two threads on one
processor, a thread that only spins takes time from the thread it waits for, and a thread that
sleeps hides from the system that one of the two could move to another processor.
"""

from ..registry import kernel

# Iterations of a spin: least, some ten microseconds, and most. Each barrier adds a GROWTH-th.
SPIN, MOST_SPIN, GROWTH = 25_000, 4_000_000, 32
# Iterations, a power of two, after which a spin yields; a microsecond.
YIELD_EVERY = 2048
# Words of the barrier block; words that are often written have their own cache lines. WAIT: address
# of a `void yield(void)` or of `drive_wait`; WAKE: of `drive_wake` or 0; OPERANDS: for both;
# PATIENCE: seconds and nanoseconds after which a sleeper looks again; LIMIT: iterations after which
# a thread sleeps, between SPIN and MOST.
BARRIER_WORDS, ARRIVALS, GENERATION = 48, 0, 8
WAIT, WAKE, OPERANDS, SLEEPING, PATIENCE = 16, 17, 18, 21, 22
LIMIT, MOST = 24, 25
YIELD = 26  # address of a `void yield(void)` for spins, or 0
# For a team (step_loop/team.py): number of the current or last tape, number of workers that sleep
# until the next one, whether the team is to end, entry of `run_tape`, its operands.
JOB, IDLE, OVER, ENTRY, JOB_OPERANDS = 32, 40, 41, 42, 43
# After the barrier's words, numbers of tapes: the last one for which it is decided whether workers
# run it too, the last one that they run; from THERE on, for each thread, the last one it has seen.
DECIDED, BEGUN, THERE = 48, 49, 64
# Address of `clock_gettime`, seconds and nanoseconds that it returns.
CLOCK, TIME, TEAM_WORDS = 56, 57, 128
MEMO_WORDS, TIMES = 4, 2  # outside of the block: words for all tapes, then for each tape


@kernel("run_tape", "base=host code=host end=host table=host barrier=host")
def run_tape():
    """Run the instructions from address `code` up to address `end`; `table`: kernels' addresses.

    `base` is the arena's address once more, as an integer: kernels get it unchanged.
    """
    from ..language.calls import add_shared, call_entry, load_shared, store_shared
    from ..language.prim import div, ld_i64, st_i64

    arrive, load_generation = add_shared("acq_rel"), load_shared("acquire")
    forget, release, word = store_shared("monotonic"), store_shared("release"), 8 * GENERATION
    least, growth, limit, most = SPIN, GROWTH, LIMIT, MOST
    wait, wake, operands = WAIT, WAKE, 8 * OPERANDS
    give_way, last = YIELD, YIELD_EVERY - 1

    def run(thread, nthreads, args):
        code = args.code
        while code < args.end:
            call_entry(ld_i64(args.table, ld_i64(code, 0)), args.base, code + 16, thread, nthreads)
            code += 16 + 8 * ld_i64(code, 1)
            if nthreads > 1:
                generation = load_generation(args.barrier + word)
                if arrive(args.barrier, 1) == nthreads - 1:
                    patience = ld_i64(args.barrier, limit)
                    if patience < ld_i64(args.barrier, most):
                        st_i64(args.barrier, limit, max(patience, least) + div(patience, growth))
                    forget(args.barrier, 0)
                    release(args.barrier + word, generation + 1)
                    if ld_i64(args.barrier, wake) != 0:
                        to = ld_i64(args.barrier, wake)
                        call_entry(to, args.barrier, args.barrier + operands, generation, 0)
                else:
                    turns, patience = 0, max(least, ld_i64(args.barrier, limit))
                    while load_generation(args.barrier + word) == generation:
                        turns += 1
                        if turns & last == 0 and ld_i64(args.barrier, give_way) != 0:
                            to = ld_i64(args.barrier, give_way)
                            call_entry(to, args.barrier, args.barrier + operands, generation, 0)
                        if turns > patience:
                            st_i64(args.barrier, limit, least)
                            to = ld_i64(args.barrier, wait)
                            call_entry(to, args.barrier, args.barrier + operands, generation, 0)

    return run
