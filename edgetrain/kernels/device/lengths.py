"""A bundle of several lengths: selects a step's tapes and samples, in Python's order, and pads.

Weights and state have one place, whatever the length. Everything that differs (tapes, staged
values, sizes, constants) is in a table for each length (layout.py).
"""

import numpy as np

from .. import control
from ..language.calls import call_entry, load_pointer
from ..language.divisor import divisor, store_mean
from ..language.inlining import inline
from ..language.prim import (
    FP32,
    div,
    ld_f64,
    ld_i32,
    ld_i64,
    ld_u8,
    mod,
    st_f64,
    st_i32,
    st_i64,
    st_u8,
    to_real,
)
from ..registry import kernel
from ..step_loop import layout as plans
from ..step_loop.filling import call_fill
from ..step_loop.floats import nbytes_of
from ..step_loop.order import LENGTHS as LENGTH_ORDER
from ..step_loop.order import columns_of, sample_at
from . import layout
from .opening import place_words
from .running import in_minibatch

PLAN, BUFFER, BUSY, REFUSED = layout.PLAN, layout.BUFFER, layout.BUSY, layout.REFUSED
WHOLE, EVALUATED = layout.WHOLE, layout.EVALUATED
INITS, INIT_COUNT = layout.INITS, layout.INIT_COUNT
EVALUATE, MEASURED = layout.EVALUATE, layout.MEASURED
USED_ROM, USED = layout.USED_ROM, layout.USED
CALLER, CALLER_USER, FIRST = layout.CALLER, layout.CALLER_USER, layout.FIRST
PLACE, COUNT, EPOCH = layout.PLACE, layout.COUNT, layout.EPOCH
SUMS, COUNTS = layout.SUMS, layout.COUNTS
ROW_LENGTH, ROW_MINIBATCH, ROW_ROM = layout.ROW_LENGTH, layout.ROW_MINIBATCH, layout.ROW_ROM
ROW_CONSTANTS, ROW_NBYTES = layout.ROW_CONSTANTS, 8 * layout.ROW_WORDS
ROW_WEIGHTS, ROW_WEIGHTS_NBYTES = layout.ROW_WEIGHTS, layout.ROW_WEIGHTS_NBYTES
ROW_EACH = layout.ROW_EACH
LENGTHS, CTL, PHASE, STATUS = plans.LENGTHS, plans.CTL, plans.PHASE, plans.STATUS
SOURCE = plans.SOURCE
FROM_SAMPLES = plans.FROM_SAMPLES
FILL = plans.FILL
FILL_USER = plans.FILL_USER
SAMPLES, EVAL_SAMPLES = plans.SAMPLES, plans.EVAL_SAMPLES
MINIBATCH, MICROBATCH, ROW = plans.MINIBATCH, plans.MICROBATCH, plans.ROW
FIELDS, TRAIN_FIELDS, EVAL_FIELDS = plans.FIELDS, plans.TRAIN_FIELDS, plans.EVAL_FIELDS
FIELD_NBYTES, SIZE, RAW_TYPE = 8 * plans.FIELD_WORDS, plans.SIZE, plans.RAW_TYPE
IGNORED, CHECK_IGNORED = plans.IGNORED, plans.CHECK_IGNORED
EVAL_SPLIT, DONE = plans.EVAL_SPLIT, plans.DONE
I32, I64 = plans.TYPES.index("i32"), plans.TYPES.index("i64")
STEP, SEED, NUMBER = control.STEP, control.SEED, control.MICROBATCH
LOSS_SUM = control.LOSS_SUM
TARGETS = control.TARGETS
CORRECT = control.CORRECT
WEIGHT = control.WEIGHT
TERMS, TERM_WORDS = control.TERMS, control.TERM_WORDS
_ld_f32 = FP32.ld


@inline
def _copied(to, source, nbytes):
    for e in range(nbytes):
        st_u8(to, e, ld_u8(source, e))


