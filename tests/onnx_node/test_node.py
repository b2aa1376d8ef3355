"""Every node test of the onnx package for the ops that `edgetrain ops` lists."""

import onnx
import pytest

from benchmarks import node_counts
from edgetrain.ops import registry

from .runner import LEFT_OUT, PASSED, RANDOM, REFUSED, WRONG, every_case, run_case

# Listed ops without a node test that can pass here -> the reason.
WITHOUT = {
    "GlobalLpPool": "the package has none of it",
    "If": "its tests have no input besides the condition",
} | dict.fromkeys(RANDOM, "the package has none, or none without its own random numbers")


@pytest.fixture(scope="module")
def verdicts():
    return [run_case(case) for case in every_case()]


def test_node_tests_give_no_wrong_value_and_no_crash(verdicts):
    assert [v for v in verdicts if v.outcome == WRONG] == []


def test_node_tests_pass_for_every_listed_op(verdicts):
    passed = {v.op_type for v in verdicts if v.outcome == PASSED}
    assert set(registry.onnx_names()) - passed == set(WITHOUT)


def test_node_tests_are_refused_or_left_out_with_a_reason(verdicts):
    others = [v for v in verdicts if v.outcome in (REFUSED, LEFT_OUT)]
    assert all(v.reason for v in others)
    # Left-out tests are not run, so only tests that their data cannot decide may be left out.
    assert len([v for v in others if v.outcome == LEFT_OUT]) <= 30


def test_node_tests_are_counted_in_the_table(verdicts):
    """`python -m benchmarks.docs node-tests` rewrites the table."""
    if f"onnx {onnx.__version__}:" not in node_counts.written()[0]:
        pytest.skip(f"the table is not of onnx {onnx.__version__}")
    assert node_counts.written() == list(node_counts.lines(verdicts))
