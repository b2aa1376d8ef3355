"""Rows of a sparse table taken by index (embeddings), and the gradient at the table's nonzeros.

The table [rows, channels] is a layer of the pool (formats/csr.py, pattern as in conv/csr.py with
one kernel element per channel); idx int32[count], y [count, channels]. Indices are as in gather.py:
a negative one counts from the end, one out of range reads zeros and receives no gradient.
"""

from ..registry import kernel
from .gather import IN_BLOCKS, wrapping

_PATTERN = "columns:r:I[slots] pointers:r:i32[rows*((channels+chunk-1)//chunk)+1]"
_SIZES = "count rows channels taps chunk slots"
_CHECK = "min(count, rows, channels, chunk, slots) > 0;taps == 1"


@kernel(
    "gather_csr",
    f"w:r:W[slots] {_PATTERN} idx:r:i32[count] y:w:S[count*channels] {_SIZES}",
    check=_CHECK,
    blocks="W",
)
def gather_csr(W, INDEX, S):
    """y[i] = table[idx[i]], with zeros outside the nonzeros. Threads split the rows of y."""
    from ..language.mathf import ZERO
    from ..language.prim import div, ld_i32

    ldw, ldc, st, wrapped = W.ld, INDEX.ld, S.st, wrapping()

    def run(thread, nthreads, args):
        chunks = div(args.channels + args.chunk - 1, args.chunk)
        for i in range(
            div(args.count * thread, nthreads), div(args.count * (thread + 1), nthreads)
        ):
            index, target = wrapped(args.idx, i, args.rows), i * args.channels
            for j in range(args.channels):
                st(args.y, target + j, ZERO)
            if index < 0:
                continue
            for q in range(chunks):
                group, first = index * chunks + q, target + q * args.chunk
                for e in range(ld_i32(args.pointers, group), ld_i32(args.pointers, group + 1)):
                    st(args.y, first + ldc(args.columns, e), ldw(args.w, e))

    return run


_BACKWARD = (
    f"idx:r:i32[count] dy:r:S[count*channels] {_PATTERN} dwt:m:G[slots] "
    f"ctl:r:i64[64] {_SIZES} key=compared"
)


@kernel("gather_csr_bwd", _BACKWARD, variant="blocks", when=IN_BLOCKS, check=_CHECK, blocks="G")
def gather_csr_bwd_blocks(S, INDEX, G):
    """Like the plain variant, for dwt in blocks, which threads split.

    A block is rounded each time a row is added.
    """
    from ..language.block import first as part
    from ..language.packed import LENGTH, get, loader, new, put, storer
    from ..language.prim import div, hash32, ld_i32
    from ..language.rng import stream

    ld, ldc, load, store, wrapped = S.ld, INDEX.ld, loader(G), storer(G), wrapping()

    def run(thread, nthreads, args):
        random, chunks = stream(args.ctl, args.key), div(args.channels + args.chunk - 1, args.chunk)
        low, high = part(args.slots, thread, nthreads), part(args.slots, thread + 1, nthreads)
        buffer = new()
        for i in range(args.count):
            index = wrapped(args.idx, i, args.rows)
            if index < 0:
                continue
            start = max(ld_i32(args.pointers, index * chunks), low)
            stop = min(ld_i32(args.pointers, (index + 1) * chunks), high)
            for first in range(start - (start & 63), stop, LENGTH):
                m = min(LENGTH, args.slots - first)
                load(buffer, args.dwt, first, m)
                for q in range(chunks):
                    group, source = index * chunks + q, i * args.channels + q * args.chunk
                    begin = max(ld_i32(args.pointers, group), start, first)
                    end = min(ld_i32(args.pointers, group + 1), stop, first + LENGTH)
                    for e in range(begin, end):
                        value = ld(args.dy, source + ldc(args.columns, e))
                        put(buffer, e - first, get(buffer, e - first) + value)
                store(args.dwt, first, m, buffer, hash32(random, i))

    return run


@kernel("gather_csr_bwd", _BACKWARD, check=_CHECK)
def gather_csr_bwd(S, INDEX, G):
    """dwt[e] += dy[i, column of e] for every nonzero e of row idx[i], in the order of i.

    Stored with stochastic rounding, drawn by (i, e). Threads split the rows of the table: each
    reads all indices and adds only its own rows.
    """
    from ..language.prim import div, hash32, ld_i32
    from ..language.rng import stream

    ld, ldc, old, sr_store, wrapped = S.ld, INDEX.ld, G.ld, G.sr, wrapping()

    def run(thread, nthreads, args):
        random, chunks = stream(args.ctl, args.key), div(args.channels + args.chunk - 1, args.chunk)
        low, high = div(args.rows * thread, nthreads), div(args.rows * (thread + 1), nthreads)
        for i in range(args.count):
            index = wrapped(args.idx, i, args.rows)
            if index < low or index >= high:
                continue
            numbers = hash32(random, i)
            for q in range(chunks):
                group, source = index * chunks + q, i * args.channels + q * args.chunk
                for e in range(ld_i32(args.pointers, group), ld_i32(args.pointers, group + 1)):
                    value = old(args.dwt, e) + ld(args.dy, source + ldc(args.columns, e))
                    sr_store(args.dwt, e, value, numbers)

    return run
