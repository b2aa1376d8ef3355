"""Resizing and its gradient, as weighted sums of rows and columns of planes.

A table for n outputs with t taps in total is int32[n + 1 + 2 * t]: the first tap of each output
(and the end of the last one's), the input index of every tap, the bits of its float32 weight. The
gradient is the same kernel with the transposed tables.
"""

from ..registry import kernel


def _words():
    from ..language.inlining import inline
    from ..language.mathf import ONE
    from ..language.prim import bits_float, ld_i32, u32

    @inline
    def start(table, i, taps):
        """First tap of output i; an absent table is the identity."""
        return i if table == 0 else max(0, min(ld_i32(table, i), taps))

    @inline
    def index(table, n, t):
        return t if table == 0 else ld_i32(table, n + 1 + t)

    @inline
    def weight(table, n, taps, t):
        return ONE if table == 0 else bits_float(u32(ld_i32(table, n + 1 + taps + t)))

    return start, index, weight


@kernel(
    "resample",
    "x:r:S[outer*h*wd] rows?:r:i32[oh+1+2*rt] cols?:r:i32[ow+1+2*ct] y:m:S[outer*oh*ow] "
    "outer h wd oh ow rt ct acc=flag",
    check="min(outer, h, wd, oh, ow) > 0;min(rt, ct) >= 0",
    work="outer*max(oh, rt)*max(ow, ct)",
)
def resample(S):
    """y[o, i, k] (+)= sum over taps a of row i, then b of column k, of w[a] * w[b] * x[o, a, b].

    x is [outer, h, wd], y [outer, oh, ow]. An index outside the plane adds nothing. Float32 by fma,
    the previous y is added last; threads split the rows of y.
    """
    from ..language.mathf import ZERO
    from ..language.number import fma
    from ..language.prim import div

    start, index, weight = _words()
    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        lines = args.outer * args.oh
        for line in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            o = div(line, args.oh)
            i = line - o * args.oh
            top, bottom = start(args.rows, i, args.rt), start(args.rows, i + 1, args.rt)
            for q in range(args.ow):
                left, right = start(args.cols, q, args.ct), start(args.cols, q + 1, args.ct)
                total = ZERO
                for a in range(top, bottom):
                    row = index(args.rows, args.oh, a)
                    if row < 0 or row >= args.h:
                        continue
                    scale = weight(args.rows, args.oh, args.rt, a)
                    offset = (o * args.h + row) * args.wd
                    for b in range(left, right):
                        column = index(args.cols, args.ow, b)
                        if 0 <= column < args.wd:
                            total = fma(
                                scale * weight(args.cols, args.ow, args.ct, b),
                                ld(args.x, offset + column),
                                total,
                            )
                if args.acc:
                    total += ld(args.y, line * args.ow + q)
                st(args.y, line * args.ow + q, total)

    return run
