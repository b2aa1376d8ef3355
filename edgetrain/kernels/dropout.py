"""Dropout whose mask is never stored: both directions draw it again from the counter.

Element i is kept where the upper 24 bits of hash32(stream(ctl, key), i), as a fraction of 2^24, are
at least p. The same key in forward, recompute and backward gives the same mask.
"""

from .registry import kernel


def _kept(S):
    """apply(x, out, i, place, m, random, p, scale): buffer j = x[i + j] * scale where kept, else 0.

    The mask is that of the elements from `place` on.
    """
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from .jit import inline
    from .words.block import put
    from .words.mathf import ZERO
    from .words.prim import F32, I32, hash32

    ld = S.ld

    @intrinsic
    def fraction(typingctx, bits):
        def codegen(context, builder, signature, args):
            upper = builder.lshr(args[0], ir.Constant(I32, 8))
            return builder.fmul(builder.sitofp(upper, F32), ir.Constant(F32, 2.0**-24))

        return types.float32(types.uint32), codegen

    @inline
    def apply(x, out, i, place, m, random, p, scale):
        for j in range(m):
            value = ld(x, i + j) * scale
            put(out, j, ZERO if fraction(hash32(random, place + j)) < p else value)

    return apply


@kernel("dropout", "x:r:S[n] y:w:S[n] ctl:r:i64[64] key n p:f", check="n > 0")
def dropout(S):
    """y[i] = x[i] / (1 - p) where kept, else 0; 0 <= p <= 1 (p 1 drops all)."""
    from .words.block import BLOCK, first, get, new
    from .words.mathf import ONE
    from .words.rng import stream

    apply, st = _kept(S), S.st

    def run(thread, nthreads, k):
        random, out, scale = stream(k.ctl, k.key), new(), ONE / (ONE - k.p)
        stop = first(k.n, thread + 1, nthreads)
        for i in range(first(k.n, thread, nthreads), stop, BLOCK):
            m = min(BLOCK, stop - i)
            apply(k.x, out, i, i, m, random, k.p, scale)
            for j in range(m):
                st(k.y, i + j, get(out, j))

    return run


@kernel("dropout_bwd", "dy:r:S[n] dx:m:S[n] ctl:r:i64[64] key n p:f acc", check="n > 0")
def dropout_bwd(S):
    """dx[i] (+)= dy[i] / (1 - p) where `dropout` with this key kept element i, else 0."""
    from .words.block import BLOCK, first, get, new, put
    from .words.mathf import ONE
    from .words.rng import stream

    apply, ld, st = _kept(S), S.ld, S.st

    def run(thread, nthreads, k):
        random, out, scale = stream(k.ctl, k.key), new(), ONE / (ONE - k.p)
        stop = first(k.n, thread + 1, nthreads)
        for i in range(first(k.n, thread, nthreads), stop, BLOCK):
            m = min(BLOCK, stop - i)
            apply(k.dy, out, i, i, m, random, k.p, scale)
            if k.acc:
                for j in range(m):
                    put(out, j, get(out, j) + ld(k.dx, i + j))
            for j in range(m):
                st(k.dx, i + j, get(out, j))

    return run


_PART = "ctl:r:i64[64] key n span stride skip p:f"
_PART_CHECK = "min(n, span) > 0;n % span == 0;stride >= span;skip >= 0"


@kernel("dropout_part", f"x:r:S[n] y:w:S[n] {_PART}", check=_PART_CHECK)
def dropout_part(S):
    """As `dropout` of a larger array, of which x is a part: runs of `span` elements, which lie
    `stride` apart there from its element `skip` on."""
    from .words.block import BLOCK, first, get, new
    from .words.mathf import ONE
    from .words.prim import div, mod
    from .words.rng import stream

    apply, st = _kept(S), S.st

    def run(thread, nthreads, k):
        random, out, scale = stream(k.ctl, k.key), new(), ONE / (ONE - k.p)
        i, stop = first(k.n, thread, nthreads), first(k.n, thread + 1, nthreads)
        while i < stop:
            at = mod(i, k.span)
            m = min(min(BLOCK, stop - i), k.span - at)
            place = k.skip + div(i, k.span) * k.stride + at
            apply(k.x, out, i, place, m, random, k.p, scale)
            for j in range(m):
                st(k.y, i + j, get(out, j))
            i += m

    return run


@kernel("dropout_part_bwd", f"dy:r:S[n] dx:m:S[n] {_PART} acc", check=_PART_CHECK)
def dropout_part_bwd(S):
    """dx[i] (+)= dy[i] / (1 - p) where `dropout_part` with this key kept element i, else 0."""
    from .words.block import BLOCK, first, get, new, put
    from .words.mathf import ONE
    from .words.prim import div, mod
    from .words.rng import stream

    apply, ld, st = _kept(S), S.ld, S.st

    def run(thread, nthreads, k):
        random, out, scale = stream(k.ctl, k.key), new(), ONE / (ONE - k.p)
        i, stop = first(k.n, thread, nthreads), first(k.n, thread + 1, nthreads)
        while i < stop:
            at = mod(i, k.span)
            m = min(min(BLOCK, stop - i), k.span - at)
            place = k.skip + div(i, k.span) * k.stride + at
            apply(k.dy, out, i, place, m, random, k.p, scale)
            if k.acc:
                for j in range(m):
                    put(out, j, get(out, j) + ld(k.dx, i + j))
            for j in range(m):
                st(k.dx, i + j, get(out, j))
            i += m

    return run
