"""Packs values that backward reads into blocks of 8 bits between forward and backward.

`unpack` (unpack.py) unpacks them right before they are read. Number i is rounded by the random
stream of the step and microbatch, so packing again gives the same bits.
"""

from ..registry import in_blocks, kernel


@kernel(
    "pack",
    "x:r:S[n] y:w:W[n] ctl:r:i64[64] n key=compared",
    check="n > 0",
    blocks="W",
    storages=in_blocks("W"),
)
def pack(S, W):
    """y[i] = x[i], rounded stochastically; threads split blocks of 64."""
    from ..language.block import first as part
    from ..language.packed import LENGTH, loader, new, storer
    from ..language.rng import stream

    load, store = loader(S), storer(W)

    def run(thread, nthreads, args):
        buffer = new()
        stop = part(args.n, thread + 1, nthreads)
        numbers = stream(args.ctl, args.key)
        for i in range(part(args.n, thread, nthreads), stop, LENGTH):
            m = min(LENGTH, stop - i)
            load(buffer, args.x, i, m)
            store(args.y, i, m, buffer, numbers)

    return run


_X = "[n*c*s]"


@kernel(
    "pack_sides",
    f"x:r:S{_X} stat?:r:f32[3*c] gamma?:r:f32[c] beta?:r:f32[c] y:w:W{_X} ctl:r:i64[64] "
    "n c s act=activation lo:f hi:f key=compared",
    check="min(n, c, s) > 0",
    blocks="W",
    storages=in_blocks("W"),
)
def pack_sides(S, W):
    """`pack` of [n, c, s] without rounding across a kink of an activation of z.

    If y would be beyond a kink, x's other neighbour is stored. act: 1 and 6 have a kink at 0, 2 at
    lo and hi, 3 at -3 and 3 (language/fused_activation.py). If stat is absent, z = x, else

        z = gamma * (x - mean) * invstd + beta
    """
    from ..language.block import first as part
    from ..language.fused_activation import (
        CLIP,
        HARDSWISH,
        ONE,
        THREE,
        ZERO,
        norm_scale,
        norm_shift,
    )
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.packed import BYTES, LENGTH, get, loader, new, storer
    from ..language.prim import div, ld_u8, mod, st_u8
    from ..language.rng import stream

    load, store, load_back = loader(S), storer(W), loader(W)

    @inline
    def kinks(args):
        if args.act == CLIP:
            return args.lo, args.hi
        if args.act == HARDSWISH:
            return -THREE, THREE
        return ZERO, ZERO

    @inline
    def line(args, ch):
        if args.stat == 0:
            return ONE, ZERO
        return (
            norm_scale(args.stat, args.gamma, ch, args.c),
            norm_shift(args.stat, args.gamma, args.beta, ch, args.c),
        )

    def run(thread, nthreads, args):
        total, numbers = args.n * args.c * args.s, stream(args.ctl, args.key)
        before, after = new(), new()
        low, high = kinks(args)
        one_bound = args.act != CLIP and args.act != HARDSWISH
        start, stop = part(total, thread, nthreads), part(total, thread + 1, nthreads)
        ch, position = mod(div(start, args.s), args.c), mod(start, args.s)
        a, b = line(args, ch)
        for i in range(start, stop, LENGTH):
            m = min(LENGTH, stop - i)
            load(before, args.x, i, m)
            store(args.y, i, m, before, numbers)
            load_back(after, args.y, i, m)
            place = (i >> 6) * BYTES
            for j in range(m):
                if position == args.s:
                    position, ch = 0, ch + 1 if ch + 1 < args.c else 0
                    a, b = line(args, ch)
                position += 1
                x, y = get(before, j), get(after, j)
                zx, zy = fma(x, a, b), fma(y, a, b)
                crossed = (zx > low) != (zy > low) or (
                    not one_bound and (zx >= high) != (zy >= high)
                )
                if crossed and x - x == ZERO and y - y == ZERO:
                    byte = ld_u8(args.y, place + j)
                    st_u8(args.y, place + j, byte + 1 if x > y else byte + 255)

    return run
