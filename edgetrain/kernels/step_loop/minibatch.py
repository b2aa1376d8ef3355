"""One minibatch: fill and run every microbatch, update once, rewire when due; or a piece of it.

All of a step's control is here and in the instructions of its tapes. A callback that does not
return 0 discards the minibatch. Then gradients are zeroed, and nothing else has changed, because
only the update writes weights, statistics and counters.
"""

from .. import control
from ..language.calls import c_function, call_entry
from ..language.divisor import divisor, store_mean
from ..language.inlining import inline
from ..language.prim import div, ld_f64, ld_i64, mod, st_f64, st_i64, st_u8, to_real
from ..registry import kernel
from . import layout
from .filling import fill_microbatch, fill_row
from .order import columns_of, sample_at

CTL, RUN_TAPE, RUN, RUN_USER = layout.CTL, layout.RUN_TAPE, layout.RUN, layout.RUN_USER
RATE, MICRO, UPDATE, REWIRE = layout.RATE, layout.MICRO, layout.UPDATE, layout.REWIRE
MINIBATCH, MICROBATCH, SAMPLES = layout.MINIBATCH, layout.MICROBATCH, layout.SAMPLES
TARGETS_PER_SAMPLE, SOURCE, INDICES = layout.TARGETS_PER_SAMPLE, layout.SOURCE, layout.INDICES
TRAIN_FIELDS, TRAIN_SPLIT = layout.TRAIN_FIELDS, layout.TRAIN_SPLIT
FROM_MICROBATCHES, STRIDES = layout.FROM_MICROBATCHES, layout.STRIDES
ZERO, ZEROS = layout.ZERO, layout.ZEROS
STATUS, PHASE, ROW, CODE, PART = layout.STATUS, layout.PHASE, layout.ROW, layout.CODE, layout.PART
PARTS, ARGUMENTS, DONE, MORE = layout.PARTS, layout.ARGUMENTS, layout.DONE, layout.MORE
STRIDE_NONE, SPLIT_NONE = layout.STRIDE_NONE, layout.SPLIT_NONE
THREADS = layout.THREADS
# Words of the control block.
COUNT = control.COUNT
TARGETS = control.TARGETS
CORRECT = control.CORRECT
LOSS_SUM = control.LOSS_SUM
NOMINAL, LAST_LOSS, SEED, STEP = control.NOMINAL, control.LAST_LOSS, control.SEED, control.STEP
NUMBER, REWIRE_DUE, WEIGHT = control.MICROBATCH, control.REWIRE_DUE, control.WEIGHT
# Phases of a minibatch; a tape's phase is the number of its word in the plan block.
BEGIN, FILLING = 0, 1
call_run = c_function("void", "void*", "void*")  # void run(void *user, void *tape)


@inline
def reset_counts(ctl, count):
    """Begin a sum over targets; `count` samples of a microbatch are valid."""
    st_i64(ctl, COUNT, count)
    st_i64(ctl, TARGETS, 0)
    st_i64(ctl, CORRECT, 0)
    st_f64(ctl, LOSS_SUM, 0.0)
    st_f64(ctl, WEIGHT, 0.0)


@inline
def keep_loss(ctl):
    """Set LAST_LOSS to the mean over the targets counted since `reset_counts`; NaN if none."""
    store_mean(ctl, LAST_LOSS, ld_f64(ctl, LOSS_SUM), divisor(ctl), ld_i64(ctl, TARGETS))


@inline
def zero_ranges(pairs, count):
    """Zero `count` ranges, given as pairs (address, bytes)."""
    for k in range(count):
        address = ld_i64(pairs, 2 * k)
        for e in range(ld_i64(pairs, 2 * k + 1)):
            st_u8(address, e, 0)


@inline
def run_whole(plan, tape):
    """Run a tape, with all workers if it is long enough."""
    operands = ld_i64(plan, tape)
    if operands != 0:
        if ld_i64(plan, RUN) != 0 and ld_i64(operands, THREADS) > 1:
            call_run(ld_i64(plan, RUN), ld_i64(plan, RUN_USER), operands)
        else:
            call_entry(ld_i64(plan, RUN_TAPE), 0, operands, 0, 1)


@inline
def _begin(plan, ctl):
    minibatch = ld_i64(plan, MINIBATCH)
    st_f64(ctl, NOMINAL, to_real(minibatch * ld_i64(plan, TARGETS_PER_SAMPLE)))
    reset_counts(ctl, ld_i64(plan, MICROBATCH))
    st_i64(ctl, NUMBER, 0)
    if ld_i64(plan, RATE) != 0:
        call_entry(ld_i64(plan, RUN_TAPE), 0, ld_i64(plan, RATE), 0, 1)
    st_i64(plan, ROW, 0)
    st_i64(plan, PHASE, FILLING)


@inline
def _sample(plan, ctl, row):
    """The sample for row `row` of the current microbatch."""
    n, minibatch = ld_i64(plan, SAMPLES), ld_i64(plan, MINIBATCH)
    each, step = div(n, minibatch), ld_i64(ctl, STEP)
    row += ld_i64(ctl, NUMBER) * ld_i64(plan, MICROBATCH)
    position = mod(step, each) * minibatch + row
    return sample_at(ld_i64(ctl, SEED), div(step, each), position, n, columns_of(n))


