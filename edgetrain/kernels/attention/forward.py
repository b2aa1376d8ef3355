"""y = softmax(scale * q k^T + masks) v, a block of keys at a time.

Each query carries three float32 quantities from block to block and rescales them: the largest score
so far, the sum of exponentials relative to it, and the sum of weighted rows of v. Source: Milakov
and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022.
"""

from ..language.tiles import GEMM
from ..registry import kernel
from .layout import CHECK, COLUMNS, FORWARD, INPUTS, ROWS, SCALARS, WORK, meeting

_STORAGES = meeting("QKVY")
_OPERANDS = f"{INPUTS} y:w:Y[ny] stat:w:f32[2*z1*z2*m] ws:t[{FORWARD}] {SCALARS}"


def _forward(lanes: int):
    def factory(Q, K, V, B, Y):
        """y [z1, z2, m, e]; stat [z1, z2, m, 2]: each query's largest score and 1 / sum of
        exponentials relative to it, both 0 if `guard` zeroes the query. Threads take blocks of
        queries round-robin."""
        from ..language.block import new
        from ..language.prim import div
        from ..language.tile import ADD, SET, Rows
        from .blocks import block_count, block_of, keys_of, queries_of, values_of
        from .panels import left, products, right, turned, whole
        from .running import Running, begin, finisher, weigher
        from .scores import hidden, inside

        queries, keys, values = left(Q), turned(K, lanes), right(V, lanes)
        multiply, weigh, finish = products(lanes), weigher(B), finisher(Y)

        def run(thread, nthreads, args):
            row, part = new(), new()
            most_rows, width = min(ROWS, whole(args.m)), whole(args.e)
            tile = args.ws
            sums = tile + 4 * most_rows * COLUMNS
            spots = sums + 4 * most_rows * width
            q_panel = spots + 8 * most_rows
            k_panel = q_panel + 4 * most_rows * args.d
            v_panel = k_panel + 4 * COLUMNS * args.d
            state = Running(tile, sums, spots, width)
            for task in range(thread, block_count(args), nthreads):
                block = block_of(args, task)
                z, i, rows, shared = block.z, block.i, block.rows, div(block.h, args.group)
                q = queries(queries_of(args, z, block.h), i, rows, args.d, q_panel)
                km, vm = keys_of(args, z, shared), values_of(args, z, shared)
                begin(state, rows)
                for turn in range(1 if args.band == 0 else 2):
                    # queries that see nothing in the band see all remaining keys
                    if turn == 1 and not hidden(args, spots, 0, rows):
                        break
                    for j in range(0, args.n, COLUMNS):
                        count = min(COLUMNS, args.n - j)
                        if inside(args, i, rows, j, count) != (turn == 0):
                            continue
                        scored = Rows(tile, 4 * COLUMNS, 4)
                        columns = keys(km, j, count, args.d, k_panel)
                        multiply(q, columns, scored, rows, count, args.d, SET)
                        for r in range(rows):
                            weigh(args, state, block, r, j, count, row, part)
                        weighted = values(vm, j, count, args.e, v_panel)
                        multiply(
                            scored, weighted, Rows(sums, 4 * width, 4), rows, args.e, count, ADD
                        )
                finish(args, state, block, row)

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
        storages=_STORAGES,
    )(_forward(_lanes))
kernel("attention", _OPERANDS, check=CHECK, work=WORK, storages=_STORAGES)(_forward(0))
