"""Integers computed from inputs equal onnxruntime's."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import edgetrain as et
from edgetrain.exporters import export_torch

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
AXIS, BOTH = {"axes": [1]}, {"axes": [0, 1]}
FACTORS = {"w": [[1, -2], [3, 0], [0, 5], [-1, 1]]}
# Name -> (op type, shapes of its inputs, constant operands after them, attributes).
CASES = {
    **{name: (name, [(3, 4)], {}, {}) for name in ("Neg", "Abs", "Sign", "Relu")},
    **{
        f"{name} {axes['axes']}": (name, [(3, 4)], axes, {"keepdims": 0})
        for name in (
            "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceSumSquare",
            "ReduceL1", "ReduceL2",
        )
        for axes in (AXIS, BOTH)
    },
    "ReduceSum kept": ("ReduceSum", [(3, 4)], AXIS, {"keepdims": 1}),
    "ReduceSum of all": ("ReduceSum", [(3, 4)], {}, {}),
    "ReduceSum of none": ("ReduceSum", [(3, 4)], {}, {"noop_with_empty_axes": 1}),
    "MatMul": ("MatMul", [(3, 4, 2), (3, 2, 4)], {}, {}),
    "MatMul by a constant": ("MatMul", [(3, 4)], FACTORS, {}),
    "Einsum": ("Einsum", [(3, 4), (3, 2)], {}, {"equation": "ni,nj->nij"}),
    **{name: (name, [(3, 4), (3, 4)], {}, {}) for name in ("Add", "Sub", "Mul", "Max", "Min")},
    "CumSum": ("CumSum", [(3, 4)], {"axis": 1}, {}),
    "Clip": ("Clip", [(3, 4)], {"low": -2, "high": 2}, {}),
}  # fmt: skip


def _model(op, shapes, constants, attrs) -> onnx.ModelProto:
    names = [f"x{k}" for k in range(len(shapes))]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["N", *shape[1:]])
        for name, shape in zip(names, shapes, strict=True)
    ]
    arrays = [
        onnx.numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in constants.items()
    ]
    nodes = [
        helper.make_node(op, [*names, *constants], ["whole"], **attrs),
        helper.make_node("Cast", ["whole"], ["y"], to=TensorProto.FLOAT),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "integers", inputs, [y], arrays)
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("largest", [5, 900])  # float16 has no odd integers above 2,048
def test_integers_are_those_of_onnxruntime(name, largest):
    rng, (op, shapes, constants, attrs) = np.random.default_rng(0), CASES[name]
    model = _model(op, shapes, constants, attrs)
    if op == "ReduceProd":
        largest = min(largest, 3)
    x = {f"x{k}": rng.integers(-largest, largest + 1, s) for k, s in enumerate(shapes)}
    session = ort.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, x)
    found = et.forward(et.load_onnx(model), x)["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_a_reduction_of_booleans_is_boolean(op):
    """Any and all: opset 20 reduces booleans."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["above"]),
        helper.make_node(op, ["above", "axes"], ["some"], keepdims=1),
        helper.make_node("Where", ["some", "x", "zero"], ["y"]),
    ]
    arrays = [
        onnx.numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        onnx.numpy_helper.from_array(np.array([1]), "axes"),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "xy")
    graph = helper.make_graph(nodes, "booleans", [x], [y], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    values = np.array([[1, 2, 3], [-1, 2, -3], [-1, -2, -3]], np.float32)
    (expected,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": values})
    found = et.forward(et.load_onnx(model), {"x": values})["y"]
    np.testing.assert_array_equal(found, expected)


class _Mean(nn.Module):
    """The mean over words that are not padding, counted in integers."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, ids):
        kept = ids != 0
        count = kept.sum(1, keepdim=True)
        return self.head((self.words(ids) * kept.unsqueeze(-1)).sum(1) / count.clamp(min=1))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_mean_over_counted_words_trains_as_in_torch(precision, tmp_path):
    torch.manual_seed(0)
    module = _Mean()
    ids = torch.randint(1, 50, (8, 3000))
    ids[::2, 2049:] = 0
    path = export_torch(module, (ids,), tmp_path / "mean.onnx", input_names=["ids"])
    target = torch.arange(8) % 3
    nn.functional.cross_entropy(module(ids), target).backward()
    program = et.compile(
        path, minibatch=8, microbatch=4, optimizer=et.SGD(lr=1.0), precision=precision,
        verbose=False,
    )  # fmt: skip
    before = module.head.weight.detach().numpy().copy()
    with et.Trainer(program, verbose=False) as trainer:
        trainer.step(ids.numpy(), target.numpy())
        moved = before - trainer.parameters["head.weight"]
    expected = module.head.weight.grad.numpy()
    # float16 weights are rounded up or down: one unit in the last place.
    tolerance = 1e-6 if precision == "fp32" else 2**-10 * np.abs(before).max()
    np.testing.assert_allclose(moved, expected, atol=tolerance)
