"""Gradient of the queries: scores are recomputed, a block of keys at a time.

    dq = scale * sum over keys of  w (dw - delta) k,   w = exp(score - top) * over,   dw = dy . v

with delta = dy . y, which equals the sum of w dw. Source: Dao et al. 2022, appendix B.
"""

from ..language.tiles import GEMM
from ..registry import kernel
from .layout import CHECK, COLUMNS, INPUTS, QUERIES, ROWS, SCALARS, WORK, meeting

_STORAGES = meeting("QKVGD")
_OPERANDS = (
    f"{INPUTS} stat:r:f32[2*z1*z2*m] delta:r:f32[z1*z2*m] dy:r:G[ny] dq:w:D[nq] "
    f"ws:t[{QUERIES}] {SCALARS}"
)


@kernel(
    "attention_delta",
    "y:r:Y[ny] dy:r:G[ny] delta:w:f32[z1*z2*m] z1 z2 m e yz yh yr ny",
    check="min(z1, z2, m, e) >= 1;min(yz, yh, yr) >= 0;"
    "(z1-1)*yz + (z2-1)*yh + (m-1)*yr + e - 1 < ny;z1*z2*m*e <= ny",
    storages="Y == G",
)
def attention_delta(Y, G):
    """delta [z1, z2, m]: sums of y * dy over e, 64 chains added by halves. Threads split rows."""
    from ..language.block import get, new, put
    from ..language.lanes import LANES, loader
    from ..language.mathf import ZERO
    from ..language.prim import FP32, div, mod
    from .scores import total

    load_y, load_dy, st32 = loader(Y.ld), loader(G.ld), FP32.st

    def run(thread, nthreads, args):
        value, slope, sums = new(), new(), new()
        rows = args.z1 * args.z2 * args.m
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            zh, i = div(row, args.m), mod(row, args.m)
            offset = div(zh, args.z2) * args.yz + mod(zh, args.z2) * args.yh + i * args.yr
            for j in range(LANES):
                put(sums, j, ZERO)
            for c in range(0, args.e, LANES):
                count = min(LANES, args.e - c)
                load_y(value, args.y, offset + c, count, ZERO)
                load_dy(slope, args.dy, offset + c, count, ZERO)
                for j in range(LANES):
                    put(sums, j, get(sums, j) + get(value, j) * get(slope, j))
            st32(args.delta, row, total(sums))

    return run


def _queries(lanes: int):
    def factory(Q, K, V, B, G, D):
        """dq in q's layout, from the stat of `attention` and the delta of `attention_delta`.
        Threads take blocks of queries round-robin; blocks of keys are added in order."""
        from ..language.block import new
        from ..language.lanes import storer
        from ..language.prim import FP32, div
        from ..language.tile import ADD, SET, Rows
        from . import blocks
        from .panels import Matrix, clear, left, products, put_rows, right, turned, whole
        from .scores import hidden, inside, slopes

        queries, gradients, values = left(Q), left(G), turned(V, lanes)
        turned_keys, keys = turned(K, lanes), right(K, lanes)
        multiply, derive = products(lanes), slopes(B)
        store, put_dq = storer(FP32.st), put_rows(D)

        def run(thread, nthreads, args):
            row, slope = new(), new()
            most_rows, width = min(ROWS, whole(args.m)), whole(args.d)
            tile = args.ws
            part = tile + 4 * most_rows * COLUMNS
            sums = part + 4 * most_rows * COLUMNS
            q_panel = sums + 4 * most_rows * width
            dy_panel = q_panel + 4 * most_rows * args.d
            turned_panel = dy_panel + 4 * most_rows * args.e
            v_panel = turned_panel + 4 * COLUMNS * args.d
            k_panel = v_panel + 4 * COLUMNS * args.e
            for task in range(thread, blocks.block_count(args), nthreads):
                block = blocks.block_of(args, task)
                z, h, i, rows = block
                qm, shared = blocks.queries_of(args, z, h), div(h, args.group)
                q = queries(qm, i, rows, args.d, q_panel)
                dy = gradients(blocks.slopes_of(args, z, h), i, rows, args.e, dy_panel)
                km, vm = blocks.keys_of(args, z, shared), blocks.values_of(args, z, shared)
                clear(sums, rows * width)
                first = blocks.first_query(args, block)
                lost = args.band != 0 and hidden(args, args.stat, first, rows)
                for j in range(0, args.n, COLUMNS):
                    count = min(COLUMNS, args.n - j)
                    if not lost and not inside(args, i, rows, j, count):
                        continue
                    scored, weighed = Rows(tile, 4 * COLUMNS, 4), Rows(part, 4 * COLUMNS, 4)
                    columns = turned_keys(km, j, count, args.d, turned_panel)
                    multiply(q, columns, scored, rows, count, args.d, SET)
                    columns = values(vm, j, count, args.e, v_panel)
                    multiply(dy, columns, weighed, rows, count, args.e, SET)
                    for r in range(rows):
                        derive(args, row, slope, tile, part, r, z, h, i + r, j, count)
                        store(slope, tile, r * COLUMNS, COLUMNS)
                    result = keys(km, j, count, args.d, k_panel)
                    multiply(scored, result, Rows(sums, 4 * width, 4), rows, args.d, count, ADD)
                put_dq(row, sums, width, Matrix(args.dq, qm.offset, qm.row), i, rows, args.d)

        return run

    return factory


for _lanes in GEMM:
    kernel(
        "attention_dq",
        _OPERANDS,
        variant=f"tiles{_lanes}",
        when=f"lanes == {_lanes}",
        check=CHECK,
        work=WORK,
        storages=_STORAGES,
    )(_queries(_lanes))
kernel("attention_dq", _OPERANDS, check=CHECK, work=WORK, storages=_STORAGES)(_queries(0))
