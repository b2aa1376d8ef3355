"""The learning rate of a bundle: the schedule's numbers in the control block, which stored states
include, and the one instruction that computes the rate."""

from .. import control
from ..language.inlining import inline
from ..language.prim import div, ld_f64, ld_i64, st_f64, st_i64
from ..registry import kernel
from ..step_loop import layout as plans
from ..step_loop.rates import power, set_rate
from . import layout

PLAN, RATE_CODE, REFUSED, CTL = layout.PLAN, layout.RATE_CODE, layout.REFUSED, plans.CTL
BASE_LR, TOTAL_STEPS, WARMUP = control.BASE_LR, control.TOTAL_STEPS, control.WARMUP
RATE, SEEN, STEP, LR = control.RATE, control.SEEN, control.STEP, control.LR
KIND, SIZE = RATE + layout.SAVED_RATE, RATE + layout.SAVED_RATE + 1
PATIENCE, COOLDOWN = RATE + layout.SAVED_WINDOWS, RATE + layout.SAVED_WINDOWS + 1
DROPS, LONG = layout.DROPS, layout.LONG
# The first schedules are checked here; the others' numbers have bounds in ROM.
CONSTANT, STEPS, COSINE, EXPONENTIAL, INVERSE, MULTI, CYCLE, PLATEAU = range(8)
FIRST = layout.FIRST_SCHEDULES
TABLE, COUNT, ROW = layout.SCHEDULES, layout.SCHEDULE_COUNT, layout.SCHEDULE_WORDS
NEEDS_TOTAL = layout.NEEDS_TOTAL
WHOLE_BOUNDS, REAL_BOUNDS = layout.WHOLE_BOUNDS, layout.REAL_BOUNDS
LARGEST = 3.4e38  # as in units
MOST_STEPS = 2**31 - 1  # what `to_real` converts

# Words of the caller's struct.
GIVEN_KIND, GIVEN_TOTAL = layout.GIVEN_KIND, layout.GIVEN_TOTAL
GIVEN_WARMUP, GIVEN_SIZE = layout.GIVEN_WARMUP, layout.GIVEN_SIZE
GIVEN_PATIENCE, GIVEN_COOLDOWN = layout.GIVEN_PATIENCE, layout.GIVEN_COOLDOWN
GIVEN_DROPS = layout.GIVEN_DROPS
GIVEN_LR, GIVEN_NUMBERS, GIVEN_CYCLE = layout.GIVEN_LR, layout.GIVEN_NUMBERS, layout.GIVEN_CYCLE


@kernel("drive_drops", "ctl:m:i64[64] count", check="count >= 0; 9 > count")
def drive_drops():
    """Set LR with factor 1, then multiply it by RATE for each of the `count` steps at SEEN that has
    been reached, except in warm-up. Equivalent to `rate_constant` and a `rate_drop` for each."""

    def run(thread, nthreads, args):
        if thread != 0:
            return
        set_rate(args.ctl, 1.0)
        step = ld_i64(args.ctl, STEP)
        for i in range(args.count):
            if step >= ld_i64(args.ctl, SEEN + i) and step >= ld_i64(args.ctl, WARMUP):
                st_f64(args.ctl, LR, ld_f64(args.ctl, LR) * ld_f64(args.ctl, RATE))

    return run


@inline
def restore_rate(memory, rom, ctl):
    """Set up the instruction that sets the learning rate, from the control block."""
    kind, size = ld_i64(ctl, KIND), ld_i64(ctl, SIZE)
    if kind < 0 or kind >= ld_i64(rom, COUNT):
        kind = CONSTANT
    if kind == INVERSE and size == 0:
        size = ld_i64(ctl, WARMUP)
        if size == 0:
            size = LONG
    if kind < FIRST:
        size = max(0 if kind == MULTI else 1, size)
    st_i64(memory, RATE_CODE, kind)
    st_i64(memory, RATE_CODE + 3, min(DROPS, size) if kind == MULTI else size)
    st_i64(memory, RATE_CODE + 4, ld_i64(ctl, PATIENCE))
    st_i64(memory, RATE_CODE + 5, ld_i64(ctl, COOLDOWN))


@inline
def _whole_fit(rates, kind, total, size):
    """Whether a schedule's integers are valid."""
    warmup = ld_i64(rates, GIVEN_WARMUP)
    for word in range(GIVEN_KIND, GIVEN_DROPS):
        if ld_i64(rates, word) < 0:
            return False
    if total > MOST_STEPS or warmup > MOST_STEPS:
        return False
    if size < 1 and kind in (STEPS, MULTI, PLATEAU):
        return False
    if kind == CYCLE and warmup != 0:
        return False
    return total > warmup or kind not in (COSINE, CYCLE)


