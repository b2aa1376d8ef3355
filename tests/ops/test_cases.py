"""Every row of tests/cases.py: forward, backward, determinism, the minimum budget, fp16."""

import functools

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from edgetrain.ops import registry

from ..cases import CASES, Case
from . import harness

EACH = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


@functools.cache
def _plain(case: Case):
    built = harness.build(case)
    compiled = harness.program(built)
    return built, compiled, harness.run(compiled, built, threads=3)


def _distance(found: np.ndarray, expected: np.ndarray, scale: float) -> float:
    """Relative L2 error; tensors far below the largest gradient are measured against that one."""
    norm = max(float(np.linalg.norm(expected)), 1e-3 * scale, 1e-12)
    return float(np.linalg.norm(found.astype(np.float64) - expected)) / norm


def _worst(found, built) -> float:
    scale = max(float(np.linalg.norm(g)) for g in built.grads.values())
    return max(_distance(found[name], g, scale) for name, g in built.grads.items())


@pytest.mark.parametrize("op_type", registry.onnx_names())
def test_registered_name_has_a_case(op_type):
    assert op_type in {case.op for case in CASES}


def test_case_ids_are_unique():
    assert len({case.id for case in CASES}) == len(CASES)


@EACH
def test_case_loss_and_gradients_equal_torch(case):
    built, _, (loss, grads) = _plain(case)
    assert grads.keys() == built.grads.keys()
    # One op in float32 against float64: a few rounding errors of sums of tens of terms.
    assert loss == pytest.approx(built.loss, rel=1e-5)
    assert _worst(grads, built) < 2e-5


@EACH
def test_case_prediction_equals_torch(case):
    if not case.predicts:
        pytest.skip("evaluation uses running statistics")
    built, compiled, _ = _plain(case)
    np.testing.assert_allclose(harness.predict(compiled, built), built.output, 1e-4, 1e-5)


@EACH
def test_case_is_bit_identical_for_one_thread_and_at_the_minimum_budget(case):
    built, compiled, (loss, grads) = _plain(case)
    smallest = harness.program(built, budget=compiled.account["min_budget_nbytes"])
    for other_loss, other in (
        harness.run(compiled, built, threads=1),
        harness.run(smallest, built, threads=2),
    ):
        assert other_loss == loss
        for name, grad in grads.items():
            np.testing.assert_array_equal(other[name], grad, err_msg=name)


@pytest.mark.slow  # kernel tests cover fp16; this would compile every op once more
@EACH
def test_case_in_fp16_is_close(case):
    built = harness.build(case)
    compiled = harness.program(built, precision="fp16", loss_scale=64.0)  # large gradients overflow
    loss, grads = harness.run(compiled, built, threads=2)
    # Every value has an 11-bit mantissa, and the last one is rounded stochastically.
    assert loss == pytest.approx(built.loss, rel=1e-2)
    assert _worst(grads, built) < 1e-2


@EACH
def test_case_meaning_is_that_of_onnx(case):
    if not case.reference:
        pytest.skip("onnx.reference departs from the standard, or runs the op in another mode")
    built = harness.build(case)
    (found,) = ReferenceEvaluator(built.proto).run(None, built.inputs)
    np.testing.assert_allclose(found, built.output, 1e-4, 1e-5)
