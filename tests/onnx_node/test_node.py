"""Every node test of the onnx package for the ops that `edgetrain ops` lists."""

import onnx
import pytest

from benchmarks import node_counts
from edgetrain.ops.onnx_ops import fold_names, onnx_names

from .runner import LEFT_OUT, PASSED, RANDOM, REFUSED, WRONG, every_case, run_case, run_fold

# Listed ops without a node test that can pass here -> the reason.
WITHOUT = {
    "GlobalLpPool": "the package has none of it",
    "If": "its tests have no input besides the condition",
} | dict.fromkeys(RANDOM, "the package has none, or none without its own random numbers")


def test_node_tests_pass_or_are_refused_with_a_reason_and_counted():
    """One test, because every worker that has a part of it would run all node tests.

    `python -m benchmarks.docs node-tests` rewrites the table.
    """
    verdicts = [run_case(case) for case in every_case(onnx_names())]
    assert [v for v in verdicts if v.outcome == WRONG] == []  # neither a wrong value nor a crash

    passed = {v.op_type for v in verdicts if v.outcome == PASSED}
    assert set(onnx_names()) - passed == set(WITHOUT)

    others = [v for v in verdicts if v.outcome in (REFUSED, LEFT_OUT)]
    assert all(v.reason for v in others)
    # Left-out tests are not run, so only tests that their data cannot decide may be left out.
    assert len([v for v in others if v.outcome == LEFT_OUT]) <= 30

    if f"onnx {onnx.__version__}:" not in node_counts.written()[0]:
        pytest.skip(f"the table is not of onnx {onnx.__version__}")
    assert node_counts.written() == list(node_counts.lines(verdicts))


def test_constants_are_folded_to_what_the_standard_says():
    verdicts = [verdict for case in every_case(fold_names()) if (verdict := run_fold(case))]
    assert [v for v in verdicts if v.outcome == WRONG] == []
    assert set(fold_names()) == {v.op_type for v in verdicts if v.outcome == PASSED}
