"""The largest or smallest elements along an axis, and elements picked by such indices.

x is [outer, n, inner], chosen elements are [outer, k, inner]; rows along the axis are independent,
and threads split them. NaN counts as infinity, as in torch.
"""

from ..registry import kernel

_CHECK = "min(outer, n, inner, k) > 0"
_X, _CHOSEN = "[outer*n*inner]", "[outer*k*inner]"


@kernel(
    "topk",
    f"x:r:S{_X} idx:w:i32{_CHOSEN} outer n inner k reverse=flag first=flag",
    check=f"{_CHECK};k <= n",
    work="outer*inner*n*k",
)
def topk(S):
    """idx[o, j, i]: index of the j-th largest of x[o, :, i]; with `reverse`, of the j-th smallest.

    Of equal numbers, the first comes first; without `first`, the last one does. Each result takes
    one pass along the row, for the best number after the previous one.
    """
    import numpy as np

    from ..language.inlining import inline
    from ..language.mathf import INF
    from ..language.prim import STORAGES, div, mod

    ld, st = S.ld, STORAGES["i32"].st

    @inline
    def key(x, offset, reverse):
        value = ld(x, offset)
        value = INF if value != value else value
        return -value if reverse else value

    def run(thread, nthreads, args):
        rows = args.outer * args.inner
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            o, i = div(row, args.inner), mod(row, args.inner)
            last, place = np.float32(0), -1
            for j in range(args.k):
                best, index = np.float32(0), -1
                for p in range(args.n):
                    value = key(args.x, (o * args.n + p) * args.inner + i, args.reverse)
                    turn = p > place if args.first else p < place
                    if place >= 0 and not (value < last or (value == last and turn)):
                        continue
                    if index < 0 or value > best or (value == best and not args.first):
                        best, index = value, p
                st(args.idx, (o * args.k + j) * args.inner + i, index)
                last, place = best, index

    return run


@kernel("pick", f"x:r:S{_X} idx:r:i32{_CHOSEN} y:w:S{_CHOSEN} outer n inner k", check=_CHECK)
def pick(S):
    """y[o, j, i] = x[o, idx[o, j, i], i]; 0 if the index is out of range."""
    from ..language.mathf import ZERO
    from ..language.prim import div, ld_i32, mod

    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        total = args.outer * args.k * args.inner
        for t in range(div(total * thread, nthreads), div(total * (thread + 1), nthreads)):
            o, i, index = div(t, args.k * args.inner), mod(t, args.inner), ld_i32(args.idx, t)
            inside = 0 <= index < args.n
            st(args.y, t, ld(args.x, (o * args.n + index) * args.inner + i) if inside else ZERO)

    return run


@kernel("pick_bwd", f"idx:r:i32{_CHOSEN} dy:r:S{_CHOSEN} dx:m:S{_X} outer n inner k", check=_CHECK)
def pick_bwd(S):
    """dx[o, idx[o, j, i], i] += dy[o, j, i] in the order of j, if the index is in range."""
    from ..language.prim import div, ld_i32, mod

    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        rows = args.outer * args.inner
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            o, i = div(row, args.inner), mod(row, args.inner)
            for j in range(args.k):
                t = (o * args.k + j) * args.inner + i
                index = ld_i32(args.idx, t)
                if 0 <= index < args.n:
                    target = (o * args.n + index) * args.inner + i
                    st(args.dx, target, ld(args.dx, target) + ld(args.dy, t))

    return run
