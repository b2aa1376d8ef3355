"""softmax and log_softmax over the middle axis of [outer, n, inner], and their gradients.

The maximum is taken off first. Sums are float64: with inner 1 over 64 partial sums and a fixed
tree, else along n in order. Threads split the work items of words/lanes.py. y may be x, dx may be
dy or y.
"""

from .registry import kernel

_CHECK = "min(outer, n, inner) > 0"
_SHAPE = "[outer*n*inner]"


def _forward(logarithm):
    def factory(S):
        """y = softmax(x), or its logarithm, along axis n."""
        import numpy as np

        from .words.block import get, get_wide, larger, new, new_wide, put, put_wide
        from .words.lanes import LANES, fold, item, items, loader, reset, storer, width
        from .words.mathf import INF, ONE, exp, log
        from .words.prim import div

        load, store = loader(S.ld), storer(S.st)
        fold_max, fold_sum = fold("max"), fold("add")

        def run(thread, nthreads, k):
            wide, top, last, value, power = new_wide(), new(), new(), new(), new()
            count = items(k.outer, k.inner)
            for i in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
                base, columns, blocks, step = item(i, k.n, k.inner)
                reset(wide, 0, -np.inf)
                for t in range(blocks):
                    load(value, k.x, base + t * step, width(t, columns, k.n), -INF)
                    for j in range(LANES):
                        put_wide(wide, j, larger(get_wide(wide, j), np.float64(get(value, j))))
                if columns == 0:
                    reset(wide, 0, fold_max(wide))
                for j in range(LANES):
                    put(top, j, np.float32(get_wide(wide, j)))
                reset(wide, 0, 0.0)
                for t in range(blocks):
                    if blocks > 1:
                        load(value, k.x, base + t * step, width(t, columns, k.n), -INF)
                    for j in range(LANES):
                        put(power, j, exp(get(value, j) - get(top, j)))
                        put_wide(wide, j, get_wide(wide, j) + np.float64(get(power, j)))
                if columns == 0:
                    reset(wide, 0, fold_sum(wide))
                for j in range(LANES):
                    total = np.float32(get_wide(wide, j))
                    put(last, j, log(total) if logarithm else ONE / total)
                for t in range(blocks):
                    m, at = width(t, columns, k.n), base + t * step
                    if blocks > 1:
                        load(value, k.x, at, m, -INF)
                    if logarithm:
                        for j in range(LANES):
                            put(power, j, get(value, j) - get(top, j) - get(last, j))
                    else:
                        if blocks > 1:
                            for j in range(LANES):
                                put(power, j, exp(get(value, j) - get(top, j)))
                        for j in range(LANES):
                            put(power, j, get(power, j) * get(last, j))
                    store(power, k.y, at, m)

        return run

    return factory


def _backward(logarithm):
    def factory(S):
        """dx (+)= y * (dy - sum(y * dy)), or of the logarithm dy - exp(y) * sum(dy)."""
        import numpy as np

        from .words.block import get, get_wide, new, new_wide, put, put_wide
        from .words.lanes import LANES, fold, item, items, loader, reset, storer, width
        from .words.mathf import ZERO, exp
        from .words.prim import div

        load, store, tree = loader(S.ld), storer(S.st), fold("add")

        def run(thread, nthreads, k):
            wide, total, value, slope, old = new_wide(), new(), new(), new(), new()
            count = items(k.outer, k.inner)
            for i in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
                base, columns, blocks, step = item(i, k.n, k.inner)
                reset(wide, 0, 0.0)
                for t in range(blocks):
                    m, at = width(t, columns, k.n), base + t * step
                    load(value, k.y, at, m, ZERO)
                    load(slope, k.dy, at, m, ZERO)
                    for j in range(LANES):
                        g = get(slope, j)
                        term = g if logarithm else g * get(value, j)
                        put_wide(wide, j, get_wide(wide, j) + np.float64(term))
                if columns == 0:
                    reset(wide, 0, tree(wide))
                for j in range(LANES):
                    put(total, j, np.float32(get_wide(wide, j)))
                for t in range(blocks):
                    m, at = width(t, columns, k.n), base + t * step
                    if blocks > 1:
                        load(value, k.y, at, m, ZERO)
                        load(slope, k.dy, at, m, ZERO)
                    for j in range(LANES):
                        v, g, s = get(value, j), get(slope, j), get(total, j)
                        put(slope, j, g - exp(v) * s if logarithm else v * (g - s))
                    if k.acc:
                        load(old, k.dx, at, m, ZERO)
                        for j in range(LANES):
                            put(slope, j, get(slope, j) + get(old, j))
                    store(slope, k.dx, at, m)

        return run

    return factory


def _register() -> None:
    for name, logarithm in (("softmax", False), ("log_softmax", True)):
        operands = f"x:r:S{_SHAPE} y:w:S{_SHAPE} outer n inner"
        kernel(name, operands, check=_CHECK)(_forward(logarithm))
        operands = f"y:r:S{_SHAPE} dy:r:S{_SHAPE} dx:m:S{_SHAPE} outer n inner acc"
        kernel(f"{name}_bwd", operands, check=_CHECK)(_backward(logarithm))


_register()
