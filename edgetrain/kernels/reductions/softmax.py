"""softmax and log_softmax over the middle axis of [outer, n, inner], and their gradients.

The maximum is subtracted first. Sums are float64: with inner 1 over 64 partial sums and a fixed
tree, otherwise along n in order. Threads split the work items of language/lanes.py. y may be x, dx
may be dy or y.
"""

from ..registry import kernel

_CHECK = "min(outer, n, inner) > 0"
_SHAPE = "[outer*n*inner]"
_CHUNK = 16  # lanes that are processed at once at the end of a row


def _highest(S):
    """highest(args, base, step, blocks, whole, columns, top): the maximum of each lane, or of a row
    in all lanes. The maximum is never NaN: NaN elements make the sum NaN."""
    from ..language.elementwise_access import get, greatest, loads_apart, put
    from ..language.inlining import inline
    from ..language.lanes import LANES, width
    from ..language.mathf import INF

    ld = loads_apart(S)

    @inline
    def raise_to(args, offset, lane, m, top):
        for j in range(m):
            v = ld(args.x, offset + j)
            put(top, lane + j, v if v > get(top, lane + j) else get(top, lane + j))

    @inline
    def highest(args, base, step, blocks, full_blocks, columns, top):
        for j in range(LANES):
            put(top, j, -INF)
        for t in range(full_blocks):
            raise_to(args, base + t * step, 0, LANES, top)
        for t in range(full_blocks, blocks):
            raise_to(args, base + t * step, 0, width(t, columns, args.n), top)
        if columns == 0:
            most = greatest(top)
            for j in range(LANES):
                put(top, j, most)

    return highest


def _exact(S, logarithm):
    """Whether y can hold e^(x - top) exactly, so that it is computed once; with other storages it
    is computed once if a row is no longer than a buffer."""
    return S.single and not logarithm


def _added(S, logarithm):
    """add(args, base, step, blocks, whole, columns, top, wide, kept): add e^(x - top) of all blocks
    to the lanes of `wide`; `kept` holds the last ones at each position of a buffer."""
    import numpy as np

    from ..language.block import BLOCK
    from ..language.elementwise_access import (
        get,
        get_wide,
        loads_apart,
        put,
        put_wide,
        stores_apart,
    )
    from ..language.inlining import inline
    from ..language.lanes import LANES, width
    from ..language.mathf import ZERO, exp
    from ..language.prim import mod

    ld, st, exact = loads_apart(S), stores_apart(S), _exact(S, logarithm)

    @inline
    def add_whole(args, offset, slot, top, wide, kept):
        for j in range(LANES):
            e = exp(ld(args.x, offset + j) - get(top, j))
            put(kept, slot + j, e)
            if exact:
                st(args.y, offset + j, e)
        for j in range(LANES):
            put_wide(wide, j, get_wide(wide, j) + np.float64(get(kept, slot + j)))

    @inline
    def add_part(args, offset, m, lane, slot, top, wide, kept):
        """Add lanes from `lane` on; m of them are valid, the others count as 0."""
        for j in range(_CHUNK):
            e = exp(ld(args.x, offset + min(j, m - 1)) - get(top, lane + j))
            put(kept, slot + j, e if j < m else ZERO)
        for j in range(_CHUNK):
            e = np.float64(get(kept, slot + j))
            put_wide(wide, lane + j, get_wide(wide, lane + j) + e)
        if exact:
            for j in range(m):  # the addition keeps the loop from becoming a call of memcpy
                st(args.y, offset + j, get(kept, slot + j) + ZERO)

    @inline
    def add(args, base, step, blocks, full_blocks, columns, top, wide, kept):
        for t in range(full_blocks):
            add_whole(args, base + t * step, mod(t * LANES, BLOCK), top, wide, kept)
        for t in range(full_blocks, blocks):
            m, offset, slot = width(t, columns, args.n), base + t * step, mod(t * LANES, BLOCK)
            for q in range(0, m, _CHUNK):
                add_part(args, offset + q, min(_CHUNK, m - q), q, slot + q, top, wide, kept)

    return add


def _finished(S, logarithm):
    """finish(args, offset, m, slot, again, top, last, kept): store m lanes from `offset` on."""
    from ..language.elementwise_access import get, loads_apart, stores_apart
    from ..language.inlining import inline
    from ..language.mathf import exp

    ld, stored, st, exact = loads_apart(S), S.ld, stores_apart(S), _exact(S, logarithm)

    @inline
    def finish(args, offset, m, slot, again, top, last, kept):
        if logarithm:
            for j in range(m):
                st(args.y, offset + j, ld(args.x, offset + j) - get(top, j) - get(last, j))
        elif exact:
            for j in range(m):
                st(args.y, offset + j, stored(args.y, offset + j) * get(last, j))
        elif again:
            for j in range(m):
                st(args.y, offset + j, exp(ld(args.x, offset + j) - get(top, j)) * get(last, j))
        else:
            for j in range(m):
                st(args.y, offset + j, get(kept, slot + j) * get(last, j))

    return finish


