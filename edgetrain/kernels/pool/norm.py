"""Norms of windows, (sum |x|^p)^(1/p), and their gradient; padding adds nothing."""

from ..registry import kernel
from .operands import BACKWARD_WORK, DILATED_CHECK, SIZES, WORK, X, Y


def _powers():
    """Two inline functions (v, p): v^p and v^(1/p)."""
    import numpy as np

    from ..language.inlining import inline
    from ..language.mathf import ONE, sqrt
    from ..language.power import power

    two = np.float32(2.0)

    @inline
    def raised(v, p):
        return v if p == ONE else v * v if p == two else power(v, p)

    @inline
    def rooted(v, p):
        return v if p == ONE else sqrt(v) if p == two else power(v, ONE / p)

    return raised, rooted


@kernel("lppool", f"x:r:S{X} y:w:S{Y} p:f {SIZES} dh dw", check=DILATED_CHECK, work=WORK)
def lppool(S):
    """y = norm of each window, computed from |x| / largest |x| of the window, so that no power
    overflows or vanishes.

    Written: all of y. Threads split (image, channel). Order of a sum: rows, columns, float64.
    """
    import numpy as np

    from ..language.block import larger
    from ..language.inlining import inline
    from ..language.mathf import INF, ONE, ZERO, fabs
    from ..language.prim import div, mod

    ld, st, single, (raised, rooted) = S.ld, S.st, np.float32, _powers()

    @inline
    def largest(args, u, y0, x0):
        top = ZERO
        for r in range(args.kh):
            iy = y0 + r * args.dh
            if iy < 0 or iy >= args.h:
                continue
            for s in range(args.kw):
                ix = x0 + s * args.dw
                if ix >= 0 and ix < args.wd:
                    top = larger(top, fabs(ld(args.x, (u * args.h + iy) * args.wd + ix)))
        return top

    @inline
    def summed(args, u, y0, x0, top):
        total = 0.0
        for r in range(args.kh):
            iy = y0 + r * args.dh
            if iy < 0 or iy >= args.h:
                continue
            for s in range(args.kw):
                ix = x0 + s * args.dw
                if ix >= 0 and ix < args.wd:
                    v = fabs(ld(args.x, (u * args.h + iy) * args.wd + ix)) / top
                    total += np.float64(raised(v, args.p))
        return single(total)

    def run(thread, nthreads, args):
        planes = args.n * args.c
        for u in range(div(planes * thread, nthreads), div(planes * (thread + 1), nthreads)):
            for q in range(args.oh * args.ow):
                y0, x0 = div(q, args.ow) * args.sh - args.ph, mod(q, args.ow) * args.sw - args.pw
                top = largest(args, u, y0, x0)
                if ZERO < top < INF:
                    top = ONE if args.p == ONE else top
                    top = top * rooted(summed(args, u, y0, x0, top), args.p)
                st(args.y, u * args.oh * args.ow + q, top)

    return run


@kernel(
    "lppool_bwd",
    f"x:r:S{X} y:r:S{Y} dy:r:S{Y} dx:m:S{X} p:f {SIZES} dh dw acc=flag",
    check=DILATED_CHECK,
    work=BACKWARD_WORK,
)
def lppool_bwd(S):
    """dx (+)= sum over the windows that cover a pixel of sign(x) (|x| / y)^(p - 1) dy, 0 if y is 0.

    Written: all of dx. Threads split rows. Order of a sum: rows, columns, float32; the previous dx
    is added last.
    """
    from ..language.inlining import inline
    from ..language.mathf import ONE, ZERO, copysign, fabs
    from ..language.prim import div, mod

    ld, st, (raised, _) = S.ld, S.st, _powers()

    @inline
    def pulled(args, line, ix, v):
        """Contribution of one row of windows."""
        total = ZERO
        for s in range(args.kw):
            tx = ix + args.pw - s * args.dw
            if tx < 0 or mod(tx, args.sw) != 0 or div(tx, args.sw) >= args.ow:
                continue
            y = ld(args.y, line + div(tx, args.sw))
            if y != ZERO:
                slope = ONE if args.p == ONE else raised(fabs(v / y), args.p - ONE)
                total += copysign(slope, v) * ld(args.dy, line + div(tx, args.sw))
        return total

    def run(thread, nthreads, args):
        lines = args.n * args.c * args.h
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            u, iy = div(q, args.h), mod(q, args.h)
            for ix in range(args.wd):
                v, total = ld(args.x, q * args.wd + ix), ZERO
                for r in range(args.kh if v != ZERO else 0):
                    ty = iy + args.ph - r * args.dh
                    if ty >= 0 and mod(ty, args.sh) == 0 and div(ty, args.sh) < args.oh:
                        total += pulled(args, (u * args.oh + div(ty, args.sh)) * args.ow, ix, v)
                st(
                    args.dx,
                    q * args.wd + ix,
                    total + ld(args.dx, q * args.wd + ix) if args.acc != 0 else total,
                )

    return run
