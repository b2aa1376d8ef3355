"""Operators that torch's export lacks: the file means the same, or the error says what to do."""

import random

import numpy as np
import onnx
import pytest
import torch
from torch import cdist, cumprod, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention

import edgetrain as et
from edgetrain.errors import ModelError
from edgetrain.exporters import ExportWarning, export_torch
from edgetrain.exporters.parity import parity
from tests.quick import slow_between, slow_except

from .exported import run


class _Net(nn.Module):
    """A layer, and what a test does with its output."""

    def __init__(self, after) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.table, self.after = nn.Linear(6, 8), nn.Parameter(torch.randn(5, 8)), after

    def forward(self, x):
        return self.after(self.first(x), self.table)


def _attention(x, _):
    q = x.reshape(-1, 4, 2)
    mask = torch.ones(4, 4).tril()[None].bool()
    return F.scaled_dot_product_attention(q, q, q, mask).flatten(1)


def _hidden(x, _):
    """Attention in which a sample has no key."""
    q = x.reshape(-1, 4, 2)
    mask = ((q.sum(-1) > 0) & (x.sum(1, keepdim=True) > 0))[:, None, :]
    return F.scaled_dot_product_attention(q, q, q, mask).flatten(1)


def _means(x, table):
    """Means by groups, of which some are empty."""
    places = torch.tensor([[1, 1, 3, 1, 3, 5, 5, 7]]).expand(x.shape[0], -1)
    first = x.scatter_reduce(1, places, x * 2, "mean", include_self=False)
    return first + torch.scatter_reduce(table[:1] * x, 1, places, x * x, "mean")


def _margins(x, _):
    """The classes of each sample end at a -1, if there is one."""
    classes = torch.tensor([3, 0, 5, 1, 2, 2, 4, 7])
    rows = torch.where(x > 1.0, -1, classes)
    return x * F.multilabel_margin_loss(x, rows)


def _old_arguments(x, _):
    places = x.argmax(1).detach()
    return x * F.cross_entropy(x, places, size_average=True, label_smoothing=0.3)


def _resized(x, _):
    """Scales that are not the quotient of the sizes."""
    maps = x.reshape(-1, 1, 4, 2)
    options = {"scale_factor": (0.6, 2.3), "antialias": True}
    found = [F.interpolate(maps, mode=mode, **options) for mode in ("bilinear", "bicubic")]
    return torch.cat(found, 1).flatten(1)


def _windows(x, table):
    """Attention within windows: five axes, with masks of three to five."""
    q = x.reshape(-1, 2, 1, 2, 2)
    found = F.scaled_dot_product_attention(q, q, q)
    for shape in ((1, 2, 2), (2, 1, 2, 2), (1, 2, 1, 2, 2)):
        mask = table.flatten()[: int(np.prod(shape))].reshape(shape)
        found = found + F.scaled_dot_product_attention(q, q, q, mask)
    return found.flatten(1)


def _one_head(x, table):
    """Attention of two axes, by a name that was imported."""
    keys = scaled_dot_product_attention(table, table, table)
    return x @ keys.T


def _heads(x, _):
    q = x.reshape(-1, 4, 1, 2).transpose(1, 2)
    found = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return found.transpose(1, 2).contiguous().reshape(x.shape[0], -1)


def _by_position(x, _):
    """With positional arguments, as nn.MultiheadAttention calls it."""
    q = x.reshape(-1, 4, 1, 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, None, 0.0, True).flatten(1)


def _distances(x, _):
    rows = x.reshape(-1, 4, 2)
    return torch.cdist(rows, rows.flip(1)).flatten(1) + torch.cdist(rows, rows, 1.0).flatten(1)


def _same_distances(x, _):
    rows = x.reshape(-1, 4, 2)
    return torch.cdist(rows, rows).flatten(1)  # 0 on the diagonal


def _bags(x, table):
    ids = torch.tensor([[0, 3, 4]]).expand(x.shape[0], 3)
    share = torch.tensor([[0.2, 0.5, 0.3]]).expand(x.shape[0], 3)
    found = F.embedding_bag(ids, table, mode="max") + F.embedding_bag(ids, table)
    return x + found + F.embedding_bag(ids, table, mode="sum", per_sample_weights=share)


def _labels(x):
    return (x.detach()[:, 0] > 0).long() * 3 + 1


def _smooth_entropy(x, _):
    return F.cross_entropy(x, _labels(x), label_smoothing=0.2, reduction="none")


def _entropy_of_maps(x, table):
    """Cross-entropy with class weights and an ignored label."""
    maps, labels = x.reshape(-1, 4, 2), (x.detach()[:, :2] > 0).long()
    options = {"ignore_index": 1, "label_smoothing": 0.1, "reduction": "none"}
    return F.cross_entropy(maps, labels, torch.tensor([1.0, 2.0, 0.5, 1.0]), **options)


def _mean_entropy(x, _):
    return x * F.cross_entropy(x, _labels(x), label_smoothing=0.1, ignore_index=4)


