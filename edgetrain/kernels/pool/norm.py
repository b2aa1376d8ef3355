"""Windows' norms, (sum |x|^p)^(1/p), and their gradient; padding adds nothing."""

from ..registry import kernel
from .operands import BACKWARD_WORK, DILATED_CHECK, SIZES, WORK, X, Y


def _powers():
    """Inline (number, p): its power, and the root of one."""
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
    """y = norm of each window, of |x| over the largest of them, so that no power overflows or
    vanishes.

    Written: y whole. Threads split (image, channel). Order of a sum: rows, columns, float64.
    """
    import numpy as np

    from ..language.block import larger
    from ..language.inlining import inline
    from ..language.mathf import INF, ONE, ZERO, fabs
    from ..language.prim import div, mod

    ld, st, single, (raised, rooted) = S.ld, S.st, np.float32, _powers()

    @inline
    def largest(k, u, y0, x0):
        top = ZERO
        for r in range(k.kh):
            iy = y0 + r * k.dh
            if iy < 0 or iy >= k.h:
                continue
            for s in range(k.kw):
                ix = x0 + s * k.dw
                if ix >= 0 and ix < k.wd:
                    top = larger(top, fabs(ld(k.x, (u * k.h + iy) * k.wd + ix)))
        return top

    @inline
    def summed(k, u, y0, x0, top):
        total = 0.0
        for r in range(k.kh):
            iy = y0 + r * k.dh
            if iy < 0 or iy >= k.h:
                continue
            for s in range(k.kw):
                ix = x0 + s * k.dw
                if ix >= 0 and ix < k.wd:
                    v = fabs(ld(k.x, (u * k.h + iy) * k.wd + ix)) / top
                    total += np.float64(raised(v, k.p))
        return single(total)

    def run(thread, nthreads, k):
        planes = k.n * k.c
        for u in range(div(planes * thread, nthreads), div(planes * (thread + 1), nthreads)):
            for q in range(k.oh * k.ow):
                y0, x0 = div(q, k.ow) * k.sh - k.ph, mod(q, k.ow) * k.sw - k.pw
                top = largest(k, u, y0, x0)
                if ZERO < top < INF:
                    top = ONE if k.p == ONE else top
                    top = top * rooted(summed(k, u, y0, x0, top), k.p)
                st(k.y, u * k.oh * k.ow + q, top)

    return run


@kernel(
    "lppool_bwd",
    f"x:r:S{X} y:r:S{Y} dy:r:S{Y} dx:m:S{X} p:f {SIZES} dh dw acc=flag",
    check=DILATED_CHECK,
    work=BACKWARD_WORK,
)
def lppool_bwd(S):
    """dx (+)= sums over the windows of a pixel: sign(x) (|x| / y)^(p - 1) dy, 0 where y is 0.

    Written: dx whole. Threads split rows. Order of a sum: rows, columns, float32; what was in dx
    is added last.
    """
    from ..language.inlining import inline
    from ..language.mathf import ONE, ZERO, copysign, fabs
    from ..language.prim import div, mod

    ld, st, (raised, _) = S.ld, S.st, _powers()

    @inline
    def pulled(k, line, ix, v):
        """What the windows of one row of them give."""
        total = ZERO
        for s in range(k.kw):
            tx = ix + k.pw - s * k.dw
            if tx < 0 or mod(tx, k.sw) != 0 or div(tx, k.sw) >= k.ow:
                continue
            y = ld(k.y, line + div(tx, k.sw))
            if y != ZERO:
                slope = ONE if k.p == ONE else raised(fabs(v / y), k.p - ONE)
                total += copysign(slope, v) * ld(k.dy, line + div(tx, k.sw))
        return total

    def run(thread, nthreads, k):
        lines = k.n * k.c * k.h
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            u, iy = div(q, k.h), mod(q, k.h)
            for ix in range(k.wd):
                v, total = ld(k.x, q * k.wd + ix), ZERO
                for r in range(k.kh if v != ZERO else 0):
                    ty = iy + k.ph - r * k.dh
                    if ty >= 0 and mod(ty, k.sh) == 0 and div(ty, k.sh) < k.oh:
                        total += pulled(k, (u * k.oh + div(ty, k.sh)) * k.ow, ix, v)
                st(k.dx, q * k.wd + ix, total + ld(k.dx, q * k.wd + ix) if k.acc != 0 else total)

    return run
