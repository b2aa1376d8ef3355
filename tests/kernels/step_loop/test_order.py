"""The order of samples compared with its numpy twin."""

import numpy as np
import pytest

from edgetrain.data.order.permute import permuted
from tests.kernels.harness import same_for_threads

SIZES = (1, 2, 3, 7, 64, 100, 1437, 60_000, 2**16 * 3, 5_000_000_000, 2**40 + 12345)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed, epoch", [(0, 0), (7, 3), (-5, 1), (2**62, 2)])
def test_drive_order_equals_its_twin(n, seed, epoch):
    count = min(n, 200)
    start = (n - count) // 2
    found = same_for_threads(
        "drive_order", out=(count,), seed=seed, epoch=epoch, start=start, count=count, n=n
    )["out"]
    positions = np.arange(start, start + count)
    np.testing.assert_array_equal(found, permuted(seed, epoch, positions, n))


def test_drive_order_is_a_permutation():
    found = same_for_threads(
        "drive_order", out=(1437,), seed=1, epoch=2, start=0, count=1437, n=1437
    )
    assert sorted(found["out"]) == list(range(1437))
