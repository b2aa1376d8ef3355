"""Cursors and microbatches."""

import numpy as np
import pytest

from edgetrain.data.batches import Batches, Cursor, evaluation_batches
from edgetrain.errors import UsageError


def epoch_indices(batches, epoch):
    cursor, found = Cursor(epoch), []
    while cursor.epoch == epoch:
        found.append(np.concatenate(list(batches.microbatches(cursor))))
        cursor = batches.after(cursor)
    return found, cursor


def test_batches_take_each_sample_at_most_once_and_drop_the_last_partial_minibatch():
    batches = Batches(n=103, minibatch=20, microbatch=5, seed=1)
    found, after = epoch_indices(batches, 4)
    assert [len(part) for part in found] == [20] * 5 == [20] * batches.minibatches_per_epoch
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


@pytest.mark.parametrize(
    ("n", "minibatch", "microbatch", "match"),
    [
        (10, 20, 5, "only 10 training samples"),
        (10, 6, 4, "does not divide"),
        (10, 5, 0, "does not divide"),
        (10, 5, 10, "does not divide"),
    ],
)
def test_batches_refuse_sizes_that_do_not_fit(n, minibatch, microbatch, match):
    with pytest.raises(UsageError, match=match):
        Batches(n, minibatch, microbatch)


def test_evaluation_batches_pad_the_last_one():
    found = [(indices.tolist(), valid) for indices, valid in evaluation_batches(7, 3)]
    assert found == [([0, 1, 2], 3), ([3, 4, 5], 3), ([6, 0, 0], 1)]
