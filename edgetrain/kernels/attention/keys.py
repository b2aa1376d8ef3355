"""Gradients of keys and values: scores are recomputed, a block of queries at a time.

    dv = sum over queries of  w dy,   dk = scale * sum over queries of  w (dw - delta) q

over every query head that shares the key head, in order; see queries.py.
"""

from typing import NamedTuple

from ..language.tiles import GEMM
from ..registry import kernel
from .layout import CHECK, COLUMNS, INPUTS, KEYS, ROWS, SCALARS, WORK, meeting

_STORAGES = meeting("QKVGDE")
_OPERANDS = (
    f"{INPUTS} stat:r:f32[2*z1*z2*m] delta:r:f32[z1*z2*m] dy:r:G[ny] dk?:w:D[nk] dv?:w:E[nv] "
    f"ws:t[{KEYS}] {SCALARS}"
)


class _Room(NamedTuple):
    """Scratch. Addresses of tiles of scores (tile) and of gradients of weights (part), of sums, of
    panels of queries and gradients of y as left factors (_panel) and as right ones (_flat); then
    the floats of a row of dk_sums (wide) and of dv_sums (across)."""

    tile: int
    part: int
    dk_sums: int
    dv_sums: int
    q_panel: int
    dy_panel: int
    q_flat: int
    dy_flat: int
    wide: int
    across: int


def _adder(Q, B, G, lanes: int):
    """Inline (args, room, block, j, count, keys, values, row, slope): add a block of queries to the
    sums of `count` keys from j on. keys, values: right factors; row, slope: buffers."""
    from ..language.inlining import inline
    from ..language.lanes import storer
    from ..language.mathf import ZERO
    from ..language.prim import FP32
    from ..language.tile import ADD, SET, Rows
    from .blocks import queries_of, slopes_of
    from .panels import left, products, right
    from .scores import drop, slopes

    queries, gradients, store = left(Q), left(G), storer(FP32.st)
    flat_queries, flat_gradients = right(Q, lanes), right(G, lanes)
    multiply, derive = products(lanes), slopes(B)

    @inline
    def add(args, room, block, j, count, keys, values, row, slope):
        z, h, i, rows = block
        tile, part, qm, ym = room.tile, room.part, queries_of(args, z, h), slopes_of(args, z, h)
        result = queries(qm, i, rows, args.d, room.q_panel)
        multiply(result, keys, Rows(tile, 4 * COLUMNS, 4), rows, count, args.d, SET)
        result = gradients(ym, i, rows, args.e, room.dy_panel)
        multiply(result, values, Rows(part, 4 * COLUMNS, 4), rows, count, args.e, SET)
        for r in range(rows):
            derive(args, row, slope, tile, part, r, z, h, i + r, j, count)
            store(slope, part, r * COLUMNS, COLUMNS)
            if args.p != ZERO:
                drop(args, row, z, h, i + r, j, count)
            store(row, tile, r * COLUMNS, COLUMNS)
        if args.dv != 0:
            flat, out = flat_gradients(ym, i, rows, args.e, room.dy_flat), room.dv_sums
            sums = Rows(out, 4 * room.across, 4)
            multiply(Rows(tile, 4, 4 * COLUMNS), flat, sums, count, args.e, rows, ADD)
        if args.dk != 0:
            flat, out = flat_queries(qm, i, rows, args.d, room.q_flat), room.dk_sums
            sums = Rows(out, 4 * room.wide, 4)
            multiply(Rows(part, 4, 4 * COLUMNS), flat, sums, count, args.d, rows, ADD)

    return add


def _keys(lanes: int):
    def factory(Q, K, V, B, G, D, E):
        """dk, dv in the layouts of k and v. Threads take blocks of keys round-robin; query heads of
        a key head and their blocks of queries are added in order."""
        from ..language.block import new
        from ..language.prim import div, mod
        from .blocks import Block, first_query, keys_of, values_of
        from .panels import Matrix, clear, put_rows, turned, whole
        from .scores import hidden, inside

        turned_keys, turned_values = turned(K, lanes), turned(V, lanes)
        add, put_dk, put_dv = _adder(Q, B, G, lanes), put_rows(D), put_rows(E)

        def run(thread, nthreads, args):
            row, slope = new(), new()
            most_rows, wide, across = min(ROWS, whole(args.m)), whole(args.d), whole(args.e)
            tile = args.ws
            part = tile + 4 * most_rows * COLUMNS
            dk_sums = part + 4 * most_rows * COLUMNS
            dv_sums = dk_sums + 4 * COLUMNS * wide
            k_panel = dv_sums + 4 * COLUMNS * across
            v_panel = k_panel + 4 * COLUMNS * args.d
            q_panel = v_panel + 4 * COLUMNS * args.e
            dy_panel = q_panel + 4 * most_rows * args.d
            q_flat = dy_panel + 4 * most_rows * args.e
            dy_flat = q_flat + 4 * most_rows * wide
            room = _Room(
                tile, part, dk_sums, dv_sums, q_panel, dy_panel, q_flat, dy_flat, wide, across
            )
            blocks, heads = div(args.n + COLUMNS - 1, COLUMNS), div(args.z2, args.group)
            for task in range(thread, args.z1 * heads * blocks, nthreads):
                zs, j = div(task, blocks), mod(task, blocks) * COLUMNS
                z, shared = div(zs, heads), mod(zs, heads)
                count = min(COLUMNS, args.n - j)
                km, vm = keys_of(args, z, shared), values_of(args, z, shared)
                keys = turned_keys(km, j, count, args.d, k_panel)
                values = turned_values(vm, j, count, args.e, v_panel)
                clear(dk_sums, COLUMNS * wide)
                clear(dv_sums, COLUMNS * across)
                for h in range(shared * args.group, (shared + 1) * args.group):
                    for i in range(0, args.m, ROWS):
                        block = Block(z, h, i, min(ROWS, args.m - i))
                        first, rows = first_query(args, block), block.rows
                        if inside(args, i, rows, j, count) or hidden(args, args.stat, first, rows):
                            add(args, room, block, j, count, keys, values, row, slope)
                if args.dk != 0:
                    put_dk(row, dk_sums, wide, Matrix(args.dk, km.offset, km.row), j, count, args.d)
                if args.dv != 0:
                    put_dv(
                        row, dv_sums, across, Matrix(args.dv, vm.offset, vm.row), j, count, args.e
                    )

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
        storages=_STORAGES,
    )(_keys(_lanes))
kernel("attention_dkv", _OPERANDS, check=CHECK, work=WORK, storages=_STORAGES)(_keys(0))
