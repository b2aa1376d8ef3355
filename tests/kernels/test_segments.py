"""Row lengths within a segment of time."""

import numpy as np

from .harness import same_for_threads


def test_segment_lengths_count_the_steps_inside():
    lens = np.array([0, 3, 5, 9, 12], np.int32)
    call = {"lens": lens, "out": np.zeros_like(lens), "b": 5, "start": 4, "count": 6}
    found = same_for_threads("segment_lengths", {}, **call)
    np.testing.assert_array_equal(found["out"], [0, 0, 1, 5, 6])
