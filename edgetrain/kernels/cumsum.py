"""Running sums along one axis."""

from .registry import kernel


@kernel(
    "cumsum",
    "x:r:S[outer*n*inner] y:m:S[outer*n*inner] outer n inner exclusive reverse acc",
    check="min(outer, n, inner) > 0",
)
def cumsum(S):
    """y[o, i, j] (+)= sum of x[o, k, j] over k <= i; reverse: k >= i; exclusive: without k = i.

    Float64 along the axis; threads split (outer, inner). y may be x where acc is 0. The gradient
    is the sum in the other direction.
    """
    from .words.prim import div

    ld, st = S.ld, S.st

    def run(thread, nthreads, x, y, outer, n, inner, exclusive, reverse, acc):
        lines = outer * inner
        for line in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            o = div(line, inner)
            base, total = o * n * inner + (line - o * inner), 0.0
            for k in range(n):
                i = base + (n - 1 - k if reverse else k) * inner
                before = total
                total += float(ld(x, i))
                value = before if exclusive else total
                st(y, i, value + float(ld(y, i)) if acc else value)

    return run
