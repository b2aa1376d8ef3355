"""Random numbers of a graph, drawn from a counter, so that a second run draws the same numbers.

Element i takes the upper 24 bits of hash32(stream(ctl, key), j): j is i for a uniform number, 2 i
and 2 i + 1 for the two of a normal one.
"""

from ..registry import kernel


def _fraction():
    """fraction(random, j): the j-th number of a stream in [0, 1), a multiple of 2^-24."""
    import numpy as np

    from ..language.inlining import inline
    from ..language.prim import hash32, to_float

    unit = np.float32(2.0**-24)

    @inline
    def fraction(random, j):
        return to_float(np.int64(hash32(random, j)) >> 8) * unit

    return fraction


@kernel("random_uniform", "y:w:S[n] ctl:r:i64[64] key=compared n low:f span:f", check="n > 0")
def random_uniform(S):
    """y[i] = low + span * u, u uniform in [0, 1)."""
    from ..language.block import first
    from ..language.elementwise_access import stores_apart
    from ..language.number import fma
    from ..language.rng import stream

    st, fraction = stores_apart(S), _fraction()

    def run(thread, nthreads, args):
        random = stream(args.ctl, args.key)
        for i in range(first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads)):
            st(args.y, i, fma(args.span, fraction(random, i), args.low))

    return run


@kernel("random_normal", "y:w:S[n] ctl:r:i64[64] key=compared n mean:f scale:f", check="n > 0")
def random_normal(S):
    """y[i] = mean + scale * z, z standard normal and at most 5.8. Source: Box and Muller 1958."""
    import numpy as np

    from ..language.block import first
    from ..language.elementwise_access import stores_apart
    from ..language.mathf import ONE, cos, log, sqrt
    from ..language.number import fma
    from ..language.rng import stream

    st, fraction = stores_apart(S), _fraction()
    minus_two, turn = np.float32(-2), np.float32(2 * np.pi)

    def run(thread, nthreads, args):
        random = stream(args.ctl, args.key)
        for i in range(first(args.n, thread, nthreads), first(args.n, thread + 1, nthreads)):
            radius = sqrt(minus_two * log(ONE - fraction(random, 2 * i)))
            z = radius * cos(turn * fraction(random, 2 * i + 1))
            st(args.y, i, fma(args.scale, z, args.mean))

    return run
