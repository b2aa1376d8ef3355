"""Local response normalisation across channels, and its gradient.

x is [n, c, s]. Channel j is in the window of channel i where -((size - 1) // 2) <= j - i <=
size // 2. d[i] = bias + alpha / size * sum of x[j]^2 over the window of i.
"""

from .registry import kernel

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
    from .words.block import BLOCK, get, new, put
    from .words.mathf import ZERO
    from .words.power import power
    from .words.prim import div, fma, to_float

    ld, st = S.ld, S.st

    def run(thread, nthreads, x, y, n, c, s, size, alpha, beta, bias):
        sums, scale = new(), alpha / to_float(size)
        before, after = div(size - 1, 2), div(size, 2)
        blocks = div(s + BLOCK - 1, BLOCK)
        for u in range(
            div(n * blocks * thread, nthreads), div(n * blocks * (thread + 1), nthreads)
        ):
            image = div(u, blocks)
            start = (u - image * blocks) * BLOCK
            m, base = min(BLOCK, s - start), image * c * s + start
            for i in range(c):
                for k in range(m):
                    put(sums, k, ZERO)
                for j in range(max(0, i - before), min(c, i + after + 1)):
                    for k in range(m):
                        v = ld(x, base + j * s + k)
                        put(sums, k, fma(v, v, get(sums, k)))
                for k in range(m):
                    v = ld(x, base + i * s + k)
                    st(y, base + i * s + k, v * power(fma(scale, get(sums, k), bias), -beta))

    return run


@kernel(
    "lrn_bwd",
    f"x:r:S[n*c*s] dy:r:S[n*c*s] dx:m:S[n*c*s] ws:t[8*{_WIDTH}*c] "
    "n c s size alpha:f beta:f bias:f acc",
    check=_CHECK,
    work=_WORK,
)
def lrn_bwd(S):
    """dx[j] (+)= dy[j] * d[j]^-beta - 2 alpha beta / size * x[j] * sum of t[i] over i that see j.

    t[i] = dy[i] * x[i] * d[i]^(-beta - 1). Scratch: both factors of 16 columns of all channels.
    Float32, rising channels; threads split (image, columns). dx may be dy where acc is 0.
    """
    from .words.mathf import ZERO
    from .words.power import power
    from .words.prim import FP32, div, fma, to_float

    ld, st, ldf, stf = S.ld, S.st, FP32.ld, FP32.st
    width = _WIDTH

    def run(thread, nthreads, x, dy, dx, ws, n, c, s, size, alpha, beta, bias, acc):
        scale, slope = alpha / to_float(size), (alpha + alpha) * beta / to_float(size)
        before, after = div(size - 1, 2), div(size, 2)
        terms = ws + 4 * width * c
        blocks = div(s + width - 1, width)
        for u in range(
            div(n * blocks * thread, nthreads), div(n * blocks * (thread + 1), nthreads)
        ):
            image = div(u, blocks)
            start = (u - image * blocks) * width
            m, base = min(width, s - start), image * c * s + start
            for i in range(c):
                for k in range(m):
                    total = ZERO
                    for j in range(max(0, i - before), min(c, i + after + 1)):
                        v = ld(x, base + j * s + k)
                        total = fma(v, v, total)
                    d = fma(scale, total, bias)
                    direct = ld(dy, base + i * s + k) * power(d, -beta)
                    stf(ws, i * width + k, direct)
                    stf(terms, i * width + k, direct * ld(x, base + i * s + k) / d)
            for j in range(c):
                for k in range(m):
                    total = ZERO
                    for i in range(max(0, j - after), min(c, j + before + 1)):
                        total += ldf(terms, i * width + k)
                    at = base + j * s + k
                    value = fma(-slope * ld(x, at), total, ldf(ws, j * width + k))
                    st(dx, at, value + ld(dx, at) if acc else value)

    return run
