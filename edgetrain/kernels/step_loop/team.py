"""Threads that run tapes together and stay out of Python between them. `drive_lead` is called like
`run_tape` and brings in the other threads; each of those stays in `drive_serve` until the end.

Tapes follow each other within microseconds, and waking a thread takes longer than many of them run.
So a worker spins for a while before it sleeps. For a long tape (`patient`), the caller waits for
all workers. A short tape runs with the workers only if all answer at once. If one sleeps, or the
system has given its processor to another program, the caller's thread runs the tape alone, and
wakes sleepers for the next one.

Whether workers pay for short tapes depends on the distance between processors, which is unknown. So
in each cycle of CYCLE runs of short tapes, the first ones are timed, TRIES alone and TRIES
together. The rest run together if that takes at least an eighth off the time of all tapes seen both
ways. They all run the same way, because a tape reads what the one before left in a processor's
caches. If workers never answer, tapes run alone. Only for 64-bit Linux, like sleeping workers
(waiting.py).
"""

from ..registry import kernel
from ..tapes import tape
from .waiting import WAIT_OWN, WAKE_OWN, asks

IDLE_SPIN = 1_000_000  # iterations, some tenths of a millisecond
CALLED = 1024  # iterations in which a spinning worker must answer, half a microsecond
CYCLE, TRIES = 2048, 16
MOST_MISSED = 64  # failed attempts per cycle to run together
# Words of the tapes' memory. For a cycle: runs, runs that workers missed, whether the rest run
# together. Then TIMES for each tape, the least nanoseconds in the cycle.
RUNS, MISSED, CHOSEN, TAPES = range(tape.MEMO_WORDS)
ALONE, TOGETHER = range(tape.TIMES)
_NEVER = 2**62
_MONOTONIC = 1  # of the system's clocks
_ALL = 2**31 - 1


def _words():
    """(look, tell): load and store int32 words of the block that threads share, by number."""
    from ..language.calls import load_shared, store_shared
    from ..language.inlining import inline

    load, store = load_shared("acquire"), store_shared("release")

    @inline
    def look(block, number):
        return load(block + 8 * number)

    @inline
    def tell(block, number, value):
        store(block + 8 * number, value)

    return look, tell


def _memory():
    """(tries, remember): how to run a short tape next, and recording how long it took."""
    from ..language.inlining import inline
    from ..language.prim import ld_i64, st_i64

    @inline
    def times_of(memo, number):
        return memo + 8 * (tape.MEMO_WORDS + tape.TIMES * number)

    @inline
    def forget(memo):
        st_i64(memo, MISSED, 0)
        for number in range(ld_i64(memo, TAPES)):
            st_i64(times_of(memo, number), ALONE, _NEVER)
            st_i64(times_of(memo, number), TOGETHER, _NEVER)

    @inline
    def gained(memo):
        """Nanoseconds that tapes gain with workers, beyond an eighth."""
        total = 0
        for number in range(ld_i64(memo, TAPES)):
            alone = ld_i64(times_of(memo, number), ALONE)
            together = ld_i64(times_of(memo, number), TOGETHER)
            if alone < _NEVER and together < _NEVER:
                total += alone - (alone >> 3) - together
        return total

    @inline
    def tries(memo):
        """(whether to run with workers, whether to time the run)."""
        runs = ld_i64(memo, RUNS)
        if runs == 0:
            forget(memo)
        if runs >= TRIES and runs < 2 * TRIES:
            return True, True
        st_i64(memo, RUNS, runs + 1 if runs + 1 < CYCLE else 0)
        return runs >= TRIES and ld_i64(memo, CHOSEN) != 0, runs < TRIES

    @inline
    def remember(memo, number, asked, together, nanoseconds):
        times, word = times_of(memo, number), TOGETHER if together else ALONE
        st_i64(times, word, min(ld_i64(times, word), nanoseconds))
        if together:
            st_i64(memo, RUNS, ld_i64(memo, RUNS) + 1)
        elif asked:
            missed = ld_i64(memo, MISSED) + 1
            st_i64(memo, MISSED, missed)
            if missed >= MOST_MISSED:
                st_i64(memo, RUNS, 2 * TRIES)
        if asked:
            st_i64(memo, CHOSEN, 1 if gained(memo) > 0 else 0)

    return tries, remember


