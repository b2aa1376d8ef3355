"""Random graphs: every op has a row, a sample of graphs is right, failures shrink."""

import pytest

from edgetrain.ops.onnx_ops import onnx_names

from . import graphs
from .graph_rows import ROWS


def test_every_op_has_a_row_in_the_generator() -> None:
    """Except ops of other domains than ONNX's (DOMAIN.TYPE): the generator needs their schemas."""
    assert set(ROWS) == {name for name in onnx_names() if "." not in name}


def test_an_error_of_a_row_is_reported(monkeypatch) -> None:
    def make(*given) -> None:
        raise KeyError("the cause")

    monkeypatch.setattr(graphs, "make", make)
    verdict = graphs.judge(17, [2, 3])
    assert verdict.outcome == graphs.CRASHED and "the cause" in verdict.detail
    assert verdict.steps == (2, 3)


def _right(tally: graphs.Tally) -> None:
    failures = [(v.command, v.reason, v.detail) for v in tally.failures]
    assert failures == []
    assert tally.outcomes[graphs.PASSED] > 0.4 * sum(tally.outcomes.values()), tally.reasons


def test_random_graphs_are_right_in_every_plan() -> None:
    _right(graphs.run(range(30), 40))


@pytest.mark.slow
def test_many_random_graphs_are_right_in_every_plan() -> None:
    _right(graphs.run(range(1000, 2000)))


def test_a_failing_graph_keeps_the_steps_that_fail(monkeypatch) -> None:
    """Only step 3 fails."""

    def judged(seed, only=None, op="", splits=0):
        steps = tuple(range(5)) if only is None else tuple(only)
        outcome = graphs.WRONG if 3 in steps else graphs.PASSED
        return graphs.Verdict(seed, outcome, "departs", steps)

    monkeypatch.setattr(graphs, "judge", judged)
    (found,) = graphs.run([17]).failures
    assert found.command == "python -m tests.fuzz.graphs --seed 17 --count 1 --steps 3"
