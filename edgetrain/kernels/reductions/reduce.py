"""Reductions over any dimensions of a strided tensor; the gradient of max and min."""

from ..registry import kernel

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "sumsq", "l1")


def _reduce(name):
    def factory(S):
        """y[k] = scale * reduction over r of f(x[k . ks + r . rs]); y is dense over dims k.

        f is x, x^2 (sumsq) or |x| (l1). Float64, in the order of language/reduction.py; threads
        split y.
        """
        from ..language import reduction
        from ..language.block import get, new, new_wide, put
        from ..language.mathf import fabs
        from ..language.prim import u32
        from ..language.strided import filler

        kinds = {"max": reduction.MAX, "min": reduction.MIN, "prod": reduction.PROD}
        fill, square, size = filler(S.ld), name == "sumsq", name == "l1"

        def block(buffers, addresses, origins, start, m, dims, steps):
            out = buffers[0]
            fill(out, addresses[0], origins[0], start, m, dims, steps[0])
            if square:
                for j in range(m):
                    put(out, j, get(out, j) * get(out, j))
            if size:
                for j in range(m):
                    put(out, j, fabs(get(out, j)))

        Walk, Result = reduction.Walk, reduction.Result
        reduce = reduction.reduction(block, kinds.get(name, reduction.SUM), S, 1)

        def run(thread, nthreads, args):
            kept, reduced = Walk(args.k, (args.ks,)), Walk(args.r, (args.rs,))
            to = Result(args.y, args.scale, 0, False, u32(0))
            reduce(thread, nthreads, (new(),), new_wide(), (args.x,), kept, reduced, to)

        return run

    return factory


def _extreme_bwd(S):
    """dx[k, r] (+)= dy[k] / ties if x[k, r] == y[k], else 0; x and dx have the same strides.

    `ties` is how many elements equal y[k]; a NaN in y[k] gives NaN to the row's NaNs. Threads split
    k; the count goes over r in order.
    """
    from ..language.block import BLOCK, get, new, put
    from ..language.mathf import ONE, ZERO
    from ..language.prim import div, to_float, u32
    from ..language.strided import count, filler, place, spiller

    ld, fill, spill = S.ld, filler(S.ld), spiller(S)

    def run(thread, nthreads, args):
        values, old = new(), new()
        nk, nr = count(args.k), count(args.r)
        for q in range(div(nk * thread, nthreads), div(nk * (thread + 1), nthreads)):
            offset = place(q, args.k, args.ks)
            extreme, ties, share = ld(args.y, q), 0, ZERO
            for t in range(2):
                for i in range(0, nr, BLOCK):
                    m = min(BLOCK, nr - i)
                    fill(values, args.x, offset, i, m, args.r, args.rs)
                    if t == 0:
                        for j in range(m):
                            ties += get(values, j) == extreme
                        continue
                    for j in range(m):
                        v = get(values, j)
                        put(values, j, share if v == extreme or v != v else ZERO)
                    if args.acc:
                        fill(old, args.dx, offset, i, m, args.r, args.rs)
                        for j in range(m):
                            put(values, j, get(values, j) + get(old, j))
                    spill(values, args.dx, offset, i, m, args.r, args.rs, u32(0))
                share = ld(args.y, q) * ZERO + ld(args.dy, q) * (ONE / to_float(max(ties, 1)))

    return run


def _register() -> None:
    steps, y = "k[6] r[6] ks[6]=signed rs[6]=signed", "prod(k)"
    check = "least(k) > 0;least(r) > 0;covers(nx, 0, k, ks, r, rs);prod(k)*prod(r) <= nx"
    for name in REDUCTIONS:
        operands = f"x:r:S[nx] y:w:S[{y}] scale:f {steps} nx"
        kernel(f"reduce_{name}", operands, check=check)(_reduce(name))
    operands = f"x:r:S[nx] y:r:S[{y}] dy:r:S[{y}] dx:m:S[nx] {steps} nx acc=flag"
    for name in ("max", "min"):
        kernel(f"reduce_{name}_bwd", operands, check=check)(_extreme_bwd)


_register()
