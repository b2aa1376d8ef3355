"""Rows taken by index along one axis, and their gradient.

x is [outer, axis, inner], idx int32[count], y [outer, count, inner]. A negative index counts from
the end. An index outside the axis reads as zeros and receives no gradient.
"""

from ..registry import kernel


def wrapping():
    """wrapped(idx, i, axis): element i of idx as an index in [0, axis), -1 if out of range."""
    from ..language.inlining import inline
    from ..language.prim import ld_i32

    @inline
    def wrapped(idx, i, axis):
        index = ld_i32(idx, i)
        index = index + axis if index < 0 else index
        return index if 0 <= index < axis else -1

    return wrapped


IN_BLOCKS = "G == 'q8' or G == 'q8n'"  # condition of variants for accumulators in blocks
_CHECK = "min(outer, axis, inner, count) > 0"


@kernel(
    "gather",
    "x:r:W[outer*axis*inner] idx:r:i32[count] y:w:S[outer*count*inner] outer axis inner count",
    check=_CHECK,
    blocks="W",
)
def gather(W, S):
    """y[o, i] = x[o, idx[i]], for two storages of the same kind; threads split the rows of y."""
    from ..language.mathf import ZERO
    from ..language.prim import div

    ld, st, wrapped = W.ld, S.st, wrapping()
    nothing = ZERO if S.floats else 0

    def run(thread, nthreads, args):
        rows = args.outer * args.count
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            o = div(row, args.count)
            index = wrapped(args.idx, row - o * args.count, args.axis)
            source, target = (o * args.axis + index) * args.inner, row * args.inner
            if index >= 0:
                for j in range(args.inner):
                    st(args.y, target + j, ld(args.x, source + j))
            else:
                for j in range(args.inner):
                    st(args.y, target + j, nothing)

    return run


_BACKWARD = (
    "idx:r:i32[count] dy:r:S[outer*count*inner] dx:m:G[outer*axis*inner] "
    "ctl?:r:i64[64] key=compared sr=flag "
    "outer axis inner count padding=compared"
)


@kernel("gather_bwd", _BACKWARD, variant="blocks", when=IN_BLOCKS, check=_CHECK, blocks="G")
def gather_bwd_blocks(S, G):
    """Like the plain variant, for dx in blocks, which threads split.

    A block is rounded each time a row is added.
    """
    from ..language.block import first as part
    from ..language.packed import LENGTH, get, loader, new, put, storer
    from ..language.prim import hash32, u32
    from ..language.rng import stream

    ld, load, store, wrapped = S.ld, loader(G), storer(G), wrapping()

    def run(thread, nthreads, args):
        random = stream(args.ctl, args.key) if args.ctl != 0 else u32(0)
        buffer, size = new(), args.outer * args.axis * args.inner
        low, high = part(size, thread, nthreads), part(size, thread + 1, nthreads)
        for o in range(args.outer):
            for i in range(args.count):
                index = wrapped(args.idx, i, args.axis)
                if index < 0 or index == args.padding:
                    continue
                source = (o * args.count + i) * args.inner
                target = (o * args.axis + index) * args.inner
                start, stop = max(target, low), min(target + args.inner, high)
                for first in range(start - (start & 63), stop, LENGTH):
                    m = min(LENGTH, size - first)
                    load(buffer, args.dx, first, m)
                    for j in range(max(start - first, 0), min(stop - first, LENGTH)):
                        put(buffer, j, get(buffer, j) + ld(args.dy, source + first + j - target))
                    store(args.dx, first, m, buffer, hash32(random, i))

    return run


@kernel("gather_bwd", _BACKWARD, check=_CHECK)
def gather_bwd(S, G):
    """dx[o, idx[i]] += dy[o, i] in the order of i, unless idx[i] is `padding` (-1: none).

    sr 1: stored with stochastic rounding, drawn by (i, element of dx). Threads split `outer` if
    there is enough of it for all of them, otherwise the columns of `inner`.
    """
    from ..language.block import first
    from ..language.prim import div, hash32, u32
    from ..language.rng import stream

    ld, old, st, sr_store, wrapped = S.ld, G.ld, G.st, G.sr, wrapping()

    def run(thread, nthreads, args):
        random = stream(args.ctl, args.key) if args.sr and args.ctl != 0 else u32(0)
        top, bottom, left, right = 0, args.outer, 0, args.inner
        if args.outer >= nthreads:
            top = div(args.outer * thread, nthreads)
            bottom = div(args.outer * (thread + 1), nthreads)
        else:
            left = first(args.inner, thread, nthreads)
            right = first(args.inner, thread + 1, nthreads)
        for o in range(top, bottom):
            for i in range(args.count):
                index = wrapped(args.idx, i, args.axis)
                if index < 0 or index == args.padding:
                    continue
                source = (o * args.count + i) * args.inner
                target = (o * args.axis + index) * args.inner
                if args.sr and args.ctl != 0:
                    for j in range(left, right):
                        value = old(args.dx, target + j) + ld(args.dy, source + j)
                        sr_store(args.dx, target + j, value, hash32(random, i))
                else:
                    for j in range(left, right):
                        st(args.dx, target + j, old(args.dx, target + j) + ld(args.dy, source + j))

    return run
