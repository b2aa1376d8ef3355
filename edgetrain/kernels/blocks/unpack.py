"""Converts between 8-bit blocks and the floats that other kernels read and write.

A weight is unpacked right before a layer reads it. Its gradient is summed in floats, then added to
the accumulator, whose blocks are rounded stochastically as a whole. A sparse layer has the slots
[pointers[0], pointers[groups]) of the pool; they are unpacked to, or packed from, a row of `room`
floats that starts with the first of them.
"""

from ..registry import in_blocks, kernel

_LAYER = "pointers:r:i32[groups+1]"
_CHECK = "min(slots, groups, room) > 0;room <= slots"


@kernel("unpack", "w:r:W[n] y:w:S[n] n", check="n > 0", blocks="W", storages=in_blocks("W"))
def unpack(W, S):
    """y[i] = w[i]; threads split blocks of 64."""
    from ..language.block import first as part
    from ..language.packed import LENGTH, get, loader, new

    load, st = loader(W), S.st

    def run(thread, nthreads, args):
        buffer, stop = new(), part(args.n, thread + 1, nthreads)
        for i in range(part(args.n, thread, nthreads), stop, LENGTH):
            m = min(LENGTH, stop - i)
            load(buffer, args.w, i, m)
            for j in range(m):
                st(args.y, i + j, get(buffer, j))

    return run


@kernel(
    "pack_add",
    "x:r:S[n] g:m:G[n] ctl:r:i64[64] n key=compared",
    check="n > 0",
    blocks="G",
    storages=in_blocks("G"),
)
def pack_add(S, G):
    """g[i] += x[i] in float32, rounded stochastically; threads split blocks of 64."""
    from ..language.block import first as part
    from ..language.packed import LENGTH, get, loader, new, put, storer
    from ..language.rng import stream

    load, store, ld = loader(G), storer(G), S.ld

    def run(thread, nthreads, args):
        buffer = new()
        stop = part(args.n, thread + 1, nthreads)
        numbers = stream(args.ctl, args.key)
        for i in range(part(args.n, thread, nthreads), stop, LENGTH):
            m = min(LENGTH, stop - i)
            load(buffer, args.g, i, m)
            for j in range(m):
                put(buffer, j, get(buffer, j) + ld(args.x, i + j))
            store(args.g, i, m, buffer, numbers)

    return run


@kernel(
    "csr_unpack",
    f"w:r:W[slots] {_LAYER} y:w:S[room] slots groups room",
    check=_CHECK,
    blocks="W",
    storages=in_blocks("W"),
)
def csr_unpack(W, S):
    """y[j] = w[pointers[0] + j] for a layer's slots; threads split them."""
    from ..language.block import first as part
    from ..language.prim import ld_i32

    ld, st = W.ld, S.st

    def run(thread, nthreads, args):
        start = ld_i32(args.pointers, 0)
        count = min(ld_i32(args.pointers, args.groups) - start, args.room)
        for j in range(part(count, thread, nthreads), part(count, thread + 1, nthreads)):
            st(args.y, j, ld(args.w, start + j))

    return run


@kernel(
    "csr_pack_add",
    f"x:r:S[room] g:m:G[slots] {_LAYER} ctl:r:i64[64] slots groups room key=compared",
    check=_CHECK,
    blocks="G",
    storages=in_blocks("G"),
)
def csr_pack_add(S, G):
    """g[pointers[0] + j] += x[j] for a layer's slots, in float32, rounded stochastically.

    A block at the layer's edge is rounded whole; its other numbers stay if its new scale still
    represents them. Threads split the blocks.
    """
    from ..language.packed import LENGTH, get, loader, new, put, storer
    from ..language.prim import div, ld_i32
    from ..language.rng import stream

    load, store, ld = loader(G), storer(G), S.ld

    def run(thread, nthreads, args):
        start = ld_i32(args.pointers, 0)
        stop = min(ld_i32(args.pointers, args.groups), start + args.room)
        if stop <= start:
            return
        buffer, numbers = new(), stream(args.ctl, args.key)
        low, blocks = start >> 6, ((stop + 63) >> 6) - (start >> 6)
        for b in range(div(blocks * thread, nthreads), div(blocks * (thread + 1), nthreads)):
            first = (low + b) * LENGTH
            m = min(LENGTH, args.slots - first)
            load(buffer, args.g, first, m)
            for j in range(max(start - first, 0), min(stop - first, LENGTH)):
                put(buffer, j, get(buffer, j) + ld(args.x, first + j - start))
            store(args.g, first, m, buffer, numbers)

    return run
