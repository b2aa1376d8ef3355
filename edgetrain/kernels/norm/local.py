"""Local response normalisation across channels, and its gradient.

x is [n, c, s]. Channel j is in the window of channel i if -((size - 1) // 2) <= j - i <= size // 2.
d[i] = bias + alpha / size * sum of x[j]^2 over the window of i.
"""

from ..registry import kernel

_WIDTH = 16  # columns that backward processes together
_CHECK = "min(n, c, s, size) > 0"
_WORK = "n*c*s*min(size, c)"


@kernel(
    "lrn",
    "x:r:S[n*c*s] y:w:S[n*c*s] n c s size alpha:f beta:f bias:f",
    check=_CHECK,
    work=_WORK,
)
def lrn(S):
    """y = x * d^-beta. Float32, the window in ascending order; threads split (image, columns)."""
    from ..language.block import BLOCK, get, new, put
    from ..language.mathf import ZERO
    from ..language.number import fma
    from ..language.power import power
    from ..language.prim import div, to_float

    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        sums, scale = new(), args.alpha / to_float(args.size)
        before, after = div(args.size - 1, 2), div(args.size, 2)
        blocks = div(args.s + BLOCK - 1, BLOCK)
        for u in range(
            div(args.n * blocks * thread, nthreads), div(args.n * blocks * (thread + 1), nthreads)
        ):
            image = div(u, blocks)
            start = (u - image * blocks) * BLOCK
            m, base = min(BLOCK, args.s - start), image * args.c * args.s + start
            for i in range(args.c):
                for q in range(m):
                    put(sums, q, ZERO)
                for j in range(max(0, i - before), min(args.c, i + after + 1)):
                    for q in range(m):
                        v = ld(args.x, base + j * args.s + q)
                        put(sums, q, fma(v, v, get(sums, q)))
                for q in range(m):
                    v = ld(args.x, base + i * args.s + q)
                    st(
                        args.y,
                        base + i * args.s + q,
                        v * power(fma(scale, get(sums, q), args.bias), -args.beta),
                    )

    return run


@kernel(
    "lrn_bwd",
    f"x:r:S[n*c*s] dy:r:S[n*c*s] dx:m:S[n*c*s] ws:t[8*{_WIDTH}*c] "
    "n c s size alpha:f beta:f bias:f acc=flag",
    check=_CHECK,
    work=_WORK,
)
def lrn_bwd(S):
    """dx[j] (+)= dy[j] * d[j]^-beta - 2 alpha beta / size * x[j] * sum of t[i] over i that see j.

    t[i] = dy[i] * x[i] * d[i]^(-beta - 1). Scratch: both factors of 16 columns of all channels.
    Float32, ascending channels; threads split (image, columns). dx may be dy if acc is 0.
    """
    from ..language.mathf import ZERO
    from ..language.number import fma
    from ..language.power import power
    from ..language.prim import FP32, div, to_float

    ld, st, ldf, stf = S.ld, S.st, FP32.ld, FP32.st
    width = _WIDTH

    def run(thread, nthreads, args):
        scale = args.alpha / to_float(args.size)
        slope = (args.alpha + args.alpha) * args.beta / to_float(args.size)
        before, after = div(args.size - 1, 2), div(args.size, 2)
        terms = args.ws + 4 * width * args.c
        blocks = div(args.s + width - 1, width)
        for u in range(
            div(args.n * blocks * thread, nthreads), div(args.n * blocks * (thread + 1), nthreads)
        ):
            image = div(u, blocks)
            start = (u - image * blocks) * width
            m, base = min(width, args.s - start), image * args.c * args.s + start
            for i in range(args.c):
                for q in range(m):
                    total = ZERO
                    for j in range(max(0, i - before), min(args.c, i + after + 1)):
                        v = ld(args.x, base + j * args.s + q)
                        total = fma(v, v, total)
                    d = fma(scale, total, args.bias)
                    direct = ld(args.dy, base + i * args.s + q) * power(d, -args.beta)
                    stf(args.ws, i * width + q, direct)
                    stf(terms, i * width + q, direct * ld(args.x, base + i * args.s + q) / d)
            for j in range(args.c):
                for q in range(m):
                    total = ZERO
                    for i in range(max(0, j - after), min(args.c, j + before + 1)):
                        total += ldf(terms, i * width + q)
                    offset = base + j * args.s + q
                    value = fma(-slope * ld(args.x, offset), total, ldf(args.ws, j * width + q))
                    st(args.dx, offset, value + ld(args.dx, offset) if args.acc else value)

    return run
