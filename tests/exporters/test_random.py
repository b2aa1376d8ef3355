"""Modules that draw random numbers: the file's contents, parity's numbers for torch, evaluation."""

import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity
from edgetrain.exporters.torch_export import ExportWarning
from edgetrain.importer import load_onnx
from edgetrain.runtime.session import Session

KEEP = 0.75


class _Net(nn.Module):
    """A layer, the operation under test, and another layer."""

    def __init__(self, between) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.between = nn.Linear(6, 4), nn.Linear(4, 3), between

    def forward(self, x):
        return self.last(self.between(self.first(x), self.training))


def _depth_by_bernoulli(x, training):
    if not training:
        return x
    return x * x.new_empty((x.shape[0], 1)).bernoulli_(KEEP).div_(KEEP)


def _depth_by_floor(x, training):
    if not training:
        return x
    return x.div(KEEP) * (KEEP + torch.rand((x.shape[0], 1))).floor_()


def _depth_by_comparison(x, training):
    return x * ((torch.rand_like(x) >= 1 - KEEP).float() / KEEP) if training else x


def _dropout_in_place(x, training):
    return nn.functional.dropout(x, 1 - KEEP, training, inplace=True)


def _channels_in_place(x, training):
    return nn.functional.dropout2d(x[:, :, None, None], 1 - KEEP, training, True)[:, :, 0, 0]


def _sampled(x, training):
    return torch.distributions.Normal(x, x.abs() + 0.1).rsample()


def _noisy(x, training):
    kept = torch.bernoulli(x.sigmoid()) + torch.empty(x.shape[0], 4).uniform_(-1, 1)
    return nn.functional.rrelu(x, training=True) + kept + torch.empty_like(x).normal_(1, 2)


MASKS = [
    _depth_by_bernoulli, _depth_by_floor, _depth_by_comparison, _dropout_in_place,
    _channels_in_place,
]  # fmt: skip
NOISE = [_sampled, _noisy]
_X = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))


def _exported(path, between):
    return export_torch(_Net(between), _X, path / "model.onnx")


