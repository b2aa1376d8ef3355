"""The reference order of samples for the step loop."""

import numpy as np
import pytest

from edgetrain.data.order.batches import steps_per_epoch
from edgetrain.errors import UsageError
from tests.twins import Batches, Cursor, evaluation_batches


def epoch_indices(batches, epoch):
    cursor, found = Cursor(epoch), []
    while cursor.epoch == epoch:
        found.append(np.concatenate(list(batches.microbatches(cursor))))
        cursor = batches.after(cursor)
    return found, cursor


def test_batches_take_each_sample_at_most_once_and_drop_the_last_partial_minibatch():
    batches = Batches(n=103, minibatch=20, microbatch=5, seed=1)
    found, after = epoch_indices(batches, 4)
    assert [len(part) for part in found] == [20] * 5 == [20] * batches.steps_per_epoch
    assert len(set(np.concatenate(found).tolist())) == 100
    assert after == Cursor(5, 0)


def test_batches_resume_anywhere_with_the_same_samples():
    batches = Batches(n=50, minibatch=10, microbatch=5, seed=1)
    cursor = Cursor()
    for step in range(13):
        assert batches.cursor_at(step) == cursor
        again = Batches(50, 10, 5, 1).microbatches(Cursor(cursor.epoch, cursor.position))
        for one, other in zip(batches.microbatches(cursor), again, strict=True):
            np.testing.assert_array_equal(one, other)
        cursor = batches.after(cursor)
    assert cursor == Cursor(2, 30)


def test_batches_hold_the_same_samples_for_every_microbatch():
    whole = [
        np.concatenate(list(Batches(64, 16, micro, 3).microbatches(Cursor(1, 16)))).tolist()
        for micro in (1, 2, 4, 8, 16)
    ]
    assert whole == [whole[0]] * 5


def test_batches_allow_a_minibatch_of_everything():
    found, after = epoch_indices(Batches(8, 8, 2), 0)
    assert sorted(found[0].tolist()) == list(range(8)) and after == Cursor(1, 0)


def test_data_smaller_than_a_minibatch_is_refused():
    assert steps_per_epoch(20, 20) == 1 and steps_per_epoch(39, 20) == 1
    with pytest.raises(UsageError, match="only 10 training samples"):
        steps_per_epoch(10, 20)


def test_evaluation_batches_pad_the_last_one():
    found = [(indices.tolist(), valid) for indices, valid in evaluation_batches(7, 3)]
    assert found == [([0, 1, 2], 3), ([3, 4, 5], 3), ([6, 0, 0], 1)]
