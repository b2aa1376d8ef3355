"""The graph passes behind export_torch, on graphs where a mistake gives wrong numbers."""

import warnings

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import parser
from torch import nn

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity
from edgetrain.exporters.torch_shapes import fold_shapes
from tests.exporters.exported import export, initializers, metadata, nodes, run


@pytest.mark.parametrize(("alpha", "beta", "k"), [(0.9, 0.75, 2.0), (2.0, 1.5, 0.5)])
def test_local_response_norm_becomes_one_node(tmp_path, alpha, beta, k):
    module = nn.LocalResponseNorm(3, alpha=alpha, beta=beta, k=k)
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4, 4)
    model = export(module, x, tmp_path)
    assert [node.op_type for node in model.graph.node] == ["LRN"]
    np.testing.assert_allclose(run(model, (x,))[0], module(x), rtol=1e-5)


def test_local_response_norm_stays_spelled_out_when_the_window_is_even(tmp_path):
    module = nn.LocalResponseNorm(4, alpha=0.9, beta=0.75, k=2.0)
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4, 4)
    model = export(module, x, tmp_path)
    assert not nodes(model, "LRN")
    np.testing.assert_allclose(run(model, (x,))[0], module(x), rtol=1e-5)


def folded(text: str) -> ir.Model:
    model = ir.serde.deserialize_model(parser.parse_model(text))
    ir.passes.common.ShapeInferencePass(data_prop=False)(model)
    fold_shapes(model.graph)
    ir.passes.common.RemoveUnusedNodesPass()(model)
    return model


_HEADER = '<ir_version: 9, opset_import: ["": 20]>\n'


def test_fold_shapes_turns_a_chain_with_one_unknown_into_a_constant():
    model = folded(
        _HEADER
        + """g (float[batch,4,6] x) => (float[a,b,c] y)
        <int64[1] one = {1}, int64[1] three = {3}, int64[1] minus = {-1}, int64[1] zero = {0},
         int64[1] two = {2}> {
          shape = Shape (x)
          batch = Slice (shape, zero, one)
          last = Slice (shape, minus, three)
          half = Div (last, two)
          target = Concat <axis = 0> (batch, half, minus)
          all = Concat <axis = 0> (batch, last, half)
          first = Reshape (x, target)
          y = Reshape (first, all)
        }"""
    )
    # A symbolic element and -1 cannot both be unknown, so the first Reshape keeps its chain.
    ops = [node.op_type for node in model.graph]
    assert ops.count("Reshape") == 2
    assert "Div" not in ops
    last = model.graph.outputs[0].producer()
    assert last.inputs[1].const_value.numpy().tolist() == [-1, 6, 3]


@pytest.mark.parametrize("dims", ["batch,0,6", "batch,other,6"])
def test_fold_shapes_leaves_a_reshape_that_minus_one_cannot_express(dims):
    model = folded(
        _HEADER
        + f"""g (float[{dims}] x) => (float[a,b,c] y) {{
          shape = Shape (x)
          y = Reshape (x, shape)
        }}"""
    )
    assert [node.op_type for node in model.graph] == ["Shape", "Reshape"]


def test_shape_of_the_batch_stays_when_a_value_needs_it(tmp_path):
    class ClassToken(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.ones(1, 1, 4))

        def forward(self, x):
            return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)

    model = export(ClassToken(), torch.zeros(2, 3, 4), tmp_path)
    assert "token" in initializers(model)
    assert run(model, (torch.zeros(7, 3, 4),))[0].shape == (7, 4, 4)


@pytest.mark.parametrize("batch_dim", [0, None])
def test_dropout2d_drops_whole_channels(tmp_path, batch_dim):
    module = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Dropout2d(0.5))
    torch.manual_seed(0)
    x = torch.randn(6, 3, 4, 4)
    model = export(module, x, tmp_path, batch_dim=batch_dim)
    found = run(model, (x,))[0]
    expected = module[0](x).detach().numpy() * 2
    dropped = (found == 0).all((2, 3))
    assert 0 < dropped.sum() < dropped.size
    np.testing.assert_allclose(found[~dropped], expected[~dropped], rtol=1e-5, atol=1e-6)


