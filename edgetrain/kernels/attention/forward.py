"""y = softmax(scale * q k^T + masks) v, a block of keys at a time.

For each query the largest score so far, the sum of exponentials above it and the sum of weighted
rows of v are carried from block to block and rescaled, in float32. Source: Milakov and Gimelshein
2018; Rabe and Staats 2021; Dao et al. 2022.
"""

from ..registry import kernel
from ..tiles import GEMM
from .layout import CHECK, COLUMNS, FORWARD, INPUTS, ROWS, SCALARS, WORK

_OPERANDS = f"{INPUTS} y:w:Y[ny] stat:w:f32[2*z1*z2*m] ws:t[{FORWARD}] {SCALARS}"


def _forward(lanes: int):
    def factory(Q, K, V, B, Y):
        """y [z1, z2, m, e]; stat [z1, z2, m, 2]: of each query the largest score and 1 / sum of
        exponentials above it; both 0 where `guard` gives zeros. Threads take blocks of queries
        in turn."""
        from ..gemm_tile import ADD, SET, Rows
        from ..jit import inline
        from ..words.block import get, new, put
        from ..words.lanes import loader, storer
        from ..words.mathf import INF, ONE, ZERO, exp
        from ..words.prim import FP32, div, mod
        from .panels import Matrix, clear, left, products, right, turned, whole
        from .scores import drop, hidden, inside, most, scores, total

        queries, keys, values = left(Q), turned(K, lanes), right(V, lanes)
        multiply, score = products(lanes), scores(B)
        ld32, st32, load, store = FP32.ld, FP32.st, loader(FP32.ld), storer(FP32.st)
        put_y = storer(Y.st)

        @inline
        def weigh(k, at, tile, sums, width, spots, r, z, h, count, buffers):
            """Row r of a tile of products becomes weights; what was summed is rescaled."""
            row, part = buffers
            i, j = at
            score(k, row, tile, r, z, h, i + r, j, count)
            for c in range(COLUMNS):
                put(part, c, get(row, c))
            old, high = ld32(spots, 2 * r), most(part)
            new_top = old if old > high or old != old else high
            if new_top == -INF:
                for c in range(COLUMNS):
                    put(row, c, ZERO)
                store(row, tile, r * COLUMNS, COLUMNS)
                return
            for c in range(COLUMNS):
                put(row, c, exp(get(row, c) - new_top))
                put(part, c, get(row, c))
            factor = exp(old - new_top)
            st32(spots, 2 * r, new_top)
            st32(spots, 2 * r + 1, ld32(spots, 2 * r + 1) * factor + total(part))
            if k.p != ZERO:
                drop(k, row, z, h, i + r, j, count)
            store(row, tile, r * COLUMNS, COLUMNS)
            if factor != ONE:
                for c in range(width):
                    st32(sums, r * width + c, ld32(sums, r * width + c) * factor)

        @inline
        def finish(k, sums, width, spots, rows, first, z, h, row):
            for r in range(rows):
                top, mass = ld32(spots, 2 * r), ld32(spots, 2 * r + 1)
                lost = k.guard != 0 and not mass > ZERO
                over = ZERO if lost else ONE / mass
                to, i = z * k.yz + h * k.yh + (first + r) * k.yr, (z * k.z2 + h) * k.m + first + r
                for c in range(0, k.e, COLUMNS):
                    count = min(COLUMNS, k.e - c)
                    load(row, sums, r * width + c, count, ZERO)
                    for x in range(COLUMNS):
                        put(row, x, ZERO if lost else get(row, x) * over)
                    put_y(row, k.y, to + c, count)
                st32(k.stat, 2 * i, ZERO if lost else top)
                st32(k.stat, 2 * i + 1, over)

        def run(thread, nthreads, k):
            row, part = new(), new()
            most_rows, width = min(ROWS, whole(k.m)), whole(k.e)
            tile = k.ws
            sums = tile + 4 * most_rows * COLUMNS
            spots = sums + 4 * most_rows * width
            q_panel = spots + 8 * most_rows
            k_panel = q_panel + 4 * most_rows * k.d
            v_panel = k_panel + 4 * COLUMNS * k.d
            blocks = div(k.m + ROWS - 1, ROWS)
            for task in range(thread, k.z1 * k.z2 * blocks, nthreads):
                zh, i = div(task, blocks), mod(task, blocks) * ROWS
                z, h = div(zh, k.z2), mod(zh, k.z2)
                rows, shared = min(ROWS, k.m - i), div(h, k.group)
                q = queries(Matrix(k.q, z * k.qz + h * k.qh, k.qr), i, rows, k.d, q_panel)
                km = Matrix(k.k, z * k.kz + shared * k.kh, k.kr)
                vm = Matrix(k.v, z * k.vz + shared * k.vh, k.vr)
                clear(sums, rows * width)
                for r in range(rows):
                    st32(spots, 2 * r, -INF)
                    st32(spots, 2 * r + 1, ZERO)
                for turn in range(1 if k.band == 0 else 2):
                    if turn == 1:  # queries that the band leaves nothing see all the rest
                        lost = False
                        for r in range(rows):
                            lost = lost or hidden(k, ld32(spots, 2 * r))
                        if not lost:
                            break
                    for j in range(0, k.n, COLUMNS):
                        count = min(COLUMNS, k.n - j)
                        if inside(k, i, rows, j, count) != (turn == 0):
                            continue
                        scored = Rows(tile, 4 * COLUMNS, 4)
                        columns = keys(km, j, count, k.d, k_panel)
                        multiply(q, columns, scored, rows, count, k.d, SET)
                        for r in range(rows):
                            weigh(k, (i, j), tile, sums, width, spots, r, z, h, count, (row, part))
                        weighted = values(vm, j, count, k.e, v_panel)
                        multiply(scored, weighted, Rows(sums, 4 * width, 4), rows, k.e, count, ADD)
                finish(k, sums, width, spots, rows, i, z, h, row)

        return run

    return factory


for _lanes in GEMM:
    kernel(
        "attention",
        _OPERANDS,
        variant=f"tiles{_lanes}",
        when=f"lanes == {_lanes}",
        check=CHECK,
        work=WORK,
    )(_forward(_lanes))
kernel("attention", _OPERANDS, check=CHECK, work=WORK)(_forward(0))
