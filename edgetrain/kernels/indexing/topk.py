"""The greatest or least elements along an axis, and elements picked by such indices.

x is [outer, n, inner], what is chosen [outer, k, inner]; rows along the axis are independent, and
threads split them. NaN is as great as infinity, as in torch.
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
    """idx[o, j, i]: place of the j-th largest of x[o, :, i]; with `reverse`, of the j-th smallest.

    Of equal numbers, the first comes first; without `first`, the last one does. Each place takes
    one pass along the row, for the best number after the one before.
    """
    import numpy as np

    from ..language.inlining import inline
    from ..language.mathf import INF
    from ..language.prim import STORAGES, div, mod

    ld, st = S.ld, STORAGES["i32"].st

    @inline
    def key(x, at, reverse):
        value = ld(x, at)
        value = INF if value != value else value
        return -value if reverse else value

    def run(thread, nthreads, k):
        rows = k.outer * k.inner
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            o, i = div(row, k.inner), mod(row, k.inner)
            last, place = np.float32(0), -1
            for j in range(k.k):
                best, at = np.float32(0), -1
                for p in range(k.n):
                    value = key(k.x, (o * k.n + p) * k.inner + i, k.reverse)
                    turn = p > place if k.first else p < place
                    if place >= 0 and not (value < last or (value == last and turn)):
                        continue
                    if at < 0 or value > best or (value == best and not k.first):
                        best, at = value, p
                st(k.idx, (o * k.k + j) * k.inner + i, at)
                last, place = best, at

    return run


@kernel("pick", f"x:r:S{_X} idx:r:i32{_CHOSEN} y:w:S{_CHOSEN} outer n inner k", check=_CHECK)
def pick(S):
    """y[o, j, i] = x[o, idx[o, j, i], i]; 0 if the index is out of range."""
    from ..language.mathf import ZERO
    from ..language.prim import div, ld_i32, mod

    ld, st = S.ld, S.st

    def run(thread, nthreads, k):
        total = k.outer * k.k * k.inner
        for t in range(div(total * thread, nthreads), div(total * (thread + 1), nthreads)):
            o, i, at = div(t, k.k * k.inner), mod(t, k.inner), ld_i32(k.idx, t)
            inside = 0 <= at < k.n
            st(k.y, t, ld(k.x, (o * k.n + at) * k.inner + i) if inside else ZERO)

    return run


@kernel("pick_bwd", f"idx:r:i32{_CHOSEN} dy:r:S{_CHOSEN} dx:m:S{_X} outer n inner k", check=_CHECK)
def pick_bwd(S):
    """dx[o, idx[o, j, i], i] += dy[o, j, i] in the order of j, if the index is in range."""
    from ..language.prim import div, ld_i32, mod

    ld, st = S.ld, S.st

    def run(thread, nthreads, k):
        rows = k.outer * k.inner
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            o, i = div(row, k.inner), mod(row, k.inner)
            for j in range(k.k):
                t = (o * k.k + j) * k.inner + i
                at = ld_i32(k.idx, t)
                if 0 <= at < k.n:
                    target = (o * k.n + at) * k.inner + i
                    st(k.dx, target, ld(k.dx, target) + ld(k.dy, t))

    return run
