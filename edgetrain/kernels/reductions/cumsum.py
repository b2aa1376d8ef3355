"""Running sums along one axis."""

from ..registry import kernel


@kernel(
    "cumsum",
    "x:r:S[outer*n*inner] y:m:S[outer*n*inner] outer n inner exclusive=flag reverse=flag acc=flag",
    check="min(outer, n, inner) > 0",
)
def cumsum(S):
    """y[o, i, j] (+)= sum of x[o, k, j] over k <= i; reverse: k >= i; exclusive: without k = i.

    Float64 along the axis; threads split (outer, inner). y may be x where acc is 0. The gradient
    is the sum in the other direction.
    """
    from ..language.prim import div

    ld, st = S.ld, S.st

    def run(thread, nthreads, k):
        lines = k.outer * k.inner
        for line in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            o = div(line, k.inner)
            base, total = o * k.n * k.inner + (line - o * k.inner), 0.0
            for q in range(k.n):
                i = base + (k.n - 1 - q if k.reverse else q) * k.inner
                before = total
                total += float(ld(k.x, i))
                value = before if k.exclusive else total
                st(k.y, i, value + float(ld(k.y, i)) if k.acc else value)

    return run
