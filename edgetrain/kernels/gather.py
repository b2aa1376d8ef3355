"""Rows taken by index along one axis, and their gradient.

x is [outer, axis, inner], idx int32[count], y [outer, count, inner]. A negative index counts from
the end. An index outside the axis reads as zeros and receives no gradient.
"""

from .registry import kernel


def wrapping():
    """wrapped(idx, i, axis): index i of idx in [0, axis), or -1 where it lies outside."""
    from .jit import inline
    from .words.prim import ld_i32

    @inline
    def wrapped(idx, i, axis):
        at = ld_i32(idx, i)
        at = at + axis if at < 0 else at
        return at if 0 <= at < axis else -1

    return wrapped


_CHECK = "min(outer, axis, inner, count) > 0"


@kernel(
    "gather",
    "x:r:W[outer*axis*inner] idx:r:i32[count] y:w:S[outer*count*inner] outer axis inner count",
    check=_CHECK,
)
def gather(W, S):
    """y[o, i] = x[o, idx[i]], any two storages of one kind; threads split the rows of y."""
    from .words.mathf import ZERO
    from .words.prim import div

    ld, st, wrapped = W.ld, S.st, wrapping()
    nothing = ZERO if S.name in ("f32", "f16") else 0

    def run(thread, nthreads, x, idx, y, outer, axis, inner, count):
        rows = outer * count
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            o = div(row, count)
            at = wrapped(idx, row - o * count, axis)
            source, target = (o * axis + at) * inner, row * inner
            if at >= 0:
                for j in range(inner):
                    st(y, target + j, ld(x, source + j))
            else:
                for j in range(inner):
                    st(y, target + j, nothing)

    return run


@kernel(
    "gather_bwd",
    "idx:r:i32[count] dy:r:S[outer*count*inner] dx:m:G[outer*axis*inner] ctl?:r:i64[64] key sr "
    "outer axis inner count padding",
    check=_CHECK,
)
def gather_bwd(S, G):
    """dx[o, idx[i]] += dy[o, i] in the order of i, except where idx[i] is `padding` (-1: none).

    sr 1: stored with stochastic rounding, numbered by (i, element of dx). Threads split `outer`
    where that is enough for all of them, else the columns of `inner`.
    """
    from .words.block import first
    from .words.prim import div, hash32, u32
    from .words.rng import stream

    ld, old, st, sr_store, wrapped = S.ld, G.ld, G.st, G.sr, wrapping()

    def run(thread, nthreads, idx, dy, dx, ctl, key, sr, outer, axis, inner, count, padding):
        random = stream(ctl, key) if sr and ctl != 0 else u32(0)
        top, bottom, left, right = 0, outer, 0, inner
        if outer >= nthreads:
            top, bottom = div(outer * thread, nthreads), div(outer * (thread + 1), nthreads)
        else:
            left, right = first(inner, thread, nthreads), first(inner, thread + 1, nthreads)
        for o in range(top, bottom):
            for i in range(count):
                at = wrapped(idx, i, axis)
                if at < 0 or at == padding:
                    continue
                source, target = (o * count + i) * inner, (o * axis + at) * inner
                if sr and ctl != 0:
                    for j in range(left, right):
                        value = old(dx, target + j) + ld(dy, source + j)
                        sr_store(dx, target + j, value, hash32(random, i))
                else:
                    for j in range(left, right):
                        st(dx, target + j, old(dx, target + j) + ld(dy, source + j))

    return run