def _plain_entropy(x, _):
    return x * F.cross_entropy(x, _labels(x)) + F.nll_loss(x.log_softmax(1), _labels(x))


def _soft_entropy(x, table):
    soft = table.softmax(1)[:1].expand(x.shape[0], 8)
    each = F.cross_entropy(x, soft, table.detach()[1].abs(), reduction="none")
    return x * F.cross_entropy(x, soft, label_smoothing=0.1) + each[:, None]


def _gaussian(x, table):
    spread = F.relu(x)  # at its floor for about half of the values
    each = F.gaussian_nll_loss(x, table[:1] + 0 * x, spread + 0.1, full=True, reduction="none")
    return each + F.gaussian_nll_loss(x, 0 * x, 0.5 * torch.ones_like(x))


def _products(x, _):
    return torch.cumprod(x, 1) + F.relu(x).reshape(-1, 4, 2).cumprod(-2).flatten(1)


def _by_other_names(x, _):
    """The same functions under the module's own names, and the operators themselves."""
    rows = x.reshape(-1, 4, 2)
    between = cdist(rows, rows.flip(1)) + torch.ops.aten.cdist(rows, rows.flip(1), 1.0)
    return cumprod(x, 1) + torch.ops.aten.cumprod(x, -1) + between.flatten(1)[:, :8]


def _sinc(x, _):
    """At 0 for about half of the values."""
    return torch.sinc(F.relu(x)) + torch.sinc(x)


def _volumes(x, _):
    pool, again = nn.AdaptiveAvgPool3d((2, 1, 2)), nn.AdaptiveAvgPool3d((3, None, 1))
    maps = x.reshape(-1, 1, 4, 1, 2)
    return torch.cat([pool(maps).flatten(1), again(maps).flatten(1)], 1)


def _diagonals(x, table):
    matrices = x.reshape(-1, 2, 4)
    square = matrices @ matrices.mT
    parts = [
        torch.diagonal(square, dim1=1, dim2=2),
        matrices.diagonal(-1, -2, -1),
        torch.diagonal(matrices, 2, 2, 1),  # empty
        torch.linalg.diagonal(matrices, offset=1),
        matrices.diagonal(offset=-2, dim1=-1, dim2=-2),
    ]
    return torch.cat(parts, 1) * torch.trace(table) + table[:2].trace()


@pytest.mark.filterwarnings("ignore::edgetrain.exporters.torch_export.ExportWarning")
@pytest.mark.filterwarnings("ignore:size_average and reduce:UserWarning")
@pytest.mark.parametrize(
    "after",
    slow_between([
        _attention, _windows, _one_head, _heads, _by_position, _distances, _same_distances,
        _bags, _smooth_entropy, _entropy_of_maps, _mean_entropy, _plain_entropy,
        _soft_entropy, _gaussian, _products, _volumes, _by_other_names, _sinc, _hidden, _means,
        _diagonals, _margins, _old_arguments, _resized,
    ], 2),
)  # fmt: skip
def test_functions_mean_what_the_module_means(tmp_path, after):
    net, x = _Net(after), torch.randn(3, 6)
    path = export_torch(net, x, tmp_path / "model.onnx")
    np.testing.assert_allclose(run(onnx.load(path), (x,))[0], net(x).detach(), rtol=1e-4, atol=1e-5)
    report = parity(path, loss="mse", steps=1)
    assert report.ok, report.summary()