def test_batch_norm_without_statistics_is_one_node_in_training(tmp_path):
    module = nn.BatchNorm1d(3, track_running_stats=False)
    torch.manual_seed(0)
    x = torch.randn(6, 3) * 2 + 1
    model = export(module, x, tmp_path)
    assert [node.op_type for node in model.graph.node] == ["BatchNormalization"]
    np.testing.assert_allclose(run(model, (x,))[0], module(x).detach(), atol=1e-5)


class _Normed(nn.Module):
    """Batch-norms without running statistics, over the output of a layer."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 3), nn.Linear(64, 3)
        self.norm = nn.BatchNorm2d(4, track_running_stats=False) if how == "module" else None

    def forward(self, x):
        h = self.conv(x)
        h = self.norm(h) if self.norm else nn.functional.batch_norm(h, None, None, training=True)
        return self.head(torch.relu(h).flatten(1))


@pytest.mark.parametrize("how", ["module", "function"])
def test_batch_norm_without_statistics_predicts_by_those_of_the_batch(tmp_path, how):
    torch.manual_seed(0)
    module, x = _Normed(how), torch.randn(6, 2, 6, 6)
    path = export_torch(module, (x,), tmp_path / "net.onnx", input_names=["x"])
    expected = module.eval()(x).detach().numpy()
    (found,) = et.forward(path, {"x": x.numpy()}).values()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    trainer = et.Trainer(et.compile(path, minibatch=6, microbatch=6))
    np.testing.assert_allclose(trainer.predict(x.numpy()), expected, atol=1e-5)
    assert et.load_onnx(path).buffers == ()
    assert parity(path, steps=1).ok


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"nonlinearity": "relu"},
        {"num_layers": 2, "bidirectional": True},
        {"bias": False},
    ],
    ids=["relu", "two_layers_both_ways", "no_bias"],
)
def test_rnn_is_one_node_per_layer(tmp_path, options, batch_first):
    torch.manual_seed(0)
    module = nn.RNN(3, 4, batch_first=batch_first, **options)
    x = torch.randn(2, 5, 3) if batch_first else torch.randn(5, 2, 3)
    model = export(module, x, tmp_path, batch_dim=0 if batch_first else 1)
    assert len(nodes(model, "RNN")) == options.get("num_layers", 1)
    for found, expected in zip(run(model, (x,)), module(x), strict=True):
        np.testing.assert_allclose(found, expected.detach(), atol=1e-6)


def test_lstm_equals_torch_in_output_and_states(tmp_path):
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, x):
            y, (h, c) = self.lstm(x)
            return y, h, c

    torch.manual_seed(0)
    module = Flat()
    x = torch.randn(2, 5, 3)
    model = export(module, x, tmp_path)
    for found, expected in zip(run(model, (x,))[:3], module(x), strict=True):
        np.testing.assert_allclose(found, expected.detach(), atol=1e-6)


class _Standardised(nn.Conv2d):
    """Like timm's ScaledStdConv: batch statistics of the weight, not of samples."""

    def forward(self, x):
        rows = self.weight.reshape(1, self.out_channels, -1)
        rows = nn.functional.batch_norm(rows, None, None, training=True, eps=1e-6)
        return nn.functional.conv2d(x, rows.reshape_as(self.weight), self.bias, padding=1)


class _Untracked(nn.Conv2d):
    """Batch statistics of its input, without running statistics."""

    def forward(self, x):
        return nn.functional.batch_norm(super().forward(x), None, None, training=True)


