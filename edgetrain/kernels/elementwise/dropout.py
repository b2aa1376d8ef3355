"""Dropout whose mask is never stored: both directions draw it again from the counter.

Element i is kept if the upper 24 bits of hash32(stream(ctl, key), i), divided by 2^24, are at least
p. The same key in forward, recompute and backward gives the same mask.
"""

from ..registry import kernel

_GOLDEN = 0x9E3779B9  # of hash32: hash32(key, a + b) is hash32(key + a * _GOLDEN, b)


def _drawn(S):
    """draw(x, y, i, place, m, acc, random, p): y[i + j] (+)= x[i + j] / (1 - p) for j < m if
    element place + j is kept, else 0."""
    import numpy as np

    from ..language.elementwise_access import loads_apart, stores_apart
    from ..language.inlining import inline
    from ..language.mathf import ONE, ZERO
    from ..language.prim import hash32, to_float, to_int, u32
    from ..language.rng import upper24

    ld, st, one = loads_apart(S), stores_apart(S), np.float32(2**24)

    @inline
    def least(p):
        """The smallest upper 24 bits with which an element is kept."""
        bound = (p if p < ONE else ONE) * one
        bound = bound if bound > ZERO else ZERO
        below = to_int(bound)
        return u32(below + 1 if to_float(below) < bound else below)

    @inline
    def kept(x, i, j, key, bound, scale):
        value = ld(x, i) * scale
        # compare 24-bit integers: floats would be converted and scaled for every element
        return ZERO if upper24(hash32(key, j)) < bound else value

    @inline
    def draw(x, y, i, place, m, acc, random, p):
        scale, key, bound = ONE / (ONE - p), u32(np.int64(random) + place * _GOLDEN), least(p)
        if acc:
            for j in range(m):
                st(y, i + j, kept(x, i + j, j, key, bound, scale) + ld(y, i + j))
        else:
            for j in range(m):
                st(y, i + j, kept(x, i + j, j, key, bound, scale))

    return draw


@kernel("dropout", "x:r:S[n] y:w:S[n] ctl:r:i64[64] key=compared n p:f", check="n > 0")
def dropout(S):
    """y[i] = x[i] / (1 - p) if kept, else 0; 0 <= p <= 1 (p 1 drops all)."""
    from ..language.block import first
    from ..language.rng import stream

    draw = _drawn(S)

    def run(thread, nthreads, args):
        random, i = stream(args.ctl, args.key), first(args.n, thread, nthreads)
        m = first(args.n, thread + 1, nthreads) - i
        draw(args.x, args.y, i, i, m, 0, random, args.p)

    return run


@kernel(
    "dropout_bwd",
    "dy:r:S[n] dx:m:S[n] ctl:r:i64[64] key=compared n p:f acc=flag",
    check="n > 0",
)
def dropout_bwd(S):
    """dx[i] (+)= dy[i] / (1 - p) if `dropout` with this key kept element i, else 0."""
    from ..language.block import first
    from ..language.rng import stream

    draw = _drawn(S)

    def run(thread, nthreads, args):
        random, i = stream(args.ctl, args.key), first(args.n, thread, nthreads)
        m = first(args.n, thread + 1, nthreads) - i
        draw(args.dy, args.dx, i, i, m, args.acc, random, args.p)

    return run


_PART = "ctl:r:i64[64] key=compared n span stride skip p:f"
_PART_CHECK = "min(n, span) > 0;n % span == 0;stride >= span;skip >= 0"


def _parts(S):
    """walk(thread, nthreads, args, x, y, acc): process all runs of a thread."""
    from ..language.block import first
    from ..language.inlining import inline
    from ..language.prim import div, mod
    from ..language.rng import stream

    draw = _drawn(S)

    @inline
    def walk(thread, nthreads, args, x, y, acc):
        random = stream(args.ctl, args.key)
        i, stop = first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads)
        while i < stop:
            offset = mod(i, args.span)
            m = min(stop - i, args.span - offset)
            place = args.skip + div(i, args.span) * args.stride + offset
            draw(x, y, i, place, m, acc, random, args.p)
            i += m

    return walk


@kernel("dropout_part", f"x:r:S[n] y:w:S[n] {_PART}", check=_PART_CHECK)
def dropout_part(S):
    """Like `dropout` of a larger array that contains x as runs of `span` elements, `stride` apart,
    from its element `skip` on."""
    walk = _parts(S)

    def run(thread, nthreads, args):
        walk(thread, nthreads, args, args.x, args.y, 0)

    return run


@kernel("dropout_part_bwd", f"dy:r:S[n] dx:m:S[n] {_PART} acc=flag", check=_PART_CHECK)
def dropout_part_bwd(S):
    """dx[i] (+)= dy[i] / (1 - p) if `dropout_part` with this key kept element i, else 0."""
    walk = _parts(S)

    def run(thread, nthreads, args):
        walk(thread, nthreads, args, args.dy, args.dx, args.acc)

    return run
