"""Ops outside ONNX's domain, added as ARCHITECTURE.md says: what onnx's checker does not know is
checked here."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import ModelError
from edgetrain.kernels.elementwise.formulas import ROWS
from edgetrain.ops import elementwise, onnx_ops
from edgetrain.ops.onnx_ops import OnnxOp

SNAKE, PAIR, MIX = "my.ops.Snake", "my.ops.Pair", "my.ops.Mix"


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function with a parameter, one of two numbers, and a rule that does not list its weight."""
    monkeypatch.setitem(elementwise.UNARY, SNAKE, ROWS["leaky_relu"])
    monkeypatch.setitem(elementwise.BINARY, PAIR, elementwise.BINARY["Add"])
    ops = {SNAKE: OnnxOp(elementwise.unary), MIX: OnnxOp(_mix)}
    ops[PAIR] = OnnxOp(elementwise.binary, **elementwise.TERMS)
    for name, op in ops.items():
        monkeypatch.setitem(onnx_ops._ONNX, name, op)


def _mix(context, node) -> None:
    x, t = context.value(node, 0), context.value(node, 1)
    context.emit(node, "mul", [x, t], [x.shape])


def _file(tmp_path, op_type: str, *others: str, **attributes):
    """y = op(x w, others)."""
    domain, _, name = op_type.rpartition(".")
    given = {"limit": 1e-3, "eps": 1e-3}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(name, ["h", *others], ["y"], domain=domain, **attributes),
    ]
    ends = [
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["N", size])]
        for value, size in (("x", 4), ("y", 3))
    ]
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(4, 3)), "t": rng.normal(size=3)} | given
    tensors = [
        numpy_helper.from_array(np.asarray(array, np.float32), n)
        for n, array in arrays.items()
        if n in ("w", *others)
    ]
    graph = helper.make_graph(nodes, "added", *ends, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    path = tmp_path / "added.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    return path


def test_a_function_takes_its_attribute(tmp_path):
    model = et.load_onnx(_file(tmp_path, SNAKE, alpha=0.5))
    x = -np.abs(np.random.default_rng(1).normal(size=(2, 4))).astype(np.float32)
    product = x @ model.initializers["w"]
    (found,) = et.forward(model, {"x": x}).values()
    np.testing.assert_allclose(found, np.where(product > 0, product, product / 2), rtol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "others", "attributes", "words"),
    [
        (SNAKE, (), {"alhpa": 0.5}, "'alhpa'; expected alpha"),
        (SNAKE, (), {"alpha": "half"}, "alpha 'half'; expected a number"),
        (SNAKE, ("t",), {}, "2 inputs; expected 1"),
        (PAIR, ("t",), {"alpha": 1.0}, "'alpha'; expected no attribute"),
        (PAIR, (), {}, "1 input; expected 2"),
        (PAIR, ("t", "t"), {}, "3 inputs; expected 2"),
    ],
)
def test_another_form_is_refused(tmp_path, op_type, others, attributes, words):
    path = _file(tmp_path, op_type, *others, **attributes)
    with pytest.raises(ModelError, match=f"{op_type.replace('.', '[.]')}.*{words}"):
        et.plan(path, loss="mse", minibatch=2)


def test_a_weight_that_a_rule_does_not_list_is_named(tmp_path, capsys):
    """It may be a constant, so it is not trained in silence, and not left out in silence."""
    path = _file(tmp_path, MIX, "t")
    model = et.load_onnx(path)
    assert model.parameters == ("w",) and dict(model.operands) == {"t": MIX}
    assert main(["plan", str(path), "--loss", "mse"]) == 0
    assert f"not trained: t (operand of {MIX})" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("operand", "trained", "listed"),
    [("t", ("w", "t"), {}), ("limit", ("w",), {"limit": PAIR}), ("eps", ("w",), {})],
)
def test_a_number_in_a_function_of_two_numbers_is_no_weight(tmp_path, operand, trained, listed):
    """A vector is one; a number may be, unless its name says that it is not."""
    model = et.load_onnx(_file(tmp_path, PAIR, operand))
    assert (model.parameters, dict(model.operands), model.untrained) == (trained, listed, ())