@pytest.mark.parametrize("kind", [_Standardised, _Untracked])
def test_batch_statistics_without_running_ones_train_as_in_torch(tmp_path, kind):
    torch.manual_seed(0)
    tail = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]
    module = nn.Sequential(kind(3, 8, 3), *tail).train()
    x, y = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    path = export_torch(module, x, tmp_path / "net.onnx")
    loss = nn.functional.cross_entropy(module(x), y)
    loss.backward()
    program = et.compile(path, minibatch=4, microbatch=4, loss="cross_entropy")
    with et.Trainer(program) as trainer:
        assert trainer.step(x.numpy(), y.numpy()).loss == pytest.approx(loss.item(), rel=1e-5)
    _, found = et.loss_and_gradients(path, x.numpy(), y.numpy(), loss="cross_entropy")
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(found[name], parameter.grad, rtol=1e-4, atol=2e-6)


_BOUNDS = {
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp to 0 6": lambda x: x.clamp(0, 6),
    "clamp from below": lambda x: x.clamp(min=0),
    "clamp to tensors": lambda x: torch.clamp(x, torch.tensor([-1.0, 0, 1]), torch.tensor(1.0)),
    "relu6": nn.functional.relu6,
    "hardtanh": nn.functional.hardtanh,
    "hardsigmoid": nn.functional.hardsigmoid,
    "hardswish": nn.functional.hardswish,
    "maximum": lambda x: torch.maximum(x, torch.ones(3)),
}


class _Bounded(nn.Module):
    """A function of x + w, with values at the function's bounds."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        rows = [-3.0, -1, -0.5, 0, 0.5, 1, 3, 6, 7]
        self.weight = nn.Parameter(torch.tensor(rows)[:, None].repeat(1, 3))
        self.kind = kind

    def forward(self, x):
        return _BOUNDS[self.kind](x + self.weight).flatten(1)


@pytest.mark.parametrize("by", ["export_torch", "torch.onnx.export"])
@pytest.mark.parametrize("kind", _BOUNDS)
def test_slope_at_a_bound_is_that_of_the_exported_function(tmp_path, kind, by):
    module, x, path = _Bounded(kind), torch.zeros(2, 9, 3), tmp_path / "m.onnx"
    if by == "export_torch":
        export_torch(module, x, path)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (x,), path, dynamo=True, verbose=False, external_data=False)
    y = torch.linspace(-1, 1, 54).reshape(2, 27)
    nn.functional.mse_loss(module(x), y).backward()
    model = et.load_onnx(path)
    _, found = et.loss_and_gradients(model, x.numpy(), y.numpy(), loss="mse")
    np.testing.assert_allclose(found["weight"], module.weight.grad, rtol=1e-4, atol=1e-7)


class _Optional(nn.Module):
    """A forward with `*args` that may be empty."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, *more):
        return self.layer(sum(more, x))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_arguments_behind_a_star_may_be_none(tmp_path, count):
    module, inputs = _Optional(), tuple(torch.randn(count, 4, 3))
    path = export_torch(module, inputs, tmp_path / "m.onnx")
    names = [spec.name for spec in et.load_onnx(path).inputs]
    found = et.forward(path, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})
    np.testing.assert_allclose(*found.values(), module(*inputs).detach(), rtol=1e-5, atol=1e-6)


class _WithScale(nn.Module):
    """Also returns a weight and a buffer, as the heads of CLIP do."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor(0.3))
        self.register_buffer("table", torch.randn(3))

    def forward(self, x):
        return self.head(x) * self.scale.exp(), self.scale, self.table


@pytest.mark.parametrize("names", [None, ["y", "s", "t"]])
def test_export_writes_weights_that_are_outputs(tmp_path, names):
    module, x = _WithScale(), torch.randn(2, 4)
    model = export(module, x, tmp_path, output_names=names)
    assert {*metadata(model)["parameters"]} == {"head.weight", "head.bias", "scale"}
    assert names is None or [value.name for value in model.graph.output] == names
    for found, expected in zip(run(model, (x,)), module(x), strict=True):
        np.testing.assert_allclose(found, expected.detach(), rtol=1e-5, atol=1e-6)
