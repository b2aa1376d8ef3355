"""Which worker process compiles which kernel."""

import pytest

from edgetrain.kernels.cache import workers


@pytest.mark.parametrize(
    "groups, own, order",
    [
        ("aabbc", "", [0, 2, 4, 1, 3]),  # start every group before sharing one
        ("aabbc", "b", [2, 3, 0, 4, 1]),  # first finish the group that a process started
        ("aaa", "b", [0, 1, 2]),
        ("", "", []),
    ],
)
def test_a_process_stays_with_its_group(groups: str, own: str, order: list[int]) -> None:
    tasks = [{"group": group} for group in groups]
    made = workers.Workers(tasks, 0, lambda done: None)
    taken = []
    while (following := made._next(own)) is not None:
        taken.append(following[0])
    assert taken == order