class _Layers(nn.Module):
    def __init__(self, kind: str, both: bool, batch_first: bool, share: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        options = {"bidirectional": both, "batch_first": batch_first, "dropout": share}
        self.cells = getattr(nn, kind)(4, 5, num_layers=3, **options)
        self.last = nn.Linear(10 if both else 5, 2)

    def forward(self, x):
        x = x if self.cells.batch_first else x.transpose(0, 1)
        found = self.cells(x)[0]
        return self.last(found.mean(1 if self.cells.batch_first else 0))


@pytest.mark.parametrize(
    ("kind", "both", "batch_first"),
    slow_except(
        [(k, both, not both) for k in ("LSTM", "GRU", "RNN") for both in (False, True)],
        ("LSTM", False, True), ("RNN", True, False),
    ),
)  # fmt: skip
def test_dropout_between_the_layers_of_a_recurrence_is_in_the_file(
    tmp_path, kind, both, batch_first
):
    net, x = _Layers(kind, both, batch_first, 0.3), torch.randn(2, 3, 4)
    path = export_torch(net, x, tmp_path / "model.onnx")
    assert [n.op_type for n in onnx.load(path).graph.node].count("Dropout") == 2
    report = parity(path, loss="mse", steps=1)
    assert report.ok, report.summary()
    # Without dropout, the layers mean the same as torch's own operator.
    plain, whole = _Layers(kind, both, batch_first, 1e-9), _Layers(kind, both, batch_first, 0.0)
    path = export_torch(plain, x, tmp_path / "plain.onnx")
    np.testing.assert_allclose(
        run(onnx.load(path), (x,))[0], whole(x).detach(), rtol=1e-4, atol=1e-5
    )


def _branch(x, table):
    return x if torch.rand([]) < 0.5 else x * 2


def _length(x, table):
    return x + torch.zeros(len(x), 8)


def _masked(x, table):
    return x * torch.from_numpy(np.random.random((len(x), 1)).astype("f"))


@pytest.mark.parametrize(
    ("after", "advice"),
    [
        (_branch, "layerdrop=0.0 .* torch.where"),
        (_length, "batch_dim=None"),
        (_masked, "apply_spec_augment=False"),
    ],
)
def test_torchs_message_is_followed_by_the_next_move(tmp_path, after, advice):
    with pytest.raises(ModelError, match=advice):
        export_torch(_Net(after), torch.randn(3, 6), tmp_path / "model.onnx")


@pytest.mark.parametrize("draw", [np.random.random, random.random], ids=["numpy", "python"])
def test_numbers_that_python_draws_are_constants_and_the_export_says_so(tmp_path, draw):
    net = _Net(lambda x, table: x * draw() + table.mean())
    with pytest.warns(ExportWarning, match=r"draws with Python's random .* as constants"):
        export_torch(net, torch.randn(3, 6), tmp_path / "model.onnx")


class _Logits(nn.Module):
    def __init__(self, model) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits


def test_a_mixture_of_experts_of_transformers_is_exported_and_trains(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, num_local_experts=4, use_cache=False,
        max_position_embeddings=32,
    )  # fmt: skip
    net = _Logits(transformers.MixtralForCausalLM(config)).train()
    before = config._experts_implementation
    path = export_torch(net, torch.randint(0, 64, (2, 6)), tmp_path / "m.onnx")
    assert config._experts_implementation == before
    assert parity(path, loss=et.Loss("cross_entropy", class_axis=2), minibatch=2, steps=2).ok


class _Loss(nn.Module):
    """A loss of a layer's output, in the module."""

    def __init__(self, loss) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.loss = nn.Linear(5, 4), loss

    def forward(self, x, t):
        return self.loss(self.layer(x), t)


def _checked_gradients(module, x, t, folder) -> None:
    """Compare loss and gradients of the file with torch's."""
    path = export_torch(module, (x, t), folder / "model.onnx")
    loss = module(x, t)
    loss.backward()
    inputs = {"x": x.numpy(), "t": t.numpy()}
    found, gradients = et.loss_and_gradients(path, inputs, loss="output")
    assert found == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 0.5, 3.0])], ids=["", "weighed"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_saturated_probabilities_have_the_gradients_of_torch(tmp_path, reduction, weight):
    def entropy(y, t):
        each = F.binary_cross_entropy(torch.sigmoid(y), t, weight, reduction=reduction)
        return each.mean() if reduction == "none" else each

    module, x = _Loss(entropy), torch.randn(6, 5)
    x[0], x[1] = 60 * x[0], 600 * x[1]
    with torch.no_grad():
        p = torch.sigmoid(module.layer(x))
    assert (p == 0).any() and (p == 1).any()
    _checked_gradients(module, x, (torch.arange(24) % 3 > 0).float().reshape(6, 4), tmp_path)


def _spread(y, t):
    return F.gaussian_nll_loss(y[:, :2], t, F.relu(y[:, 2:]), eps=0.01)


def _of_small_spread() -> _Loss:
    module = _Loss(_spread)
    with torch.no_grad():
        module.layer.weight[2:] *= 0.001
        module.layer.bias[2:] = torch.tensor([0.005, 0.3])
    return module


@pytest.mark.filterwarnings("ignore::edgetrain.exporters.torch_export.ExportWarning")
def test_a_variance_below_its_floor_has_the_gradient_of_torch(tmp_path):
    _checked_gradients(_of_small_spread(), torch.randn(6, 5), torch.randn(6, 2), tmp_path)


def test_a_floor_of_a_variance_is_no_stopped_gradient(tmp_path):
    """Export warnings are errors here."""
    export_torch(_of_small_spread(), (torch.randn(6, 5), torch.randn(6, 2)), tmp_path / "m.onnx")


class _Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        return nn.utils.rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True)[0]


@pytest.mark.parametrize(
    ("module", "inputs", "words"),
    [
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveMaxPool2d(4)),
            (torch.zeros(2, 1, 8, 8),),
            r"cannot export it: .*adaptive_max_pool2d.* use one with kernel_size",
        ),
        (
            _Packed(),
            (torch.zeros(2, 5, 3), torch.tensor([5, 3])),
            "symbolic batch: .*as in packed sequences.* pass padded sequences",
        ),
    ],
    ids=["no function", "packed"],
)
def test_what_torch_cannot_export_has_advice(module, inputs, words, tmp_path):
    with pytest.raises(ModelError, match=words):
        export_torch(module, inputs, tmp_path / "net.onnx")
