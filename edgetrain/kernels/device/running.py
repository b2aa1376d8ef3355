"""Data, steps, evaluation and predictions of a bundle; calls the step loop."""

from .. import control
from ..language.calls import call_entry, load_pointer
from ..language.divisor import divisor, store_mean
from ..language.inlining import inline
from ..language.prim import FP32, ld_f64, ld_i64, st_f64, st_i64, st_u8, to_real
from ..registry import kernel
from ..step_loop import layout as plans
from ..step_loop.floats import nbytes_of
from ..tapes.tape import WAIT, YIELD
from . import layout

PLAN, WHOLE, EVALUATED = layout.PLAN, layout.WHOLE, layout.EVALUATED
BUSY, REFUSED, TRAIN, EVALUATE = layout.BUSY, layout.REFUSED, layout.TRAIN, layout.EVALUATE
BROKEN, HALF = layout.BROKEN, layout.HALF
MEASURED, PREDICTED = layout.MEASURED, layout.PREDICTED
TARGET, TARGET_NBYTES, INPUTS = layout.TARGET, layout.TARGET_NBYTES, layout.INPUTS
CTL, STATUS, PHASE, PARTS = plans.CTL, plans.STATUS, plans.PHASE, plans.PARTS
RUN, RUN_USER, MICRO = plans.RUN, plans.RUN_USER, plans.MICRO
SAMPLES, EVAL_SAMPLES, MINIBATCH = plans.SAMPLES, plans.EVAL_SAMPLES, plans.MINIBATCH
FILL, FILL_USER, SOURCE = plans.FILL, plans.FILL_USER, plans.SOURCE
FROM_MEMORY, FROM_SAMPLES = plans.FROM_MEMORY, plans.FROM_SAMPLES
FIELDS, TRAIN_FIELDS, EVAL_FIELDS = plans.FIELDS, plans.TRAIN_FIELDS, plans.EVAL_FIELDS
LENGTHS, _ld_f32 = plans.LENGTHS, FP32.ld
FIELD_NBYTES, SIZE, ASIDE = 8 * plans.FIELD_WORDS, plans.SIZE, plans.ASIDE
RAW, RAW_STRIDE, RAW_TYPE = plans.RAW, plans.RAW_STRIDE, plans.RAW_TYPE
STAGED_TYPE, FACTOR, SHIFT = plans.STAGED_TYPE, plans.FACTOR, plans.SHIFT
CHANNELS, INNER, MICROBATCH = plans.CHANNELS, plans.INNER, plans.MICROBATCH
PREDICTIONS, OUTPUT_SIZE, DONE = plans.PREDICTIONS, plans.OUTPUT_SIZE, plans.DONE
I32, U8 = plans.TYPES.index("i32"), plans.TYPES.index("u8")
STEP, LAST_LOSS = control.STEP, control.LAST_LOSS
LOSS_SUM, TARGETS, CORRECT = control.LOSS_SUM, control.TARGETS, control.CORRECT
REPORTED = (control.LR, control.GRAD_NORM, control.LOSS_SCALE)
LR_WORD, NORM_WORD, SCALE_WORD = REPORTED
SKIP, COUNT = control.SKIP, control.COUNT
TERMS, TERM_WORDS = control.TERMS, control.TERM_WORDS


@inline
def in_minibatch(plan):
    """Whether a minibatch has begun; one that failed half-way can't continue."""
    return ld_i64(plan, PHASE) != 0 and ld_i64(plan, PHASE) != HALF


@kernel("drive_data", "memory=host fill=host user=host train=host held=size out:w:i64[1]")
def drive_data():
    """Take samples from `fill`, `train` for training and `held` for evaluation; out: 0, REFUSED or
    BUSY."""

    def run(thread, nthreads, args):
        if thread == 0:
            plan = ld_i64(args.memory, PLAN)
            enough = (args.train == 0 or args.train >= ld_i64(plan, MINIBATCH)) and args.held >= 0
            status = 0 if enough and args.fill != 0 else REFUSED
            if in_minibatch(plan):
                status = BUSY
            st_i64(args.out, 0, status)
            if status == 0:
                st_i64(plan, SOURCE, FROM_SAMPLES)
                st_i64(plan, FILL, args.fill)
                st_i64(plan, FILL_USER, args.user)
                st_i64(plan, SAMPLES, args.train)
                st_i64(plan, EVAL_SAMPLES, args.held)

    return run