@inline
def _enter(memory, table, number):
    """Switch to the tapes of a length. Weights of several losses are a constant that a run may
    change, so they are carried over."""
    block, row = ld_i64(ld_i64(memory, PLAN), LENGTHS), table + ROW_NBYTES * number
    rom, kept = ld_i64(row, ROW_ROM), memory + 8 * BUFFER
    if rom != ld_i64(block, USED_ROM):
        before, nbytes = table + ROW_NBYTES * ld_i64(block, USED), ld_i64(row, ROW_WEIGHTS_NBYTES)
        _copied(kept, memory + ld_i64(before, ROW_WEIGHTS), nbytes)
        inits, source = ld_i64(rom, INITS), ld_i64(row, ROW_CONSTANTS)
        for i in range(ld_i64(rom, INIT_COUNT)):
            address = memory + ld_i32(inits, 3 * i + 1)
            _copied(address, source + ld_i32(inits, 3 * i), ld_i32(inits, 3 * i + 2))
        _copied(memory + ld_i64(row, ROW_WEIGHTS), kept, nbytes)
        place_words(memory, rom)
        st_i64(block, USED_ROM, rom)
        st_i64(block, USED, number)


@kernel("drive_length", "memory=host table=host count=host length=host out:w:i64[1]")
def drive_length():
    """Switch to the smallest length that fits `length` positions; out: 0, REFUSED or BUSY."""

    def run(thread, nthreads, args):
        if thread != 0:
            return
        number = 0
        while (
            number < args.count
            and ld_i64(args.table + ROW_NBYTES * number, ROW_LENGTH) < args.length
        ):
            number += 1
        status = 0
        if ld_i64(ld_i64(args.memory, PLAN), PHASE) != 0:
            status = BUSY
        elif args.length < 1 or number == args.count:
            status = REFUSED
        else:
            _enter(args.memory, args.table, number)
        st_i64(args.out, 0, status)

    return run


@kernel(
    "drive_length_data",
    "memory=host count=host filler=host fill=host user=host train=host held=host out:w:i64[1]",
)
def drive_length_data():
    """Set the samples by length: `train` and `held` are addresses of int64 [count], or 0 for none.

    filler: address of a function that calls `drive_length_fill`. out: 0, REFUSED or BUSY.
    """

    @inline
    def samples(counts, i):
        if counts == 0:
            return 0
        return ld_i64(counts, i)

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan, good = ld_i64(args.memory, PLAN), args.fill != 0
        block = ld_i64(plan, LENGTHS)
        for i in range(args.count):
            good = good and samples(args.train, i) >= 0 and samples(args.held, i) >= 0
        status = 0 if good else REFUSED
        if in_minibatch(plan):
            status = BUSY
        if status == 0:
            for i in range(args.count):
                st_i64(block, COUNTS + i, samples(args.train, i))
                st_i64(block, COUNTS + args.count + i, samples(args.held, i))
            st_i64(block, CALLER, args.fill)
            st_i64(block, CALLER_USER, args.user)
            st_i64(plan, SOURCE, FROM_SAMPLES)
            st_i64(plan, FILL, args.filler)
            st_i64(plan, FILL_USER, args.memory)
        st_i64(args.out, 0, status)

    return run


