"""Gradients of keys and values: scores are made again, a block of queries at a time.

    dv = sum over queries of  w dy,   dk = scale * sum over queries of  w (dw - delta) q

over every query head that shares the key head, in order; see queries.py.
"""

from ..registry import kernel
from ..tiles import GEMM
from .layout import CHECK, COLUMNS, INPUTS, KEYS, ROWS, SCALARS, WORK

_OPERANDS = (
    f"{INPUTS} stat:r:f32[2*z1*z2*m] delta:r:f32[z1*z2*m] dy:r:G[ny] dk?:w:D[nk] dv?:w:E[nv] "
    f"ws:t[{KEYS}] {SCALARS}"
)


def _keys(lanes: int):
    def factory(Q, K, V, B, G, D, E):
        """dk, dv as k and v lie. Threads take blocks of keys in turn; query heads of a key head and
        their blocks of queries are added in order."""
        from ..gemm_tile import ADD, SET, Rows
        from ..jit import inline
        from ..words.block import get, new, put
        from ..words.lanes import loader, storer
        from ..words.mathf import ZERO, exp
        from ..words.prim import FP32, div, mod
        from .panels import Matrix, clear, left, products, right, turned, whole
        from .scores import drop, hidden, inside, scores, unmoved

        queries, slopes = left(Q), left(G)
        turned_keys, values = turned(K, lanes), turned(V, lanes)
        flat_queries, flat_slopes = right(Q, lanes), right(G, lanes)
        multiply, score = products(lanes), scores(B)
        ld32, load, store = FP32.ld, loader(FP32.ld), storer(FP32.st)
        put_dk, put_dv = storer(D.st), storer(E.st)

        @inline
        def weigh(k, tile, part, r, z, h, i, j, count, row, slope):
            """Row r: scores become weights, gradients of weights those of scores."""
            at = (z * k.z2 + h) * k.m + i
            top, over, delta = ld32(k.stat, 2 * at), ld32(k.stat, 2 * at + 1), ld32(k.delta, at)
            score(k, row, tile, r, z, h, i, j, count)
            for c in range(COLUMNS):
                put(row, c, exp(get(row, c) - top) * over if over != ZERO else ZERO)
            load(slope, part, r * COLUMNS, count, ZERO)
            if k.p != ZERO:
                drop(k, slope, z, h, i, j, count)
            for c in range(COLUMNS):
                put(slope, c, get(row, c) * (get(slope, c) - delta) * k.scale)
            unmoved(k, slope, z, h, i, j, count)
            store(slope, part, r * COLUMNS, COLUMNS)
            if k.p != ZERO:
                drop(k, row, z, h, i, j, count)
            store(row, tile, r * COLUMNS, COLUMNS)

        @inline
        def needed(k, zh, i, rows, j, count):
            found = inside(k, i, rows, j, count)
            for r in range(0 if found else rows):
                found = found or hidden(k, ld32(k.stat, 2 * (zh * k.m + i + r)))
            return found

        def run(thread, nthreads, k):
            row, slope = new(), new()
            most_rows, wide, across = min(ROWS, whole(k.m)), whole(k.d), whole(k.e)
            tile = k.ws
            part = tile + 4 * most_rows * COLUMNS
            dk_sums = part + 4 * most_rows * COLUMNS
            dv_sums = dk_sums + 4 * COLUMNS * wide
            k_panel = dv_sums + 4 * COLUMNS * across
            v_panel = k_panel + 4 * COLUMNS * k.d
            q_panel = v_panel + 4 * COLUMNS * k.e
            dy_panel = q_panel + 4 * most_rows * k.d
            q_flat = dy_panel + 4 * most_rows * k.e
            dy_flat = q_flat + 4 * most_rows * wide
            blocks, heads = div(k.n + COLUMNS - 1, COLUMNS), div(k.z2, k.group)
            for task in range(thread, k.z1 * heads * blocks, nthreads):
                zs, j = div(task, blocks), mod(task, blocks) * COLUMNS
                z, shared = div(zs, heads), mod(zs, heads)
                count = min(COLUMNS, k.n - j)
                at = z * k.kz + shared * k.kh
                kt = turned_keys(Matrix(k.k, at, k.kr), j, count, k.d, k_panel)
                at = z * k.vz + shared * k.vh
                vt = values(Matrix(k.v, at, k.vr), j, count, k.e, v_panel)
                clear(dk_sums, COLUMNS * wide)
                clear(dv_sums, COLUMNS * across)
                for h in range(shared * k.group, (shared + 1) * k.group):
                    zh = z * k.z2 + h
                    qm = Matrix(k.q, z * k.qz + h * k.qh, k.qr)
                    ym = Matrix(k.dy, z * k.yz + h * k.yh, k.yr)
                    for i in range(0, k.m, ROWS):
                        rows = min(ROWS, k.m - i)
                        if not needed(k, zh, i, rows, j, count):
                            continue
                        found = queries(qm, i, rows, k.d, q_panel)
                        scored = Rows(tile, 4 * COLUMNS, 4)
                        multiply(found, kt, scored, rows, count, k.d, SET)
                        found = slopes(ym, i, rows, k.e, dy_panel)
                        weighed = Rows(part, 4 * COLUMNS, 4)
                        multiply(found, vt, weighed, rows, count, k.e, SET)
                        for r in range(rows):
                            weigh(k, tile, part, r, z, h, i + r, j, count, row, slope)
                        if k.dv != 0:
                            flat = flat_slopes(ym, i, rows, k.e, dy_flat)
                            out = Rows(dv_sums, 4 * across, 4)
                            multiply(Rows(tile, 4, 4 * COLUMNS), flat, out, count, k.e, rows, ADD)
                        if k.dk != 0:
                            flat = flat_queries(qm, i, rows, k.d, q_flat)
                            out = Rows(dk_sums, 4 * wide, 4)
                            multiply(Rows(part, 4, 4 * COLUMNS), flat, out, count, k.d, rows, ADD)
                for r in range(count):
                    to = z * k.kz + shared * k.kh + (j + r) * k.kr
                    for c in range(0, k.d if k.dk != 0 else 0, COLUMNS):
                        load(row, dk_sums, r * wide + c, min(COLUMNS, k.d - c), ZERO)
                        put_dk(row, k.dk, to + c, min(COLUMNS, k.d - c))
                    to = z * k.vz + shared * k.vh + (j + r) * k.vr
                    for c in range(0, k.e if k.dv != 0 else 0, COLUMNS):
                        load(row, dv_sums, r * across + c, min(COLUMNS, k.e - c), ZERO)
                        put_dv(row, k.dv, to + c, min(COLUMNS, k.e - c))

        return run

    return factory


for _lanes in GEMM:
    kernel(
        "attention_dkv",
        _OPERANDS,
        variant=f"tiles{_lanes}",
        when=f"lanes == {_lanes}",
        check=CHECK,
        work=WORK,
    )(_keys(_lanes))
kernel("attention_dkv", _OPERANDS, check=CHECK, work=WORK)(_keys(0))