@kernel(
    "drive_lead",
    "base=host code=host end=host table=host barrier=host threads=host "
    "patient=host memo=host tape=host",
)
def drive_lead():
    """Run a tape, with the other workers of `barrier` if `threads` is more than one.

    If `patient` is not 0, waits for them. Otherwise they join only if all answer at once, and
    `memo` records whether that was faster, also for the tape with this number.
    """
    from ..language.calls import call_entry
    from ..language.inlining import inline
    from ..language.prim import ld_i64, st_i64

    ask, counted, count_after = asks()
    look, tell = _words()
    tries, remember = _memory()
    number, idle, entry, given = tape.JOB, tape.IDLE, tape.ENTRY, tape.JOB_OPERANDS
    there, decided, begun, system = tape.THERE, tape.DECIDED, tape.BEGUN, tape.OPERANDS + 1
    clock, time = tape.CLOCK, tape.TIME

    @inline
    def awaken(block):
        if count_after(block + 8 * idle) > 0:
            to, call = ld_i64(block, system), ld_i64(block, system + 1)
            ask(to, call, block + 8 * number, WAKE_OWN, _ALL, 0)
            return True
        return False

    @inline
    def next_job(block):
        job = look(block, number) + 1
        return job if job < 2**31 else -(2**31)  # wraps around as in the word

    @inline
    def called(block, threads):
        """Call the workers; whether they have begun a short tape."""
        if awaken(block):
            return False
        job, turns, thread = next_job(block), 0, 1
        counted(block + 8 * number, 1)
        while thread < threads and turns < CALLED:
            thread += 1 if look(block, there + thread) == job else 0
            turns += 1
        if thread == threads:
            tell(block, begun, job)
        tell(block, decided, job)
        return thread == threads

    @inline
    def now(block):
        call_entry(ld_i64(block, clock), _MONOTONIC, block + 8 * time, 0, 0)
        return ld_i64(block, time) * 1_000_000_000 + ld_i64(block, time + 1)

    def run(thread, nthreads, args):
        block, threads, asked, timed, since = args.barrier, args.threads, False, False, 0
        st_i64(block, given, args.base)
        st_i64(block, given + 1, args.code)
        st_i64(block, given + 2, args.end)
        st_i64(block, given + 3, args.table)
        st_i64(block, given + 4, block)
        if threads > 1 and args.patient != 0:
            job = next_job(block)
            tell(block, begun, job)
            tell(block, decided, job)
            counted(block + 8 * number, 1)
            awaken(block)
        elif threads > 1:
            asked, timed = tries(args.memo)
            since = now(block) if timed else 0
            if not (asked and called(block, threads)):
                threads = 1
        call_entry(ld_i64(block, entry), 0, block + 8 * given, 0, threads)
        if timed:
            remember(args.memo, args.tape, asked, threads > 1, now(block) - since)

    return run


@kernel("drive_serve", "barrier=host")
def drive_serve():
    """Run the tapes that `drive_lead` gets, as thread `thread` of `nthreads`, until OVER."""
    from ..language.calls import call_entry
    from ..language.prim import ld_i64

    ask, counted, _ = asks()
    look, tell = _words()
    number, idle, over, give_way = tape.JOB, tape.IDLE, tape.OVER, tape.YIELD
    entry, given, system = tape.ENTRY, tape.JOB_OPERANDS, tape.OPERANDS + 1
    there, decided, begun, last = tape.THERE, tape.DECIDED, tape.BEGUN, tape.YIELD_EVERY - 1

    def run(thread, nthreads, args):
        block, seen, turns = args.barrier, 0, 0
        while True:
            while look(block, number) == seen:
                turns += 1
                if turns & last == 0:
                    call_entry(ld_i64(block, give_way), 0, 0, thread, nthreads)
                if turns > IDLE_SPIN:
                    counted(block + 8 * idle, 1)
                    to, call = ld_i64(block, system), ld_i64(block, system + 1)
                    ask(to, call, block + 8 * number, WAIT_OWN, seen, 0)
                    counted(block + 8 * idle, -1)
                    turns = 0
            seen = look(block, number)
            if ld_i64(block, over) != 0:
                return
            tell(block, there + thread, seen)
            turns = 0
            # numbers wrap around after 2**32: a later one has a positive distance
            while (look(block, decided) - seen) & 0x80000000 != 0:
                turns += 1
                if turns & last == 0:
                    call_entry(ld_i64(block, give_way), 0, 0, thread, nthreads)
            turns = 0
            if look(block, begun) == seen:
                call_entry(ld_i64(block, entry), 0, block + 8 * given, thread, nthreads)
            else:
                turns = IDLE_SPIN  # no processor of its own: sleep, a woken thread may get one

    return run


@kernel("drive_part", "barrier=host")
def drive_part():
    """Make the workers leave `drive_serve`."""
    from ..language.prim import ld_i64, st_i64

    ask, counted, _ = asks()
    number, over, system = tape.JOB, tape.OVER, tape.OPERANDS + 1

    def run(thread, nthreads, args):
        st_i64(args.barrier, over, 1)
        counted(args.barrier + 8 * number, 1)
        to, call = ld_i64(args.barrier, system), ld_i64(args.barrier, system + 1)
        ask(to, call, args.barrier + 8 * number, WAKE_OWN, _ALL, 0)

    return run