@kernel("drive_length_next", "memory=host table=host count=host out:w:i64[1]")
def drive_length_next():
    """Select tapes and samples of the next minibatch, if one begins; out: 0, or REFUSED if no
    length has enough samples for one.

    As in data/order/by_length.py, only seed and epoch decide which length comes when.
    """

    @inline
    def of(block, table, count, seed, epoch, place_in_epoch, steps, columns):
        """The number of the length of step `place_in_epoch` of an epoch."""
        place, number = sample_at(seed, epoch, place_in_epoch, steps, columns), 0
        for i in range(count):
            minibatches = div(
                ld_i64(block, COUNTS + i), ld_i64(table + ROW_NBYTES * i, ROW_MINIBATCH)
            )
            if place >= minibatches and number == i:
                place, number = place - minibatches, i + 1
        return number

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan = ld_i64(args.memory, PLAN)
        ctl, block = ld_i64(plan, CTL), ld_i64(plan, LENGTHS)
        st_i64(args.out, 0, 0)
        if ld_i64(plan, PHASE) != 0:
            return
        steps, first, before = 0, 0, 0
        for i in range(args.count):
            minibatch = ld_i64(args.table + ROW_NBYTES * i, ROW_MINIBATCH)
            steps += div(ld_i64(block, COUNTS + i), minibatch)
        if steps == 0:
            st_i64(args.out, 0, REFUSED)
            return
        epoch, position = div(ld_i64(ctl, STEP), steps), mod(ld_i64(ctl, STEP), steps)
        seed, columns = np.uint64(ld_i64(ctl, SEED)) + LENGTH_ORDER, columns_of(steps)
        number = 0
        for back in range(position + 1):
            chosen = of(block, args.table, args.count, seed, epoch, position - back, steps, columns)
            if back == 0:
                number = chosen
            elif chosen == number:
                before += 1
        for i in range(number):
            first += ld_i64(block, COUNTS + i)
        _enter(args.memory, args.table, number)
        st_i64(block, FIRST, first)
        st_i64(block, PLACE, before * ld_i64(plan, MINIBATCH))
        st_i64(block, COUNT, ld_i64(block, COUNTS + number))
        st_i64(block, EPOCH, epoch)
        st_i64(plan, SAMPLES, ld_i64(plan, MINIBATCH))  # `drive_length_fill` decides their order

    return run


@kernel("drive_length_fill", "memory=host split=host sample=host x=host y=host out:w:i64[1]")
def drive_length_fill():
    """Have the caller write a sample over padding (0, or what losses ignore); out: its status.

    Samples of a split are numbered across all lengths, shortest first.
    """

    @inline
    def padded(field, to):
        kind, size = ld_i64(field, RAW_TYPE), ld_i64(field, SIZE)
        for e in range(size * nbytes_of(kind)):
            st_u8(to, e, 0)
        if ld_i64(field, CHECK_IGNORED) != 0:
            for e in range(size):
                if kind == I64:
                    st_i64(to, e, ld_i64(field, IGNORED))
                elif kind == I32:
                    st_i32(to, e, ld_i64(field, IGNORED))

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan = ld_i64(args.memory, PLAN)
        ctl, block, count = ld_i64(plan, CTL), ld_i64(plan, LENGTHS), ld_i64(plan, FIELDS)
        fields = ld_i64(plan, EVAL_FIELDS if args.split == EVAL_SPLIT else TRAIN_FIELDS)
        for i in range(count - 1):
            padded(fields + i * FIELD_NBYTES, args.x if count == 2 else load_pointer(args.x, i))
        padded(fields + (count - 1) * FIELD_NBYTES, args.y)
        sample = args.sample
        if args.split != EVAL_SPLIT:
            place = ld_i64(ctl, NUMBER) * ld_i64(plan, MICROBATCH) + ld_i64(plan, ROW)
            place, n = place + ld_i64(block, PLACE), ld_i64(block, COUNT)
            seed, epoch = np.uint64(ld_i64(ctl, SEED)), ld_i64(block, EPOCH)
            sample = sample_at(seed, epoch, place, n, columns_of(n))
        sample += ld_i64(block, FIRST)
        fill, user = ld_i64(block, CALLER), ld_i64(block, CALLER_USER)
        st_i64(args.out, 0, call_fill(fill, user, args.split, sample, args.x, args.y))

    return run


@inline
def _sum_up(to, loss, targets, correct, weight, each):
    """Add the counts of a loss; `each` of its targets count as one."""
    st_f64(to, 0, ld_f64(to, 0) + loss / to_real(each))
    st_i64(to, 1, ld_i64(to, 1) + div(targets, each))
    st_i64(to, 2, ld_i64(to, 2) + correct)
    st_f64(to, 3, ld_f64(to, 3) + weight / to_real(each))