@kernel(
    "drive_input",
    "memory=host number=host storage=host factor=host shift=host "
    "channels=size inner=size out:w:i64[1]",
)
def drive_input():
    """Set storage, factor and shift of the raw values of input `number`.

    out: 0, or REFUSED for a storage that has no room for the raw values, or a factor for integers.
    """

    @inline
    def suits(field, storage, scaled):
        staged = ld_i64(field, STAGED_TYPE)
        if storage < 0 or storage > U8 or (staged == I32 and (storage < I32 or scaled)):
            return False
        wide = nbytes_of(storage)
        return wide <= nbytes_of(staged) or (wide == 4 and ld_i64(field, ASIDE) != 0)

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan = ld_i64(args.memory, PLAN)
        first = ld_i64(plan, TRAIN_FIELDS) + args.number * FIELD_NBYTES
        inside = (
            args.number >= 0
            and args.number < ld_i64(plan, FIELDS) - 1
            and args.channels > 0
            and args.inner > 0
        )
        scaled = args.factor != 0
        if inside and scaled and args.shift != 0 and ld_i64(plan, LENGTHS) != 0:
            for c in range(args.channels):  # padding is 0 before the shift
                inside = inside and _ld_f32(args.shift, c) == 0.0
        if not inside or not suits(first, args.storage, scaled) or scaled != (args.shift != 0):
            st_i64(args.out, 0, REFUSED)
            return
        for i in range(2):
            field = ld_i64(plan, TRAIN_FIELDS + i) + args.number * FIELD_NBYTES
            st_i64(field, RAW_TYPE, args.storage)
            st_i64(field, FACTOR, args.factor)
            st_i64(field, SHIFT, args.shift)
            st_i64(field, CHANNELS, args.channels)
            st_i64(field, INNER, args.inner)
        st_i64(args.out, 0, 0)

    return run


@kernel("drive_step", "memory=host rom=host whole=flag out:w:i64[1]")
def drive_step():
    """Run a minibatch (whole 1) or its next piece (whole 0); out: as STATUS, or REFUSED."""

    def run(thread, nthreads, args):
        if thread == 0:
            plan = ld_i64(args.memory, PLAN)
            st_i64(args.memory, WHOLE, args.whole)
            if ld_i64(plan, SAMPLES) == 0 or ld_i64(plan, SOURCE) != FROM_SAMPLES:
                st_i64(args.out, 0, REFUSED)
            else:
                call_entry(ld_i64(args.rom, TRAIN), 0, args.memory, 0, 1)
                st_i64(args.out, 0, ld_i64(plan, STATUS))

    return run


@kernel("drive_step_fused", "memory=host rom=host whole=flag out:w:i64[1]")
def drive_step_fused():
    """Like `drive_step`, if weights change before all gradients are known; out may also be BROKEN.

    After BROKEN, only `drive_load` works: for all other functions, the minibatch is half done.
    """

    def run(thread, nthreads, args):
        if thread == 0:
            plan = ld_i64(args.memory, PLAN)
            st_i64(args.memory, WHOLE, args.whole)
            if ld_i64(plan, SAMPLES) == 0 or ld_i64(plan, SOURCE) != FROM_SAMPLES:
                st_i64(args.out, 0, REFUSED)
                return
            if ld_i64(plan, PHASE) != HALF:
                call_entry(ld_i64(args.rom, TRAIN), 0, args.memory, 0, 1)
                ctl, status = ld_i64(plan, CTL), ld_i64(plan, STATUS)
                if status != DONE or ld_i64(ctl, SKIP) == 0 or ld_i64(ctl, TARGETS) == 0:
                    st_i64(args.out, 0, status)
                    return
                st_i64(plan, PHASE, HALF)
            st_i64(args.out, 0, BROKEN)

    return run


