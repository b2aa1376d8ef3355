"""Scratch layouts: sizes and parts that a kernel computes match the declaration."""

import numpy as np
import pytest

from edgetrain.kernels.conv.layout import Layout
from edgetrain.kernels.declaration.expression import expression
from edgetrain.kernels.language.prim import st_i64

from .harness import call, declared

LAYOUT = Layout(
    sizes={
        "rows": "(n + 3) // 4",
        "most": "min(rows * 2, 9) if n % 2 == 0 and rows > 1 else 5 - 4 * (n == 7)",
    },
    parts={"table": "4 * rows + 63", "lines": "64 * rows", "sums": "8 * most + 63"},
)


def _places():
    places = LAYOUT.places

    def run(thread, nthreads, args):
        at = places(args.ws, args)
        st_i64(args.out, 0, at.rows)
        st_i64(args.out, 1, at.most)
        st_i64(args.out, 2, at.table - args.ws)
        st_i64(args.out, 3, at.lines - args.ws)
        st_i64(args.out, 4, at.sums - args.ws)

    return run


@pytest.fixture(scope="module")
def kernel():
    return declared("layout", f"out:w:i64[5] ws:t[{LAYOUT.nbytes}] n", _places)


@pytest.mark.parametrize("n", [1, 2, 7, 16, 33, 100])
def test_layout_places_parts_as_declared(kernel, n):
    rows, most, table, lines, sums = call(kernel, out=(5,), n=n)["out"].tolist()
    assert (rows, most) == (
        (n + 3) // 4,
        min(rows * 2, 9) if n % 2 == 0 and rows > 1 else 5 - 4 * (n == 7),
    )
    assert (table, lines % 64, sums % 64) == (0, 0, 0)
    assert lines >= 4 * rows and sums >= lines + 64 * rows
    assert sums + 8 * most <= expression(LAYOUT.nbytes)({"n": n})


def test_layout_is_one_expression_of_the_integers():
    values = {"n": np.int64(100)}
    assert expression(LAYOUT.nbytes)(values) == (4 * 25 + 63) + 64 * 25 + (8 * 9 + 63)
