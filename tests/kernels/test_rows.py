"""Gradients of a table by touched rows, whose places are given on first use, vs naive twins."""

import numpy as np
import pytest

from edgetrain.formats import FORMATS

from . import naive_rows
from .harness import same_for_threads


@pytest.mark.parametrize("room", [1, 4, 40])
def test_places_are_given_out_in_order(rng, room: int) -> None:
    rows = 30
    known = np.zeros(rows + 1, np.int32)
    for _ in range(2):  # the second microbatch continues with the first one's map
        idx = rng.integers(-rows - 2, rows + 2, 17).astype(np.int32)
        expected_places, expected = naive_rows.places(idx, known, room)
        out = same_for_threads(
            "row_places", idx=idx, map=known, places=(17,), count=17, rows=rows, room=room
        )
        np.testing.assert_array_equal(out["places"], expected_places)
        np.testing.assert_array_equal(out["map"], expected)
        known = out["map"]


@pytest.mark.parametrize("storage", ["f32", "f16", "q8"])
def test_rows_are_spread_and_reset(rng, storage: str) -> None:
    rows, width, room, format = 13, 24, 6, FORMATS[storage]
    known = np.zeros(rows + 1, np.int32)
    _, known = naive_rows.places(np.array([5, 2, 12, 5], np.int32), known, room)
    x = format.encode(rng.standard_normal((room, width)).astype(np.float32))
    dense = naive_rows.spread(format.decode(x).reshape(-1)[: room * width], known, room, width)
    for start, count in ((0, 8), (8, 5)):
        out = same_for_threads(
            "row_spread",
            {"G": storage},
            x=x,
            map=known[start : start + count].copy(),
            y=(count, width),
            count=count,
            width=width,
            room=room,
        )
        np.testing.assert_array_equal(out["y"], dense[start : start + count])
    out = same_for_threads(
        "row_reset", {"G": storage}, g=x, g_map=known, n=room * width, size=known.size
    )
    assert not out["g_map"].any() and not format.decode(out["g"]).any()