@inline
def _reals_fit(rates, kind, numbers):
    """Whether the base rate and the three numbers at `numbers` are valid."""
    good = True
    for i in range(4):
        value = ld_f64(rates, GIVEN_LR if i == 0 else numbers + i - 1)
        share = (kind == CYCLE and i > 0) or (kind == PLATEAU and (i == 1 or i == 2))
        good = good and value >= 0.0 and value <= (1.0 if share else LARGEST)
    return good


@inline
def _drops(rates, kind, last, size):
    """How often gamma is applied up to step `last`; -1 if drops don't increase, or are too many."""
    if kind == STEPS:
        return div(last, size)
    if kind == EXPONENTIAL:
        return last
    done, before = 0, 0
    if kind == MULTI:
        if size > DROPS:
            return -1
        for i in range(size):
            drop = ld_i64(rates, GIVEN_DROPS + i)
            if drop <= before:
                return -1
            done, before = done + (1 if drop <= last else 0), drop
    return done


@inline
def _bounds_hold(rates, row):
    """Whether a schedule's numbers are within the bounds in its row of ROM."""
    total, warmup = ld_i64(rates, GIVEN_TOTAL), ld_i64(rates, GIVEN_WARMUP)
    rate = ld_f64(rates, GIVEN_LR)
    good = total >= 0 and warmup >= 0 and rate >= 0.0 and rate <= LARGEST
    good = good and total <= MOST_STEPS and warmup <= MOST_STEPS
    good = good and (ld_i64(row, NEEDS_TOTAL) == 0 or total > warmup)
    for i in range(3):
        index, number = WHOLE_BOUNDS + 2 * i, ld_i64(rates, GIVEN_SIZE + i)
        good = good and number >= ld_i64(row, index) and number <= ld_i64(row, index + 1)
        index, real = REAL_BOUNDS + 2 * i, ld_f64(rates, GIVEN_NUMBERS + i)
        good = good and real >= ld_f64(row, index) and real <= ld_f64(row, index + 1)
    return good


@kernel("drive_schedule", "memory=host rom=host rates=host out:w:i64[1]", revision="3")
def drive_schedule():
    """Set the schedule described by the struct at `rates` (the words above); out: 0 or REFUSED."""

    @inline
    def suits(rom, rates, kind, total, size, numbers):
        if kind < 0 or kind >= ld_i64(rom, COUNT):
            return False
        if kind >= FIRST:
            return _bounds_hold(rates, ld_i64(rom, TABLE) + 8 * ROW * (kind - FIRST))
        if not _whole_fit(rates, kind, total, size) or not _reals_fit(rates, kind, numbers):
            return False
        last, gamma = max(0, total - 1), ld_f64(rates, GIVEN_NUMBERS)
        drops = _drops(rates, kind, last, size)
        if gamma <= 1.0 or last < ld_i64(rates, GIVEN_WARMUP):
            return drops >= 0
        return drops >= 0 and ld_f64(rates, GIVEN_LR) * power(gamma, drops) <= LARGEST

    def run(thread, nthreads, args):
        if thread != 0:
            return
        ctl = ld_i64(ld_i64(args.memory, PLAN), CTL)
        kind, size = ld_i64(args.rates, GIVEN_KIND), ld_i64(args.rates, GIVEN_SIZE)
        total = ld_i64(args.rates, GIVEN_TOTAL)
        numbers = GIVEN_CYCLE if kind == CYCLE else GIVEN_NUMBERS
        if not suits(args.rom, args.rates, kind, total, size, numbers):
            st_i64(args.out, 0, REFUSED)
            return
        for i in range(3):
            st_i64(ctl, RATE + i, ld_i64(args.rates, numbers + i))
        for i in range(DROPS):
            st_i64(ctl, SEEN + i, ld_i64(args.rates, GIVEN_DROPS + i) if kind == MULTI else 0)
        st_i64(ctl, BASE_LR, ld_i64(args.rates, GIVEN_LR))
        st_i64(ctl, TOTAL_STEPS, total)
        st_i64(ctl, WARMUP, ld_i64(args.rates, GIVEN_WARMUP))
        st_i64(ctl, KIND, kind)
        st_i64(ctl, SIZE, size)
        st_i64(ctl, PATIENCE, ld_i64(args.rates, GIVEN_PATIENCE))
        st_i64(ctl, COOLDOWN, ld_i64(args.rates, GIVEN_COOLDOWN))
        restore_rate(args.memory, args.rom, ctl)
        st_i64(args.out, 0, 0)

    return run
