"""Reductions of a function of each element, in one kernel: intermediate values are never stored.

y is dense over the kept dims k; element (k, r) of x is at k . ks + r . rs, in backward that of dx
too. Terms are float32, their sum float64 in the order of r; threads split k.
"""

from ..registry import kernel

REDUCED = ("norm", "logsum", "logsumexp")
SCALED = ("sumsq", "l1")  # forward in reduce.py
PULLED = (*REDUCED, *SCALED)


def _forward(name):
    def factory(S):
        """norm: (sum |x|^p)^(1/p), computed from |x| / largest |x|, so that no power overflows or
        vanishes. logsum: log(sum x). logsumexp: log(sum exp x), relative to the largest x."""
        import numpy as np

        from ..language.block import BLOCK, get, larger, new
        from ..language.inlining import inline
        from ..language.mathf import INF, ONE, ZERO, exp, fabs, log, sqrt
        from ..language.power import power
        from ..language.prim import div
        from ..language.strided import count, filler, place

        st, fill, single = S.st, filler(S.ld), np.float32
        norm, summed = name == "norm", name == "logsum"

        @inline
        def term(v, top, p):
            if summed:
                return v
            if not norm:
                return exp(v - top)
            ratio = fabs(v) / top
            return ratio * ratio if p == single(2.0) else power(ratio, p)

        @inline
        def end(total, top, p):
            if summed:
                return log(total)
            if not norm:
                return top + log(total)
            return top * (sqrt(total) if p == single(2.0) else power(total, ONE / p))

        def run(thread, nthreads, args):
            values = new()
            nk, nr = count(args.k), count(args.r)
            for q in range(div(nk * thread, nthreads), div(nk * (thread + 1), nthreads)):
                offset, top, total = place(q, args.k, args.ks), ZERO if norm else -INF, 0.0
                for i in range(0, nr if not summed else 0, BLOCK):
                    m = min(BLOCK, nr - i)
                    fill(values, args.x, offset, i, m, args.r, args.rs)
                    for j in range(m):
                        v = get(values, j)
                        top = larger(top, fabs(v) if norm else v)
                if norm and not ZERO < top < INF:
                    st(args.y, q, top)
                    continue
                if not norm and fabs(top) == INF:
                    top = ZERO
                for i in range(0, nr, BLOCK):
                    m = min(BLOCK, nr - i)
                    fill(values, args.x, offset, i, m, args.r, args.rs)
                    for j in range(m):
                        total += np.float64(term(get(values, j), top, args.p))
                st(args.y, q, end(single(total), top, args.p))

        return run

    return factory


def _backward(name):
    def factory(S):
        """dx[k, r] (+)= dy[k] times: norm, sign(x) (|x| / y)^(p - 1), 0 if y is 0; logsum, 1 / the
        recomputed sum; logsumexp, exp(x - y); sumsq, 2 x; l1, sign(x)."""
        import numpy as np

        from ..language.block import BLOCK, get, new, put
        from ..language.inlining import inline
        from ..language.mathf import ONE, ZERO, copysign, exp, fabs
        from ..language.power import power
        from ..language.prim import div, u32
        from ..language.strided import count, filler, place, spiller

        ld, fill, spill, single = S.ld, filler(S.ld), spiller(S), np.float32
        norm, summed = name in ("norm", "l1"), name == "logsum"
        squares, signs = name == "sumsq", name == "l1"

        @inline
        def slope(v, y, p):
            if summed:
                return ONE / y
            if squares:
                return v + v
            if not norm:
                return exp(v - y)
            if y == ZERO or v == ZERO:
                return ZERO
            if signs:
                return copysign(ONE, v)
            if p == single(2.0):
                return v / y
            return copysign(power(fabs(v) / y, p - ONE), v)

        def run(thread, nthreads, args):
            values, old = new(), new()
            nk, nr = count(args.k), count(args.r)
            for q in range(div(nk * thread, nthreads), div(nk * (thread + 1), nthreads)):
                offset, y, dy, total = place(q, args.k, args.ks), ld(args.y, q), ld(args.dy, q), 0.0
                for i in range(0, nr if summed else 0, BLOCK):
                    m = min(BLOCK, nr - i)
                    fill(values, args.x, offset, i, m, args.r, args.rs)
                    for j in range(m):
                        total += np.float64(get(values, j))
                if summed:
                    y = single(total)
                for i in range(0, nr, BLOCK):
                    m = min(BLOCK, nr - i)
                    fill(values, args.x, offset, i, m, args.r, args.rs)
                    for j in range(m):
                        put(values, j, dy * slope(get(values, j), y, args.p))
                    if args.acc:
                        fill(old, args.dx, offset, i, m, args.r, args.rs)
                        for j in range(m):
                            put(values, j, get(values, j) + get(old, j))
                    spill(values, args.dx, offset, i, m, args.r, args.rs, u32(0))

        return run

    return factory


def _register() -> None:
    steps, y = "k[6] r[6] ks[6]=signed rs[6]=signed", "prod(k)"
    check = "least(k) > 0;least(r) > 0;covers(nx, 0, k, ks, r, rs);prod(k)*prod(r) <= nx"
    for name in REDUCED:
        operands = f"x:r:S[nx] y:w:S[{y}] p:f {steps} nx"
        kernel(f"reduce_{name}", operands, check=check)(_forward(name))
    for name in PULLED:
        operands = f"x:r:S[nx] y:r:S[{y}] dy:r:S[{y}] dx:m:S[nx] p:f {steps} nx acc=flag"
        kernel(f"reduce_{name}_bwd", operands, check=check)(_backward(name))


_register()
