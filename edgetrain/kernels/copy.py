"""Strided copies with conversion, scale and accumulation; fills.

Transposes, slices, expansions, concatenations, splits, casts and the gradients of all of them are
one kernel: y[yo + p . ys] (+)= scale * x[xo + p . xs] for every position p of six dims.
"""

from .registry import kernel
from .words import strides

_STEPS = " ".join(strides.names(prefix) for prefix in ("d", "xs", "ys"))
_CHECK = ";".join(
    [
        strides.positive("d"),
        strides.reach("nx", ("d", "xs"), origin="xo"),
        strides.reach("ny", ("d", "ys"), origin="yo"),
        strides.distinct("ny", "d"),
    ]
)


def _is_float(storage) -> bool:
    return storage.name in ("f32", "f16")


def _mixed(S, T):
    """load from S as T's kind, add, store: for pairs of which one is an integer format."""
    from .jit import inline
    from .words.prim import to_float, to_int

    ld, st, old = S.ld, T.st, T.ld
    if _is_float(T):

        @inline
        def move(x, i, y, j, scale, acc):
            value = to_float(ld(x, i)) * scale
            st(y, j, value + old(y, j) if acc else value)

    elif _is_float(S):

        @inline
        def move(x, i, y, j, scale, acc):
            value = to_int(ld(x, i) * scale)
            st(y, j, value + old(y, j) if acc else value)

    else:

        @inline
        def move(x, i, y, j, scale, acc):
            st(y, j, ld(x, i) + old(y, j) if acc else ld(x, i))

    return move


def _integer_copy(S, T):
    from .words.block import first
    from .words.strided import count, place

    move = _mixed(S, T)

    def run(
        thread, nthreads, x, y, ctl, key, sr, scale, acc, xo, yo, d0, d1, d2, d3, d4, d5,
        xs0, xs1, xs2, xs3, xs4, xs5, ys0, ys1, ys2, ys3, ys4, ys5, nx, ny,
    ):  # fmt: skip
        dims = (d0, d1, d2, d3, d4, d5)
        n = count(dims)
        for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
            source = xo + place(i, dims, (xs0, xs1, xs2, xs3, xs4, xs5))
            target = yo + place(i, dims, (ys0, ys1, ys2, ys3, ys4, ys5))
            move(x, source, y, target, scale, acc)

    return run


@kernel(
    "copy",
    f"x:r:S[nx] y:m:T[ny] ctl?:r:i64[64] key sr scale:f acc xo yo {_STEPS} nx ny",
    check=_CHECK,
)
def copy(S, T):
    """y[yo + p . ys] (+)= scale * x[xo + p . xs]; strides in elements, any sign.

    sr 1: y is stored with stochastic rounding, numbered by its elements. Elements of y that no
    position reaches are left as they are; positions must reach different ones (threads split the
    positions), except that xs may repeat. Between integer formats the scale is not applied; a
    float becomes an integer by truncation. x and y may be one tensor where the places are the
    same.
    """
    if not (_is_float(S) and _is_float(T)):
        return _integer_copy(S, T)
    from .words.block import BLOCK, first, get, new, put
    from .words.mathf import ONE
    from .words.prim import u32
    from .words.rng import stream
    from .words.strided import count, filler, spiller

    fill, fill_old = filler(S.ld), filler(T.ld)
    spill, spill_rounded = spiller(T), spiller(T, rounded=True)

    def run(
        thread, nthreads, x, y, ctl, key, sr, scale, acc, xo, yo, d0, d1, d2, d3, d4, d5,
        xs0, xs1, xs2, xs3, xs4, xs5, ys0, ys1, ys2, ys3, ys4, ys5, nx, ny,
    ):  # fmt: skip
        dims = (d0, d1, d2, d3, d4, d5)
        xs, ys = (xs0, xs1, xs2, xs3, xs4, xs5), (ys0, ys1, ys2, ys3, ys4, ys5)
        values, old = new(), new()
        random = stream(ctl, key) if sr and ctl != 0 else u32(0)
        n = count(dims)
        stop = first(n, thread + 1, nthreads)
        for i in range(first(n, thread, nthreads), stop, BLOCK):
            m = min(BLOCK, stop - i)
            fill(values, x, xo, i, m, dims, xs)
            if scale != ONE:
                for j in range(m):
                    put(values, j, get(values, j) * scale)
            if acc:
                fill_old(old, y, yo, i, m, dims, ys)
                for j in range(m):
                    put(values, j, get(values, j) + get(old, j))
            if sr and ctl != 0:
                spill_rounded(values, y, yo, i, m, dims, ys, random)
            else:
                spill(values, y, yo, i, m, dims, ys, random)

    return run


@kernel("fill", "y:w:S[n] value:f n", check="n > 0")
def fill(S):
    """y[i] = value; an integer format gets the value truncated."""
    from .words.block import first
    from .words.prim import to_int

    st = S.st
    if not _is_float(S):

        def run(thread, nthreads, y, value, n):
            for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
                st(y, i, to_int(value))

    else:

        def run(thread, nthreads, y, value, n):
            for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
                st(y, i, value)

    return run