@inline
def _next_samples(plan, ctl):
    """Stage the next sample, or a whole microbatch at once; returns the callback's status."""
    row, count = ld_i64(plan, ROW), ld_i64(plan, MICROBATCH)
    if ld_i64(plan, SOURCE) == FROM_MICROBATCHES:
        for k in range(count):
            st_i64(ld_i64(plan, INDICES), k, _sample(plan, ctl, k))
        status = fill_microbatch(plan, TRAIN_SPLIT, count)
        row = count
    else:
        fields = ld_i64(plan, TRAIN_FIELDS)
        status = fill_row(plan, fields, TRAIN_SPLIT, _sample(plan, ctl, row), row)
        row += 1
    st_i64(plan, ROW, row)
    if row == count:
        _enter(plan, MICRO)
    return status


@inline
def _enter(plan, tape):
    st_i64(plan, PHASE, tape)
    st_i64(plan, PART, 0)
    operands = ld_i64(plan, tape)
    st_i64(plan, CODE, ld_i64(operands, 1) if operands != 0 else 0)


@inline
def _run_part(plan, tape):
    """Run one part of the tape's next instruction; returns 1 at the end of the tape.

    Parts are threads' shares. An instruction gives the same bits for any number of them, and if
    they run one after the other they can share a workspace.
    """
    operands, code = ld_i64(plan, tape), ld_i64(plan, CODE)
    if operands == 0 or code >= ld_i64(operands, 2):
        return 1
    number, count = ld_i64(code, 0), ld_i64(code, 1)
    stride = ld_i64(ld_i64(plan, STRIDES), number)
    part, parts = ld_i64(plan, PART), ld_i64(plan, PARTS)
    if stride == SPLIT_NONE:
        parts = 1
    for k in range(count):
        st_i64(plan, ARGUMENTS + k, ld_i64(code, 2 + k))
    if stride >= 0:
        st_i64(plan, ARGUMENTS + stride, 0)
    function = ld_i64(ld_i64(operands, 3), number)
    call_entry(function, ld_i64(operands, 0), plan + 8 * ARGUMENTS, part, parts)
    part += 1
    if part >= parts:
        part, code = 0, code + 16 + 8 * count
    st_i64(plan, PART, part)
    st_i64(plan, CODE, code)
    return 1 if code >= ld_i64(operands, 2) else 0


@inline
def _after(plan, ctl, tape):
    """Go to the phase that follows a tape; returns DONE after the last one."""
    if tape == MICRO:
        microbatch = ld_i64(ctl, NUMBER) + 1
        if microbatch * ld_i64(plan, MICROBATCH) < ld_i64(plan, MINIBATCH):
            st_i64(ctl, NUMBER, microbatch)
            st_i64(plan, ROW, 0)
            st_i64(plan, PHASE, FILLING)
        else:
            keep_loss(ctl)
            _enter(plan, UPDATE)
        return MORE
    if tape == UPDATE and ld_i64(ctl, REWIRE_DUE) != 0:
        _enter(plan, REWIRE)
        return MORE
    st_i64(ctl, STEP, ld_i64(ctl, STEP) + 1)
    st_i64(plan, PHASE, BEGIN)
    return DONE


@inline
def _advance(plan, ctl, rest):
    """Run one piece: the beginning, one sample, or one part of an instruction (or a whole tape)."""
    phase, status = ld_i64(plan, PHASE), 0
    if phase == BEGIN:
        _begin(plan, ctl)
    elif phase == FILLING:
        status = _next_samples(plan, ctl)
        if status != 0:
            zero_ranges(ld_i64(plan, ZERO), ld_i64(plan, ZEROS))
            st_i64(plan, PHASE, BEGIN)
            return status
    else:
        ended, operands = 1, ld_i64(plan, phase)
        begun = operands != 0 and ld_i64(plan, CODE) != ld_i64(operands, 1)
        if rest != 0 and not begun and ld_i64(plan, PART) == 0:
            run_whole(plan, phase)
        else:
            ended = _run_part(plan, phase)
        if ended != 0:
            return _after(plan, ctl, phase)
    return MORE


@kernel("drive_train", "plan=host whole=flag")
def drive_train():
    """A minibatch (whole 1), or its next piece (whole 0); plan: address of a plan block.

    STATUS is DONE after the last piece and MORE before it. If the callback failed, it is the
    callback's status without sign (or BAD_VALUE, with BAD_FIELD and BAD_SAMPLE): the minibatch was
    discarded, and the next one starts afresh. Called on one thread; RUN distributes tapes to the
    others.
    """

    def run(thread, nthreads, args):
        if thread != 0:
            return
        ctl, status, more = ld_i64(args.plan, CTL), MORE, True
        while more:  # a single call, because it is inlined
            status = _advance(args.plan, ctl, args.whole)
            more = args.whole != 0 and ld_i64(args.plan, PHASE) != BEGIN
        st_i64(args.plan, STATUS, status)

    return run
