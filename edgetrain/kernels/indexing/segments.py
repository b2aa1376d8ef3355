"""Lengths of rows within a segment of time."""

from ..registry import kernel


@kernel(
    "segment_lengths",
    "lens:r:i32[b] out:w:i32[b] b start=size count",
    check="min(b, count) > 0",
)
def segment_lengths():
    """out[i]: how many of row i's lens[i] steps are in [start, start + count). Thread 0 does it."""
    from ..language.prim import ld_i32, st_i32

    def run(thread, nthreads, args):
        if thread == 0:
            for i in range(args.b):
                st_i32(args.out, i, max(0, min(args.count, ld_i32(args.lens, i) - args.start)))

    return run
