"""Every row of tests/cases.py: forward, backward, determinism, the minimum budget, fp16."""

import functools

import numpy as np
import pytest
import torch
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import edgetrain as et
from edgetrain.compiler.bind import bind
from edgetrain.ops import registry
from edgetrain.ops.onnx_ops import onnx_names
from edgetrain.ops.structure import Structure
from tests.quick import slow_unless

from ..cases import CASES, Case
from ..op_case import A, P, X
from . import harness


def _id(case: Case) -> str:
    return case.id


def _batch(built) -> int:
    return len(next(iter(built.inputs.values()), [0]))


def _other_rows(size: int):
    """Pairs of elements of different rows of `size`."""
    return lambda row: row[:, None] // size != row[None] // size


def _other_lines(node, sizes):
    places = np.indices(sizes).reshape(len(sizes), -1)
    others = [k for k in range(len(sizes)) if k != node.attrs["axis"]]
    return (places[others, :, None] != places[others, None]).any(axis=0)


# Structure -> which pairs of elements have no influence on each other, of (node, sizes).
_APART = {
    Structure.SAME: lambda node, sizes: ~np.eye(int(np.prod(sizes)), dtype=bool),
    Structure.ALONG: _other_lines,
    Structure.ROWS: lambda node, sizes: _other_rows(node.attrs["n"])(np.arange(np.prod(sizes))),
}
EACH = pytest.mark.parametrize("case", CASES, ids=_id)
# The others run with the slow tests.
_OF_OP = {case.op: case for case in reversed(CASES)}
FIRST = pytest.mark.parametrize(
    "case", slow_unless(CASES, lambda case: case is _OF_OP[case.op]), ids=_id
)


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


@pytest.mark.parametrize("op_type", onnx_names())
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


@FIRST
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


@FIRST
def test_case_adds_to_gradients_that_are_there(case):
    """A backward kernel that overwrites a gradient fails here."""
    used = any(isinstance(arg, X | A) for arg in case.args)
    if not used or case.truth or case.mask or case.attrs.get("to") == TensorProto.FLOAT16:
        pytest.skip("no gradient, or an output that is not float32")
    built = harness.build(case, twice=True)
    loss, grads = harness.run(harness.program(built), built, threads=2)
    assert loss == pytest.approx(built.loss, rel=1e-5)
    assert _worst(grads, built) < 2e-5


@FIRST
def test_case_splits_its_minibatch_as_torch_does_not_or_refuses(case):
    """A wrong rule for samples, or none, shows in the sums of two microbatches."""
    same = case.predicts and case.op != "Bernoulli"
    if not same or not any(isinstance(arg, X) for arg in case.args):
        pytest.skip("random, training differs from evaluation, or there is no batch")
    built = harness.build(case, split=True)
    options = {"loss": "mse", "minibatch": _batch(built), "microbatch": 1, "verbose": False}
    try:
        model = built.model.without_dropout()
        compiled = et.compile(model, optimizer=et.SGD(lr=1.0), **options)
    except et.UsageError as error:
        assert "can't be split" in str(error), error
        return
    except et.ModelError as error:
        assert "shape" in str(error), error
        pytest.skip(f"the case fixes its batch: {error}")
    trainer = et.Trainer(compiled)
    before = {name: array.copy() for name, array in trainer.parameters.items()}
    try:
        found = trainer.step(built.inputs, built.target)
        after = dict(trainer.parameters)
    finally:
        trainer.close()
    assert found.loss == pytest.approx(built.loss, rel=1e-5)
    moved = {name: before[name].astype(np.float64) - after[name] for name in built.grads}
    assert _worst(moved, built) < 1e-4  # a difference of weights


@EACH
def test_case_relates_elements_as_its_op_says(case):
    """Passes cut and fuse ops by `structure`: other elements must have no influence."""
    built = harness.build(case)
    graph = bind(built.model, _batch(built), {}).graph
    nodes = [node for node in graph.nodes if node.origin == "case" and node.op != "view"]
    if len(nodes) != 1 or registry.structure(nodes[0]) not in _APART:
        pytest.skip("several nodes, or a relation that is not between single elements")
    (node,) = nodes
    value, sizes = graph.values[node.inputs[0]], graph.values[node.outputs[0]].shape
    structure = registry.structure(node)
    apart = np.broadcast_to(_APART[structure](node, sizes), (value.size, value.size))
    maker = harness.Maker(case, False)
    places = [k for k, arg in enumerate(case.args) if isinstance(arg, X | A | P)]
    for place in places if structure is Structure.SAME else places[:1]:

        def meaning(x, place=place):
            y = case.meaning(*maker.values[:place], x, *maker.values[place + 1 :])
            return (y[0] if isinstance(y, tuple | list) else y).double()

        slopes = torch.autograd.functional.jacobian(meaning, maker.values[place].detach())
        slopes = np.abs(slopes.numpy().reshape(len(apart), -1))
        assert slopes.shape == apart.shape, f"operand {place} has other elements"
        assert not slopes[apart].any()


def test_ops_that_only_move_numbers_make_no_others():
    moved = set()
    for case in _OF_OP.values():
        graph = bind(harness.build(case).model, _batch(harness.build(case)), {}).graph
        nodes = {node.op for node in graph.nodes if node.origin == "case"} - {"view"}
        if not nodes or not all(registry.op(name).moves_only for name in nodes):
            continue
        moved |= nodes
        values = harness.Maker(case, False).values
        y = case.meaning(*values)
        given = [np.ravel(_array(value)) for value in values if value is not None]
        for part in y if isinstance(y, tuple | list) else (y,):
            others = np.setdiff1d(_array(part), np.concatenate(given))
            assert others.size <= 1, f"{case.id}: more than a constant, such as the padding"
    assert moved >= {"copy", "expand"}


def _array(value) -> np.ndarray:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


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
    if not case.reference or "." in case.op:
        pytest.skip("onnx.reference departs from the standard, or runs the op in another mode")
    built = harness.build(case)
    (found,) = ReferenceEvaluator(built.proto).run(None, built.inputs)
    np.testing.assert_allclose(found, built.output, 1e-4, 1e-5)