@kernel("drive_pass", "memory=host rom=host out:w:i64[1]")
def drive_pass():
    """Run the next minibatch with no sample that counts, so it changes no weights; out: as STATUS,
    REFUSED or BUSY."""

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan, out = ld_i64(args.memory, PLAN), DONE
        if ld_i64(plan, SAMPLES) == 0 or ld_i64(plan, SOURCE) != FROM_SAMPLES:
            out = REFUSED
        elif ld_i64(plan, PHASE) != 0:
            out = BUSY
        else:
            for rest in range(2):  # the beginning, which sets COUNT, then the rest
                st_i64(args.memory, WHOLE, rest)
                call_entry(ld_i64(args.rom, TRAIN), 0, args.memory, 0, 1)
                st_i64(ld_i64(plan, CTL), COUNT, 0)
            out = ld_i64(plan, STATUS)
        st_i64(args.out, 0, out)

    return run


@kernel("drive_split", "memory=host parts=host out:w:i64[1]")
def drive_split():
    """Set the number of parts of an instruction for `drive_step`; out: 0, REFUSED or BUSY."""

    def run(thread, nthreads, args):
        if thread == 0:
            plan = ld_i64(args.memory, PLAN)
            status = REFUSED if args.parts < 1 else (BUSY if ld_i64(plan, PHASE) != 0 else 0)
            if status == 0:
                st_i64(plan, PARTS, args.parts)
            st_i64(args.out, 0, status)

    return run


@kernel("drive_threads", "memory=host run=host user=host yield_=host")
def drive_threads():
    """Run tapes through `run(user, tape)`, whose threads wait for each other with `yield_()`."""
    wait, give_way = WAIT, YIELD

    def run(thread, nthreads, args):
        if thread == 0:
            plan = ld_i64(args.memory, PLAN)
            st_i64(plan, RUN, args.run)
            st_i64(plan, RUN_USER, args.user)
            barrier = ld_i64(ld_i64(plan, MICRO), 4)
            st_i64(barrier, wait, args.yield_)
            st_i64(barrier, give_way, args.yield_)

    return run


@kernel("drive_progress", "memory=host to=host")
def drive_progress():
    """to: step, skipped (int64), loss, gradient norm, learning rate, loss scale (float64)."""

    def run(thread, nthreads, args):
        if thread == 0:
            ctl = ld_i64(ld_i64(args.memory, PLAN), CTL)
            st_i64(args.to, 0, ld_i64(ctl, STEP))
            st_i64(args.to, 1, ld_i64(ctl, SKIP))
            st_f64(args.to, 2, ld_f64(ctl, LAST_LOSS))
            st_f64(args.to, 3, ld_f64(ctl, NORM_WORD))
            st_f64(args.to, 4, ld_f64(ctl, LR_WORD))
            st_f64(args.to, 5, ld_f64(ctl, SCALE_WORD))

    return run


@kernel("drive_measure", "memory=host rom=host loss=host accuracy=host out:w:i64[1]")
def drive_measure():
    """Evaluate. loss, accuracy: addresses of float64, means over targets, NaN if there are none;
    out: as STATUS, or BUSY.

    If samples are measured in groups, a partial group is left out; REFUSED if no group is complete.
    """

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan = ld_i64(args.memory, PLAN)
        if ld_i64(plan, PHASE) != 0:
            st_i64(args.out, 0, BUSY)
            return
        held = ld_i64(plan, EVAL_SAMPLES)
        measured = held - held % ld_i64(args.rom, MEASURED)
        if measured == 0 or ld_i64(plan, SOURCE) != FROM_SAMPLES:
            st_i64(args.out, 0, REFUSED)
            return
        st_i64(plan, EVAL_SAMPLES, measured)
        call_entry(ld_i64(args.rom, EVALUATE), 0, args.memory, 0, 1)
        st_i64(plan, EVAL_SAMPLES, held)
        ctl = ld_i64(plan, CTL)
        count = ld_i64(ctl, TARGETS)
        store_mean(args.loss, 0, ld_f64(ctl, LOSS_SUM), divisor(ctl), count)
        store_mean(args.accuracy, 0, to_real(ld_i64(ctl, CORRECT)), to_real(count), count)
        st_i64(args.memory, WHOLE, EVALUATED)
        st_i64(args.out, 0, ld_i64(plan, STATUS))

    return run


