"""Every node test of the onnx package for the ops that `edgetrain ops` lists."""

import collections
import warnings

import numpy as np
import pytest

from edgetrain.ops import registry

from .runner import FAILED, PASSED, SKIPPED, run_case

pytestmark = pytest.mark.slow

# Listed ops whose node tests cannot pass here, and why.
WITHOUT = {
    "GlobalLpPool": "the package has none of it",
    "If": "its tests have no input besides the condition",
} | dict.fromkeys(
    ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    "the package has none, or none without its own random numbers",
)


@pytest.fixture(scope="module")
def verdicts():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of numpy, while the package computes what it expects
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    listed = set(registry.onnx_names())
    return [
        run_case(case)
        for case in cases
        if "_expanded" not in case.name
        and any(node.op_type in listed for node in case.model.graph.node)
    ]


def test_node_tests_do_not_fail(verdicts):
    assert [v for v in verdicts if v.outcome == FAILED] == []


def test_node_tests_pass_for_every_listed_op(verdicts):
    passed = {v.op_type for v in verdicts if v.outcome == PASSED}
    assert set(registry.onnx_names()) - passed == set(WITHOUT)


def test_node_tests_are_counted(verdicts):
    counts = collections.Counter(v.outcome for v in verdicts)
    # What the package of version 1.23 gives; a newer one has more.
    assert counts[PASSED] >= 690
    assert all(v.reason for v in verdicts if v.outcome == SKIPPED)