def _ops(path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize("between", MASKS)
def test_masks_become_dropout_and_evaluation_has_none(tmp_path, between):
    path = _exported(tmp_path, between)
    assert "Dropout" in _ops(path) and not any("Random" in op for op in _ops(path))
    program = et.compile(path, loss="mse", minibatch=8)
    session = Session(program)
    try:
        found = session.predict({"x": _X.numpy()})
    finally:
        session.close()
    with torch.no_grad():
        expected = _Net(between).eval()(_X).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # float32 rounding errors


@pytest.mark.parametrize("between", MASKS)
def test_masks_keep_the_share_that_the_module_keeps(tmp_path, between):
    """With equal weights, the loss shows the variance of the masks, which depends on that share."""
    net = _Net(between)
    with torch.no_grad():
        net.first.weight.zero_()
        net.first.bias.fill_(1)
        net.last.weight.fill_(0.25)
        net.last.bias.zero_()
    path = export_torch(net, _X, tmp_path / "model.onnx")
    inputs, target = {"x": np.zeros((4096, 6), np.float32)}, np.zeros((4096, 3), np.float32)
    loss, _ = et.loss_and_gradients(path, inputs, target, loss="mse", dropout=True)
    each = between in (_depth_by_bernoulli, _depth_by_floor)
    variance = (1 / KEEP - 1) / (1 if each else 4)  # of a sample's mean over its four units
    assert loss == pytest.approx(1 + variance, abs=0.1)  # five deviations over 4096 samples


@pytest.mark.filterwarnings("ignore::edgetrain.exporters.torch_export.ExportWarning")
@pytest.mark.parametrize("between", NOISE)
@pytest.mark.parametrize("options", [{}, {"microbatch": 2}, {"precision": "fp16"}])
def test_parity_hands_torch_the_numbers_that_are_drawn(tmp_path, between, options):
    path = _exported(tmp_path, between)
    report = parity(path, loss="mse", steps=2, seed=2**33 + 7, **options)
    assert report.ok, report.summary()


@pytest.mark.filterwarnings("ignore::edgetrain.exporters.torch_export.ExportWarning")
def test_parity_departs_with_numbers_of_another_moment(tmp_path, monkeypatch):
    from edgetrain.exporters import reference_random

    path, drawn = _exported(tmp_path, _sampled), reference_random._fractions
    monkeypatch.setattr(
        reference_random, "_fractions", lambda node, at, k: drawn(node, (at[0], 9, at[2]), k)
    )
    assert not parity(path, loss="mse", steps=1).ok


@pytest.mark.parametrize("between", NOISE)
def test_numbers_that_evaluation_draws_too_are_said(tmp_path, between):
    with pytest.warns(ExportWarning, match="Random.* draw random numbers"):
        _exported(tmp_path, between)


def _in_evaluation(x, training):
    return x * (torch.rand_like(x) < KEEP).float()


def test_masks_that_evaluation_draws_too_are_said(tmp_path):
    with pytest.warns(ExportWarning, match="in the file they are Dropout"):
        _exported(tmp_path, _in_evaluation)


@pytest.mark.parametrize("between", MASKS)
def test_masks_of_training_alone_are_no_reason_for_a_warning(tmp_path, between):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        _exported(tmp_path, between)
    assert not [one for one in found if issubclass(one.category, ExportWarning)]


@pytest.mark.filterwarnings("ignore::edgetrain.exporters.torch_export.ExportWarning")
def test_a_look_for_masks_leaves_module_and_random_state_alone(tmp_path):
    net = _Net(_in_evaluation)
    net.last.eval()
    before = torch.get_rng_state()
    export_torch(net, _X, tmp_path / "model.onnx")
    assert [part.training for part in (net, net.first, net.last)] == [True, True, False]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.filterwarnings("ignore::edgetrain.exporters.torch_export.ExportWarning")
def test_a_minibatch_is_split_where_each_sample_draws_its_own(tmp_path):
    def shared(x, training):
        return x + torch.rand(4)

    for between, kind in ((_sampled, "independent"), (shared, "mixed")):
        model = load_onnx(_exported(tmp_path, between))
        found = Compilation(model, make_options(loss="mse", minibatch=8)).prepared.samples
        assert found.kind == kind
    assert "draws random numbers for the whole batch" in found.why


class _Mixed(nn.Module):
    """x in two parts, chosen by masks of one draw or of two."""

    def __init__(self, parts) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.parts = nn.Linear(6, 4), parts

    def forward(self, x):
        return self.parts(self.first(x))


def _both(x):
    drawn = torch.rand_like(x)
    return x * (drawn < 0.5).float() + x * (drawn >= 0.5).float()


def _nested(x):
    drawn = torch.rand_like(x)
    return x * (drawn < 0.7).float() * (drawn < 0.3).float() - x * (drawn < 0.3).float()


def _negated(x):
    mask = torch.rand_like(x) < 0.5
    return x * mask.float() + x * (~mask).float()


@pytest.mark.parametrize("parts, share", [(_both, 1.0), (_nested, 0.0), (_negated, 1.0)])
def test_masks_of_one_draw_belong_together(tmp_path, parts, share):
    module = _Mixed(parts)
    with pytest.warns(ExportWarning, match="draw random numbers"):
        path = export_torch(module, _X, tmp_path / "model.onnx")
    program = et.compile(path, loss="mse", optimizer=et.SGD(lr=0.0), minibatch=8, microbatch=4)
    trainer, y = et.Trainer(program), np.zeros((8, 4), np.float32)
    expected = float((share * module.first(_X)).square().mean().detach())
    for _ in range(3):
        assert trainer.step(_X.numpy(), y).loss == pytest.approx(expected, rel=1e-5, abs=1e-9)


def _two(x):
    first, second = torch.rand_like(x), torch.rand_like(x)
    return x * (first < 0.5).float() - x * (second < 0.5).float()


def test_equal_shares_of_two_draws_are_two_dropouts(tmp_path):
    with pytest.warns(ExportWarning, match="in the file they are Dropout"):
        path = export_torch(_Mixed(_two), _X, tmp_path / "model.onnx")
    names = [node.op_type for node in onnx.load(path).graph.node]
    assert names.count("Dropout") == 2
    program = et.compile(path, loss="mse", optimizer=et.SGD(lr=0.0), minibatch=8, microbatch=4)
    assert et.Trainer(program).step(_X.numpy(), np.zeros((8, 4), np.float32)).loss > 1e-3


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_is_nothing_in_evaluation(tmp_path, kind, inplace):
    part = kind(0.3, inplace=inplace)
    module = nn.Sequential(nn.Linear(6, 4), nn.SELU(), part, nn.Linear(4, 3))
    path = export_torch(module, _X, tmp_path / "model.onnx")
    expected = module.eval()(_X).detach().numpy()
    trainer = et.Trainer(et.compile(path, loss="mse", minibatch=8, microbatch=4))
    np.testing.assert_allclose(trainer.predict(_X), expected, rtol=1e-5, atol=1e-6)
    assert parity(path, steps=2, minibatch=8).ok


@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(tmp_path, kind):
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    module = nn.Sequential(nn.Linear(256, 256, bias=False), kind(0.3))
    with torch.no_grad():
        module[0].weight.copy_(torch.eye(256))
    path = export_torch(module, x, tmp_path / "model.onnx")
    program = et.compile(path, loss="mse", optimizer=et.SGD(lr=0.0), minibatch=64, microbatch=64)
    trainer, zero = et.Trainer(program), np.zeros((64, 256), np.float32)
    losses = [trainer.step(x.numpy(), zero).loss for _ in range(5)]
    with torch.no_grad():
        expected = [float(module.train()(x).square().mean()) for _ in range(5)]
    assert np.mean(losses) == pytest.approx(np.mean(expected), rel=0.05)
    assert len({*losses}) == 5
