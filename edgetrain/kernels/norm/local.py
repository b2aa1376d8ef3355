"""Local response normalisation across channels, and its gradient.

x is [n, c, s]. Channel j is in the window of channel i where -((size - 1) // 2) <= j - i <=
size // 2. d[i] = bias + alpha / size * sum of x[j]^2 over the window of i.
"""

from ..registry import kernel

_WIDTH = 16  # columns that are worked on together in backward
_CHECK = "min(n, c, s, size) > 0"
_WORK = "n*c*s*min(size, c)"


@kernel(
    "lrn",
    "x:r:S[n*c*s] y:w:S[n*c*s] n c s size alpha:f beta:f bias:f",
    check=_CHECK,
    work=_WORK,
)
def lrn(S):
    """y = x * d^-beta. Float32, the window in rising order; threads split (image, columns)."""
    from ..language.block import BLOCK, get, new, put
    from ..language.mathf import ZERO
    from ..language.number import fma
    from ..language.power import power
    from ..language.prim import div, to_float

    ld, st = S.ld, S.st

    def run(thread, nthreads, k):
        sums, scale = new(), k.alpha / to_float(k.size)
        before, after = div(k.size - 1, 2), div(k.size, 2)
        blocks = div(k.s + BLOCK - 1, BLOCK)
        for u in range(
            div(k.n * blocks * thread, nthreads), div(k.n * blocks * (thread + 1), nthreads)
        ):
            image = div(u, blocks)
            start = (u - image * blocks) * BLOCK
            m, base = min(BLOCK, k.s - start), image * k.c * k.s + start
            for i in range(k.c):
                for q in range(m):
                    put(sums, q, ZERO)
                for j in range(max(0, i - before), min(k.c, i + after + 1)):
                    for q in range(m):
                        v = ld(k.x, base + j * k.s + q)
                        put(sums, q, fma(v, v, get(sums, q)))
                for q in range(m):
                    v = ld(k.x, base + i * k.s + q)
                    st(
                        k.y,
                        base + i * k.s + q,
                        v * power(fma(scale, get(sums, q), k.bias), -k.beta),
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
    Float32, rising channels; threads split (image, columns). dx may be dy where acc is 0.
    """
    from ..language.mathf import ZERO
    from ..language.number import fma
    from ..language.power import power
    from ..language.prim import FP32, div, to_float

    ld, st, ldf, stf = S.ld, S.st, FP32.ld, FP32.st
    width = _WIDTH

    def run(thread, nthreads, k):
        scale, slope = k.alpha / to_float(k.size), (k.alpha + k.alpha) * k.beta / to_float(k.size)
        before, after = div(k.size - 1, 2), div(k.size, 2)
        terms = k.ws + 4 * width * k.c
        blocks = div(k.s + width - 1, width)
        for u in range(
            div(k.n * blocks * thread, nthreads), div(k.n * blocks * (thread + 1), nthreads)
        ):
            image = div(u, blocks)
            start = (u - image * blocks) * width
            m, base = min(width, k.s - start), image * k.c * k.s + start
            for i in range(k.c):
                for q in range(m):
                    total = ZERO
                    for j in range(max(0, i - before), min(k.c, i + after + 1)):
                        v = ld(k.x, base + j * k.s + q)
                        total = fma(v, v, total)
                    d = fma(scale, total, k.bias)
                    direct = ld(k.dy, base + i * k.s + q) * power(d, -k.beta)
                    stf(k.ws, i * width + q, direct)
                    stf(terms, i * width + q, direct * ld(k.x, base + i * k.s + q) / d)
            for j in range(k.c):
                for q in range(m):
                    total = ZERO
                    for i in range(max(0, j - after), min(k.c, j + before + 1)):
                        total += ldf(terms, i * width + q)
                    offset = base + j * k.s + q
                    value = fma(-slope * ld(k.x, offset), total, ldf(k.ws, j * width + q))
                    st(k.dx, offset, value + ld(k.dx, offset) if k.acc else value)

    return run
