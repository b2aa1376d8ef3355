"""Padding of up to six dimensions by reflection, edge values or wrapping, and its gradient.

x has dims e, y dims d, both dense; y[i] = x[source(i)], where source takes i - p along each axis
and maps it into [0, e): mode 0 reflect (the edge is not repeated), 1 edge, 2 wrap. If p is
negative, it crops. Padding with a constant is done by `fill` and `copy`.
"""

from ..registry import kernel

_X, _Y, _STEPS = "[prod(e)]", "[prod(d)]", "d[6] e[6] p[6]=signed"
_CHECK = "least(d) > 0;least(e) > 0"


def _words():
    from ..language.inlining import inline
    from ..language.prim import div, mod

    @inline
    def source(i, p, e, mode):
        """Index into x for index i of y, along one axis."""
        t = i - p
        if mode == 1:
            return max(0, min(t, e - 1))
        if mode == 2:
            t = mod(t, e)
            return t + e if t < 0 else t
        if e == 1:
            return 0
        period = 2 * (e - 1)
        t = mod(abs(t), period)
        return period - t if t >= e else t

    @inline
    def row_source(row, d, e, p, mode):
        """(row of x, its index along axis 0) for a row of y; rows span all axes but the last."""
        q4 = div(row, d[4])
        q3 = div(q4, d[3])
        q2 = div(q3, d[2])
        q1 = div(q2, d[1])
        at0 = source(q1, p[0], e[0], mode)
        row_of = at0 * e[1] + source(q2 - q1 * d[1], p[1], e[1], mode)
        row_of = row_of * e[2] + source(q3 - q2 * d[2], p[2], e[2], mode)
        row_of = row_of * e[3] + source(q4 - q3 * d[3], p[3], e[3], mode)
        return row_of * e[4] + source(row - q4 * d[4], p[4], e[4], mode), at0

    return source, row_source


@kernel("pad_mode", f"x:r:S{_X} y:w:S{_Y} {_STEPS} mode=0..2", check=_CHECK)
def pad_mode(S):
    """y[i] = x[source(i)]; threads split the rows of y."""
    from ..language.prim import div
    from ..language.strided import count

    source, row_source = _words()
    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        rows = div(count(args.d), args.d[5])
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            offset = row_source(row, args.d, args.e, args.p, args.mode)[0] * args.e[5]
            for j in range(args.d[5]):
                st(
                    args.y,
                    row * args.d[5] + j,
                    ld(args.x, offset + source(j, args.p[5], args.e[5], args.mode)),
                )

    return run


@kernel("pad_mode_bwd", f"dy:r:S{_Y} dx:m:S{_X} {_STEPS} mode=0..2 acc=flag", check=_CHECK)
def pad_mode_bwd(S):
    """dx[source(i)] += dy[i] in the order of i (acc 0: from zero).

    Sums are rounded to the storage at each term. Threads split axis 0 of x: put the batch there.
    """
    from ..language.mathf import ZERO
    from ..language.prim import div
    from ..language.strided import count

    source, row_source = _words()
    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        rows, slab = div(count(args.d), args.d[5]), div(count(args.e), args.e[0])
        lo, hi = div(args.e[0] * thread, nthreads), div(args.e[0] * (thread + 1), nthreads)
        if args.acc == 0:
            for i in range(lo * slab, hi * slab):
                st(args.dx, i, ZERO)
        for row in range(rows):
            offset, first = row_source(row, args.d, args.e, args.p, args.mode)
            if lo <= first < hi:
                for j in range(args.d[5]):
                    to = offset * args.e[5] + source(j, args.p[5], args.e[5], args.mode)
                    st(args.dx, to, ld(args.dx, to) + ld(args.dy, row * args.d[5] + j))

    return run
