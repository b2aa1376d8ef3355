"""The gradient of a product over any dimensions."""

from ..registry import kernel


@kernel(
    "reduce_prod_bwd",
    "x:r:S[nx] y:r:S[prod(k)] dy:r:S[prod(k)] dx:m:S[nx] k[6] r[6] "
    "ks[6]=signed rs[6]=signed nx acc=flag",
    check="least(k) > 0;least(r) > 0;covers(nx, 0, k, ks, r, rs);prod(k)*prod(r) <= nx",
)
def reduce_prod_bwd(S):
    """dx[k, r] (+)= dy[k] * product of x[k, s] over all s != r; x and dx have the same strides.

    Exact at zeros: a single zero gets the product of the rest. y is not read. The product is
    float64 in the order of r; threads split k.
    """
    from ..language.prim import div
    from ..language.strided import count, place

    ld, st = S.ld, S.st

    def run(thread, nthreads, args):
        nk, nr = count(args.k), count(args.r)
        for q in range(div(nk * thread, nthreads), div(nk * (thread + 1), nthreads)):
            offset, product, zeros = place(q, args.k, args.ks), 1.0, 0
            for r in range(nr):
                v = float(ld(args.x, offset + place(r, args.r, args.rs)))
                if v == 0.0:
                    zeros += 1
                else:
                    product *= v
            for r in range(nr):
                i = offset + place(r, args.r, args.rs)
                v = float(ld(args.x, i))
                if v == 0.0:
                    share = product if zeros == 1 else 0.0
                else:
                    share = product / v if zeros == 0 else 0.0
                value = float(ld(args.dy, q)) * share
                st(args.dx, i, value + float(ld(args.dx, i)) if args.acc else value)

    return run
