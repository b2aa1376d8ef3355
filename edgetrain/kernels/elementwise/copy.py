"""Strided copies with conversion, scale and accumulation; fills.

Transposes, slices, expansions, concatenations, splits, casts and all of their gradients are one
kernel: y[yo + p . ys] (+)= scale * x[xo + p . xs] for every position p in six dimensions.
"""

from ..registry import kernel


def _mixed(S, T):
    """Inline function that loads from S, converts to T's kind, adds and stores: for pairs in which
    at least one is an integer format."""
    from ..language.inlining import inline
    from ..language.prim import to_float, to_int

    ld, st, old = S.ld, T.st, T.ld
    if T.floats:

        @inline
        def move(x, i, y, j, scale, acc):
            value = to_float(ld(x, i)) * scale
            st(y, j, value + old(y, j) if acc else value)

    elif S.floats:

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
    from ..language.block import first
    from ..language.strided import count, place

    move = _mixed(S, T)

    def run(thread, nthreads, args):
        n = count(args.d)
        for i in range(first(n, thread, nthreads), first(n, thread + 1, nthreads)):
            source = args.xo + place(i, args.d, args.xs)
            target = args.yo + place(i, args.d, args.ys)
            move(args.x, source, args.y, target, args.scale, args.acc)

    return run


@kernel(
    "copy",
    "x:r:S[nx] y:m:T[ny] ctl?:r:i64[64] key=compared sr=flag scale:f acc=flag xo "
    "yo d[6] xs[6]=signed ys[6]=signed nx ny",
    check="least(d) > 0;covers(nx, xo, d, xs);covers(ny, yo, d, ys);prod(d) <= ny",
)
def copy(S, T):
    """y[yo + p . ys] (+)= scale * x[xo + p . xs]; strides in elements, any sign.

    sr 1: y is stored with stochastic rounding, drawn by the index in y. Elements of y that no
    position reaches are unchanged. Positions must reach distinct elements of y (threads split the
    positions), but xs may repeat. Between integer formats the scale is not applied; a float becomes
    an integer by truncation. x and y may be the same tensor if every position reads and writes the
    same element.
    """
    if not (S.floats and T.floats):
        return _integer_copy(S, T)
    from ..language.block import BLOCK, first, get, new, put
    from ..language.mathf import ONE
    from ..language.prim import u32
    from ..language.rng import stream
    from ..language.strided import count, filler, spiller

    fill, fill_old = filler(S.ld), filler(T.ld)
    spill, spill_rounded = spiller(T), spiller(T, rounded=True)

    def run(thread, nthreads, args):
        values, old = new(), new()
        random = stream(args.ctl, args.key) if args.sr and args.ctl != 0 else u32(0)
        n = count(args.d)
        stop = first(n, thread + 1, nthreads)
        for i in range(first(n, thread, nthreads), stop, BLOCK):
            m = min(BLOCK, stop - i)
            fill(values, args.x, args.xo, i, m, args.d, args.xs)
            if args.scale != ONE:
                for j in range(m):
                    put(values, j, get(values, j) * args.scale)
            if args.acc:
                fill_old(old, args.y, args.yo, i, m, args.d, args.ys)
                for j in range(m):
                    put(values, j, get(values, j) + get(old, j))
            if args.sr and args.ctl != 0:
                spill_rounded(values, args.y, args.yo, i, m, args.d, args.ys, random)
            else:
                spill(values, args.y, args.yo, i, m, args.d, args.ys, random)

    return run


@kernel("fill", "y:w:S[n] value:f n", check="n > 0")
def fill(S):
    """y[i] = value; in an integer format, the value is truncated."""
    from ..language.block import first
    from ..language.prim import to_int

    st = S.st
    if not S.floats:

        def run(thread, nthreads, args):
            for i in range(first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads)):
                st(args.y, i, to_int(args.value))

    else:

        def run(thread, nthreads, args):
            for i in range(first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads)):
                st(args.y, i, args.value)

    return run
