"""softmax and log_softmax over the middle axis of [outer, n, inner], and their gradients.

The maximum is taken off first. Sums are float64, in the order of rows.py; threads split the work
items. y may be x, dx may be dy or y.
"""

from .registry import kernel

_CHECK = "min(outer, n, inner) > 0"
_SHAPE = "[outer*n*inner]"


def _forward(logarithm):
    def factory(S):
        """y = softmax(x), or its logarithm, along axis n."""
        import numpy as np

        from .block import add_wide, get, get_wide, larger, new, new_wide, put, put_wide, set_all
        from .mathf import ONE, exp, log
        from .prim import div
        from .rows import item, items, settling, width

        ld, st, settle_max, settle_sum = S.ld, S.st, settling(larger), settling(add_wide)

        def run(thread, nthreads, x, y, outer, n, inner):
            wide, top, last, out = new_wide(), new(), new(), new()
            count = items(outer, inner)
            for k in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
                base, used, blocks, step, length = item(k, n, inner)
                set_all(wide, used, -np.inf)
                for t in range(blocks):
                    for j in range(width(t, used, length)):
                        value = np.float64(ld(x, base + t * step + j))
                        put_wide(wide, j, larger(get_wide(wide, j), value))
                settle_max(wide, used, length)
                for j in range(used):
                    put(top, j, np.float32(get_wide(wide, j)))
                set_all(wide, used, 0.0)
                for t in range(blocks):
                    for j in range(width(t, used, length)):
                        term = exp(ld(x, base + t * step + j) - get(top, j))
                        put_wide(wide, j, get_wide(wide, j) + np.float64(term))
                settle_sum(wide, used, length)
                for j in range(used):
                    total = np.float32(get_wide(wide, j))
                    put(last, j, log(total) if logarithm else ONE / total)
                for t in range(blocks):
                    m = width(t, used, length)
                    for j in range(m):
                        value = ld(x, base + t * step + j) - get(top, j)
                        value = value - get(last, j) if logarithm else exp(value) * get(last, j)
                        put(out, j, value)
                    for j in range(m):
                        st(y, base + t * step + j, get(out, j))

        return run

    return factory


def _backward(logarithm):
    def factory(S):
        """dx (+)= y * (dy - sum(y * dy)), or of the logarithm dy - exp(y) * sum(dy)."""
        import numpy as np

        from .block import add_wide, get, get_wide, new, new_wide, put, put_wide, set_all
        from .mathf import exp
        from .prim import div
        from .rows import item, items, settling, width

        ld, st, settle = S.ld, S.st, settling(add_wide)

        def run(thread, nthreads, y, dy, dx, outer, n, inner, acc):
            wide, total, out = new_wide(), new(), new()
            count = items(outer, inner)
            for k in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
                base, used, blocks, step, length = item(k, n, inner)
                set_all(wide, used, 0.0)
                for t in range(blocks):
                    for j in range(width(t, used, length)):
                        at = base + t * step + j
                        term = ld(dy, at) if logarithm else ld(dy, at) * ld(y, at)
                        put_wide(wide, j, get_wide(wide, j) + np.float64(term))
                settle(wide, used, length)
                for j in range(used):
                    put(total, j, np.float32(get_wide(wide, j)))
                for t in range(blocks):
                    m, at = width(t, used, length), base + t * step
                    for j in range(m):
                        g, s = ld(dy, at + j), get(total, j)
                        v = ld(y, at + j)
                        put(out, j, g - exp(v) * s if logarithm else v * (g - s))
                    if acc:
                        for j in range(m):
                            put(out, j, get(out, j) + ld(dx, at + j))
                    for j in range(m):
                        st(dx, at + j, get(out, j))

        return run

    return factory


def _register() -> None:
    for name, logarithm in (("softmax", False), ("log_softmax", True)):
        operands = f"x:r:S{_SHAPE} y:w:S{_SHAPE} outer n inner"
        kernel(name, operands, check=_CHECK)(_forward(logarithm))
        operands = f"y:r:S{_SHAPE} dy:r:S{_SHAPE} dx:m:S{_SHAPE} outer n inner acc"
        kernel(f"{name}_bwd", operands, check=_CHECK)(_backward(logarithm))


_register()
