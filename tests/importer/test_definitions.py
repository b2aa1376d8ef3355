"""Ops that the ONNX standard defines through other ops are trained like their definitions."""

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
import torch.nn.functional as F

import edgetrain as et

_OPS = {
    "Shrink": (
        "Shrink<lambd = 0.4, bias = 0.1>(y)", 21,
        lambda y: torch.where(y < -0.4, y + 0.1, torch.where(y > 0.4, y - 0.1, 0 * y)),
    ),
    "defaults": ("Shrink(y)", 18, lambda y: torch.where(y.abs() > 0.5, y, 0 * y)),
    "MeanVarianceNormalization": (
        "MeanVarianceNormalization<axes = [1, 2]>(y)", 21,
        lambda y: F.layer_norm(y, y.shape[1:], eps=0),
    ),
    "inside a branch": (
        "If<then_branch = t () => (float[N,3,4] a) { a = Shrink<lambd = 0.0>(y) }, "
        "else_branch = e () => (float[N,3,4] b) { b = Identity(y) }>(c)", 21, lambda y: y,
    ),
}  # fmt: skip


def _saved(text: str, opset: int, path):
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> g (float[N,3,4] x) => (float[N,3,4] z) '
        f"<float[3,1] w = {{0.5, 1.0, -2.0}}, bool c = {{1}}> {{ y = Mul(x, w) z = {text} }}"
    )
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", _OPS)
def test_an_op_that_others_define_trains(name, tmp_path):
    text, opset, meaning = _OPS[name]
    path = _saved(text, opset, tmp_path / "m.onnx")
    draw = np.random.default_rng(0)
    x, target = (draw.standard_normal((2, 3, 4)).astype(np.float32) for _ in range(2))
    w = torch.tensor([[0.5], [1.0], [-2.0]], dtype=torch.float64, requires_grad=True)
    expected = F.mse_loss(meaning(torch.from_numpy(x) * w), torch.from_numpy(target).double())
    expected.backward()
    loss, gradients = et.loss_and_gradients(path, x, target, loss="mse")
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradients["w"], w.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_an_op_that_is_defined_by_a_loop_is_folded(tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (int64 n, float[N,3] x) => (float[N,k] z) '
        "<int64 zero = {0}, int64 one = {1}, float[3] w = {1.0, 2.0, 3.0}> "
        "{ r = Range(zero, n, one) f = Cast<to = 1>(r) y = Mul(x, w) z = Add(y, f) }"
    )
    onnx.save(model, tmp_path / "m.onnx")
    program = et.compile(tmp_path / "m.onnx", inputs={"n": 3}, loss="mse", minibatch=2)
    assert program.output_shape == (2, 3)


_BODIES = (
    '<domain: "own", opset_import: ["": 17, "own": 1]> '
    "leaky<alpha: float = 0.3>(a) => (b) { b = LeakyRelu<alpha: float = @alpha>(a) } ",
    '<domain: "own", opset_import: ["": 17, "own": 1]> '
    "outer(a) => (b) { b = own.leaky(a) } ",
    '<domain: "own", opset_import: ["": 17, "own": 1]> '
    "passes<beta>(a) => (b) { b = own.leaky<alpha: float = @beta>(a) } ",
    '<domain: "own", opset_import: ["": 17, "own": 1]> '
    "other<beta: float = 0.7>(a) => (b) { b = own.leaky<alpha: float = @beta>(a) } ",
    '<domain: "own", opset_import: ["": 17, "own": 1]> '
    "unused<beta: float = 0.9>(a) => (b) { b = own.passes(a) } ",
)  # fmt: skip
_IN_BRANCH = (
    "If<then_branch = t () => (float[N,4] a) { a = own.leaky(y) }, "
    "else_branch = e () => (float[N,4] b) { b = Identity(y) }>(c)"
)


@pytest.mark.parametrize(
    "call, slope",
    [("own.leaky(y)", 0.3), ("own.leaky<alpha = 0.5>(y)", 0.5), ("own.outer(y)", 0.3),
     ("own.passes(y)", 0.3), ("own.passes<beta = 0.2>(y)", 0.2), ("own.other(y)", 0.7),
     (_IN_BRANCH, 0.3)],
)  # fmt: skip
def test_attributes_of_local_functions_have_defaults(call, slope):
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17, "own": 1]> g (float[N,4] x) => (float[N,4] z) '
        f"<float[4] w = {{0.5, 1.0, -2.0, -1.0}}, bool c = {{1}}> {{ y = Mul(x, w) z = {call} }}"
    )
    model.functions.extend(onnx.parser.parse_function(text) for text in _BODIES)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    y = x * np.float32([0.5, 1, -2, -1])
    found = et.forward(model, {"x": x})["z"]
    np.testing.assert_allclose(found, np.where(y > 0, y, slope * y), rtol=1e-5)
