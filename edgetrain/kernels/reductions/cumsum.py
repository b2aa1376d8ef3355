"""Running sums along one axis."""

from ..registry import kernel


@kernel(
    "cumsum",
    "x:r:S[outer*n*inner] y:m:S[outer*n*inner] outer n inner exclusive=flag reverse=flag acc=flag",
    check="min(outer, n, inner) > 0",
)
def cumsum(S):
    """y[o, i, j] (+)= sum of x[o, k, j] over k <= i; reverse: k >= i; exclusive: without k = i.

    Float64 along the axis; threads split (outer, inner). y may be x if acc is 0. The gradient is
    the sum in the other direction.
    """
    from ..language.prim import div

    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        lines = args.outer * args.inner
        for line in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            o = div(line, args.inner)
            base, total = o * args.n * args.inner + (line - o * args.inner), 0.0
            for q in range(args.n):
                i = base + (args.n - 1 - q if args.reverse else q) * args.inner
                before = total
                total += float(ld(args.x, i))
                value = before if args.exclusive else total
                st(args.y, i, value + float(ld(args.y, i)) if args.acc else value)

    return run