@kernel("drive_losses", "memory=host loss=host accuracy=host number=host out:w:i64[1]")
def drive_losses():
    """For each of several losses, at addresses of float64 [number]: its mean over the last
    measurement, without its weight, and the share of its targets predicted, both NaN if it has
    no targets; out: 0, BUSY, or REFUSED if samples were used since."""

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan = ld_i64(args.memory, PLAN)
        if ld_i64(plan, PHASE) != 0:
            st_i64(args.out, 0, BUSY)
            return
        if ld_i64(args.memory, WHOLE) != EVALUATED:
            st_i64(args.out, 0, REFUSED)
            return
        ctl = ld_i64(plan, CTL)
        for index in range(args.number):
            word = TERMS + TERM_WORDS * index
            count, weights = ld_i64(ctl, word + 1), ld_f64(ctl, word + 3)
            targets = to_real(count)
            weights = weights if weights != 0.0 else targets
            store_mean(args.loss, index, ld_f64(ctl, word), weights, count)
            store_mean(args.accuracy, index, to_real(ld_i64(ctl, word + 2)), targets, count)
        st_i64(args.out, 0, 0)

    return run


@kernel("drive_predict", "memory=host rom=host x=host samples=size to=host out:w:i64[1]")
def drive_predict():
    """to: float32 [samples, output]; x: raw samples, or pointers to those of each input.

    out: as STATUS, BUSY, or REFUSED for fewer than 0 samples, or if they don't fill groups that
    are computed together.
    """

    @inline
    def place(plan, x, first):
        inputs, fields = ld_i64(plan, FIELDS), ld_i64(plan, EVAL_FIELDS)
        for k in range(inputs):
            field = fields + k * FIELD_NBYTES
            stride = ld_i64(field, SIZE) * nbytes_of(ld_i64(field, RAW_TYPE))
            source = x if inputs == 1 else load_pointer(x, k)
            st_i64(field, RAW, source + first * stride)
            st_i64(field, RAW_STRIDE, stride)

    def run(thread, nthreads, args):
        if thread != 0:
            return
        plan, status, first = ld_i64(args.memory, PLAN), DONE, 0
        if ld_i64(plan, PHASE) != 0:
            st_i64(args.out, 0, BUSY)
            return
        if args.samples < 0 or args.samples % ld_i64(args.rom, PREDICTED) != 0:
            st_i64(args.out, 0, REFUSED)
            return
        st_i64(args.memory, WHOLE, 0)
        source, held = ld_i64(plan, SOURCE), ld_i64(plan, EVAL_SAMPLES)
        fields = ld_i64(plan, FIELDS)
        st_i64(plan, SOURCE, FROM_MEMORY)
        st_i64(plan, FIELDS, ld_i64(args.rom, INPUTS))
        while first < args.samples and status == DONE:
            for e in range(ld_i64(args.rom, TARGET_NBYTES)):
                st_u8(args.memory + ld_i64(args.rom, TARGET), e, 0)
            place(plan, args.x, first)
            st_i64(plan, EVAL_SAMPLES, min(args.samples - first, ld_i64(plan, MICROBATCH)))
            st_i64(plan, PREDICTIONS, args.to + 4 * first * ld_i64(plan, OUTPUT_SIZE))
            call_entry(ld_i64(args.rom, EVALUATE), 0, args.memory, 0, 1)
            status = ld_i64(plan, STATUS)
            first += ld_i64(plan, MICROBATCH)
        st_i64(plan, FIELDS, fields)
        st_i64(plan, PREDICTIONS, 0)
        st_i64(plan, EVAL_SAMPLES, held)
        st_i64(plan, SOURCE, source)
        st_i64(args.out, 0, status)

    return run