def _forward(logarithm):
    def factory(S):
        """y = softmax(x), or its logarithm, along axis n."""
        import numpy as np

        from ..language.block import BLOCK, new, new_wide
        from ..language.elementwise_access import full, get_wide, put
        from ..language.inlining import inline
        from ..language.lanes import LANES, fold, item, items, reset, width
        from ..language.mathf import ONE, log
        from ..language.prim import div, mod

        highest, tree = _highest(S), fold("add")
        add, finish = _added(S, logarithm), _finished(S, logarithm)

        @inline
        def final(total):
            return log(np.float32(total)) if logarithm else ONE / np.float32(total)

        @inline
        def conclude(columns, wide, last):
            """The factor of each lane's results, or with logarithm what is subtracted from them."""
            if columns == 0:
                factor = final(tree(wide))
                for j in range(LANES):
                    put(last, j, factor)
            else:
                for j in range(LANES):
                    put(last, j, final(get_wide(wide, j)))

        def run(thread, nthreads, args):
            wide, top, last, kept = new_wide(), new(), new(), new()
            every = items(args.outer, args.inner)
            for i in range(div(every * thread, nthreads), div(every * (thread + 1), nthreads)):
                base, columns, blocks, step = item(i, args.n, args.inner)
                full_blocks = full(columns, blocks, args.n)
                highest(args, base, step, blocks, full_blocks, columns, top)
                reset(wide, 0, 0.0)
                add(args, base, step, blocks, full_blocks, columns, top, wide, kept)
                conclude(columns, wide, last)
                again = blocks * LANES > BLOCK
                for t in range(full_blocks):
                    slot = mod(t * LANES, BLOCK)
                    finish(args, base + t * step, LANES, slot, again, top, last, kept)
                for t in range(full_blocks, blocks):
                    m, slot = width(t, columns, args.n), mod(t * LANES, BLOCK)
                    finish(args, base + t * step, m, slot, again, top, last, kept)

        return run

    return factory


def _backward(logarithm):
    def factory(S):
        """dx (+)= y * (dy - sum(y * dy)), or for the logarithm dy - exp(y) * sum(dy)."""
        import numpy as np

        from ..language.block import new, new_wide
        from ..language.elementwise_access import (
            full,
            get,
            get_wide,
            loads_apart,
            put,
            put_wide,
            stores_apart,
        )
        from ..language.inlining import inline
        from ..language.lanes import LANES, fold, item, items, reset, width
        from ..language.mathf import exp
        from ..language.prim import div

        ld, st, tree = loads_apart(S), stores_apart(S), fold("add")

        @inline
        def add(args, offset, m, wide):
            for j in range(m):
                g = ld(args.dy, offset + j)
                term = g if logarithm else g * ld(args.y, offset + j)
                put_wide(wide, j, get_wide(wide, j) + np.float64(term))

        @inline
        def slope(args, offset, total):
            v, g = ld(args.y, offset), ld(args.dy, offset)
            return g - exp(v) * total if logarithm else v * (g - total)

        @inline
        def finish_row(args, base, total):
            if args.acc:
                for j in range(base, base + args.n):
                    st(args.dx, j, slope(args, j, total) + ld(args.dx, j))
            else:
                for j in range(base, base + args.n):
                    st(args.dx, j, slope(args, j, total))

        @inline
        def finish(args, offset, m, total):
            if args.acc:
                for j in range(m):
                    at = offset + j
                    st(args.dx, at, slope(args, at, get(total, j)) + ld(args.dx, at))
            else:
                for j in range(m):
                    st(args.dx, offset + j, slope(args, offset + j, get(total, j)))

        def run(thread, nthreads, args):
            wide, total = new_wide(), new()
            count = items(args.outer, args.inner)
            for i in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
                base, columns, blocks, step = item(i, args.n, args.inner)
                reset(wide, 0, 0.0)
                full_blocks = full(columns, blocks, args.n)
                for t in range(full_blocks):
                    add(args, base + t * step, LANES, wide)
                for t in range(full_blocks, blocks):
                    add(args, base + t * step, width(t, columns, args.n), wide)
                if columns == 0:
                    finish_row(args, base, np.float32(tree(wide)))
                    continue
                for j in range(LANES):
                    put(total, j, np.float32(get_wide(wide, j)))
                for t in range(blocks):
                    finish(args, base + t * step, columns, total)

        return run

    return factory


def _register() -> None:
    for name, logarithm in (("softmax", False), ("log_softmax", True)):
        operands = f"x:r:S{_SHAPE} y:w:S{_SHAPE} outer n inner"
        kernel(name, operands, check=_CHECK)(_forward(logarithm))
        operands = f"y:r:S{_SHAPE} dy:r:S{_SHAPE} dx:m:S{_SHAPE} outer n inner acc=flag"
        kernel(f"{name}_bwd", operands, check=_CHECK)(_backward(logarithm))


_register()
