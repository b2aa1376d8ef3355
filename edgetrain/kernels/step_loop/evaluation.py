"""Every sample once, in order, in evaluation mode: sums of losses and hits, or the outputs."""

from .. import control
from ..language.prim import FP32, ld_i64, st_i64
from ..registry import kernel
from . import layout
from .filling import fill_microbatch, fill_row
from .floats import load_float
from .minibatch import reset_counts, run_whole

CTL, EVAL, STATUS, INDICES = layout.CTL, layout.EVAL, layout.STATUS, layout.INDICES
MICROBATCH, EVAL_SAMPLES = layout.MICROBATCH, layout.EVAL_SAMPLES
SOURCE, FROM_MICROBATCHES = layout.SOURCE, layout.FROM_MICROBATCHES
EVAL_FIELDS, EVAL_SPLIT = layout.EVAL_FIELDS, layout.EVAL_SPLIT
OUTPUT, OUTPUT_TYPE = layout.OUTPUT, layout.OUTPUT_TYPE
OUTPUT_SIZE, PREDICTIONS = layout.OUTPUT_SIZE, layout.PREDICTIONS
COUNT, DONE = control.COUNT, layout.DONE


@kernel("drive_evaluate", "plan=host")
def drive_evaluate():
    """Run the eval tape over EVAL_SAMPLES samples; plan: address of a plan block.

    ctl LOSS_SUM, TARGETS and CORRECT are summed over all of them. The last microbatch is padded
    with sample 0, which does not count. If PREDICTIONS is not 0, the outputs are written there, as
    float32 [EVAL_SAMPLES, OUTPUT_SIZE]. STATUS: DONE, or as in `drive_train`.
    """
    from ..language.inlining import inline

    st_f32 = FP32.st

    @inline
    def keep_outputs(plan, first, valid):
        out, size = ld_i64(plan, PREDICTIONS), ld_i64(plan, OUTPUT_SIZE)
        value, storage = ld_i64(plan, OUTPUT), ld_i64(plan, OUTPUT_TYPE)
        if out != 0:
            for e in range(valid * size):
                st_f32(out, first * size + e, load_float(storage, value, e))

    @inline
    def next_samples(plan, first, valid, count):
        if ld_i64(plan, SOURCE) == FROM_MICROBATCHES:
            for row in range(count):
                st_i64(ld_i64(plan, INDICES), row, first + row if row < valid else 0)
            return fill_microbatch(plan, EVAL_SPLIT, count)
        for row in range(count):
            sample = first + row if row < valid else 0
            status = fill_row(plan, ld_i64(plan, EVAL_FIELDS), EVAL_SPLIT, sample, row)
            if status != 0:
                return status
        return 0

    def run(thread, nthreads, args):
        if thread != 0:
            return
        ctl = ld_i64(args.plan, CTL)
        n = ld_i64(args.plan, EVAL_SAMPLES)
        count = ld_i64(args.plan, MICROBATCH)
        reset_counts(ctl, 0)
        first, status = 0, DONE
        while first < n and status == DONE:
            valid = min(count, n - first)
            status = next_samples(args.plan, first, valid, count)
            if status == DONE:
                st_i64(ctl, COUNT, valid)
                run_whole(args.plan, EVAL)
                keep_outputs(args.plan, first, valid)
                first += count
        st_i64(args.plan, STATUS, status)

    return run
