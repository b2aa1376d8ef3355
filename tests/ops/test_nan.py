"""IsNaN and IsInf after a softmax, as in torch; masks that leave some elements, or none."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import edgetrain as et
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from tests.compiler.nets import Net, graphs

CAUSAL = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
NOTHING = np.where(np.arange(4)[:, None] == 2, -np.inf, 0.0) + np.zeros((4, 4))


def net(mask):
    made = Net(4, 4)
    made.constants |= {"mask": mask.astype(np.float32), "zero": np.float32(0)}
    scores = made.add("MatMul", ["x", made.weight("scores.weight", 4, 4)], "scores")
    hidden = made.add("Softmax", [made.add("Add", [scores, "mask"], "masked")], "soft", axis=-1)
    where = made.add("IsNaN", [hidden], "is")
    kept = made.add("Where", [where, "zero", hidden], "kept")
    kept = made.add("MatMul", [kept, made.weight("out.weight", 4, 3)], "out")
    return made.model(made.add("ReduceMean", [kept], "mean", axes=[1], keepdims=0))


@pytest.mark.parametrize(
    ("mask", "compared"), [(CAUSAL, False), (NOTHING, True)], ids=["causal", "all masked"]
)
def test_rows_without_anything_left_become_zeros(mask, compared):
    rng = np.random.default_rng(0)
    model = net(mask)
    ops = [node.op for node in graphs(model).train.nodes]
    assert ("equal" in ops) == compared and ("where" in ops) == compared
    x = rng.normal(size=(5, 4, 4)).astype(np.float32)
    target = np.arange(5, dtype=np.int32) % 3
    loss, found = et.loss_and_gradients(model, {"x": x}, target)
    weights = {n: torch.tensor(model.initializers[n]).requires_grad_() for n in model.parameters}
    soft = torch.softmax(
        torch.tensor(x) @ weights["scores.weight"] + torch.tensor(mask, dtype=torch.float32), -1
    )
    soft = torch.where(torch.isnan(soft), 0.0, soft)
    if compared:  # torch's own gradient of this row is NaN: leave it out
        soft = torch.cat([soft[:, :2], soft[:, 2:3].detach() * 0, soft[:, 3:]], 1)
    logits = (soft @ weights["out.weight"]).mean(1)
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(target).long())
    np.testing.assert_allclose(loss, expected.item(), rtol=1e-5)
    gradient = torch.autograd.grad(expected, weights["out.weight"])[0].numpy()
    np.testing.assert_allclose(found["out.weight"], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [({}, [1, 1, 0, 0]), ({"detect_negative": 0}, [1, 0, 0, 0]),
     ({"detect_positive": 0}, [0, 1, 0, 0])],
)  # fmt: skip
def test_infinities_are_told_by_their_sign(attributes, expected):
    x = np.array([[np.inf, -np.inf, np.nan, 3.0]], np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("IsInf", ["x"], ["is"], **attributes),
            helper.make_node("Cast", ["is"], ["y"], to=TensorProto.FLOAT),
        ],
        "ends",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    model = decode(parse(proto.SerializeToString(), "ends"), Path("ends"))
    np.testing.assert_array_equal(et.forward(model, {"x": x})["y"], [expected])