@kernel(
    "drive_length_measure",
    "memory=host table=host count=host losses=host loss=host accuracy=host out:w:i64[1]",
    revision="3",
)
def drive_length_measure():
    """Like `drive_measure`, over the samples of all lengths; `losses`: their number, 0 if one."""

    @inline
    def added(ctl, sums, losses, row):
        """Add the counts of one length to the sums; row: of the table of lengths."""
        alone = ld_i64(row, ROW_EACH) if losses == 0 else 1
        _sum_up(
            sums, ld_f64(ctl, LOSS_SUM), ld_i64(ctl, TARGETS), ld_i64(ctl, CORRECT),
            ld_f64(ctl, WEIGHT), alone,
        )  # fmt: skip
        for i in range(losses):
            source, to = ctl + 8 * (TERMS + TERM_WORDS * i), sums + 8 * TERM_WORDS * (i + 1)
            _sum_up(
                to, ld_f64(source, 0), ld_i64(source, 1), ld_i64(source, 2), ld_f64(source, 3),
                ld_i64(row, ROW_EACH + i),
            )  # fmt: skip

    @inline
    def counted(ctl, sums, losses, weights):
        """Set the control block as after one evaluation of all samples."""
        st_f64(ctl, LOSS_SUM, ld_f64(sums, 0))
        st_i64(ctl, TARGETS, ld_i64(sums, 1))
        st_i64(ctl, CORRECT, ld_i64(sums, 2))
        st_f64(ctl, WEIGHT, ld_f64(sums, 3))
        total = 0.0
        for i in range(losses):
            to, source = ctl + 8 * (TERMS + TERM_WORDS * i), sums + 8 * TERM_WORDS * (i + 1)
            _copied(to, source, 8 * TERM_WORDS)
            each = ld_f64(source, 3)
            if each == 0.0:
                each = to_real(ld_i64(source, 1))
            if each != 0.0:
                total += np.float64(_ld_f32(weights, i)) * (ld_f64(source, 0) / each)
        if losses > 0:
            st_f64(ctl, LOSS_SUM, to_real(ld_i64(sums, 1)) * total)

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan = ld_i64(args.memory, PLAN)
        ctl, block = ld_i64(plan, CTL), ld_i64(plan, LENGTHS)
        sums, status, some, first = block + 8 * SUMS, DONE, 0, 0
        if ld_i64(plan, PHASE) != 0:
            st_i64(args.out, 0, BUSY)
            return
        for i in range(TERM_WORDS * (args.losses + 1)):
            st_i64(sums, i, 0)
        for i in range(args.count):
            held = ld_i64(block, COUNTS + args.count + i)
            measured = held - held % ld_i64(ld_i64(args.table + ROW_NBYTES * i, ROW_ROM), MEASURED)
            if measured > 0 and status == DONE and ld_i64(plan, SOURCE) == FROM_SAMPLES:
                _enter(args.memory, args.table, i)
                st_i64(block, FIRST, first)
                st_i64(plan, EVAL_SAMPLES, measured)
                call_entry(ld_i64(ld_i64(block, USED_ROM), EVALUATE), 0, args.memory, 0, 1)
                st_i64(plan, EVAL_SAMPLES, 0)
                status, some = ld_i64(plan, STATUS), 1
                added(ctl, sums, args.losses, args.table + ROW_NBYTES * i)
            first += held
        if some == 0:
            st_i64(args.out, 0, REFUSED)
            return
        row = args.table + ROW_NBYTES * ld_i64(block, USED)
        counted(ctl, sums, args.losses, args.memory + ld_i64(row, ROW_WEIGHTS))
        targets = ld_i64(ctl, TARGETS)
        store_mean(args.loss, 0, ld_f64(ctl, LOSS_SUM), divisor(ctl), targets)
        store_mean(args.accuracy, 0, to_real(ld_i64(ctl, CORRECT)), to_real(targets), targets)
        st_i64(args.memory, WHOLE, EVALUATED)
        st_i64(args.out, 0, status)

    return run
