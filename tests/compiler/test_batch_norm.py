"""Which batch-norms use running statistics, and the memory that saves."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import edgetrain as et
from edgetrain.api import make_options, plan
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.passes import batch_norm
from edgetrain.compiler.plan.frontier import microbatches
from edgetrain.errors import ModelError, UsageError
from edgetrain.exporters import export_torch

from .nets import Net, graphs, residual

pytestmark = pytest.mark.usefixtures("quick_planner")


def _net(*norms: str, affine: bool = True, inner: str = "body", first: bool = False):
    """[norm0,] conv1, norm1, relu, conv2, norm2, head.0 (a norm), fc.

    Args:
      norms: the norms that are present, from "norm0", "norm1", "norm2" and "head.0".
      affine: norms have parameters; otherwise constants.
      inner: prefix of the body's names; "" puts them in no module.
    """
    net = Net(2, 5, 5)
    stem = f"{inner}." if inner else ""

    def norm(x: str, name: str, channels: int) -> str:
        if name not in norms:
            return x
        label = name if name.startswith("head") else f"{stem}{name}"
        out = net.norm(x, label, channels)
        if not affine:
            for tag in ("gamma", "beta"):
                net.constants[f"{label}.{tag}"] = net.weights.pop(f"{label}.{tag}")
        return out

    x = norm("x", "norm0", 2)
    x = net.add("Relu", [norm(net.conv(x, f"{stem}conv1", 4, 2), "norm1", 4)], "relu1")
    x = norm(net.conv(x, f"{stem}conv2", 4, 4), "norm2", 4)
    return net.model(net.head(norm(x, "head.0", 4), 4))


def _moving(model, **options) -> set[str]:
    train = graphs(model, **options).train
    return {v.removesuffix(".mean.staged") for v in train.values if v.endswith("mean.staged")}


BODY = ("norm1", "norm2")
EVERY = {"body.norm1", "body.norm2"}


@pytest.mark.parametrize(
    ("options", "moving"),
    [
        ({}, EVERY),
        ({"freeze": ["body.*"]}, set()),
        ({"train": ["fc.*"]}, set()),
        ({"freeze": ["body.norm1.*"]}, {"body.norm2"}),
        ({"freeze": ["body.conv*"]}, EVERY),
        ({"freeze": ["body.norm1.gamma", "body.norm2.*"]}, {"body.norm1"}),  # beta still trains
        ({"freeze": ["body.norm1.mean"]}, {"body.norm2"}),  # frozen through a statistic's name
        ({"train": ["body.norm2.*", "fc.*"]}, {"body.norm2"}),
        ({"freeze": ["body.*"], "freeze_bn": False}, EVERY),
        ({"freeze_bn": True}, set()),
    ],
)
def test_batch_norm_with_parameters_is_held_where_all_are_frozen(options, moving):
    assert _moving(_net(*BODY), **options) == moving


@pytest.mark.parametrize(
    ("norms", "inner", "options", "moving"),
    [
        (BODY, "body", {}, EVERY),
        (BODY, "body", {"freeze": ["body.*"]}, set()),
        (BODY, "", {"freeze": ["conv*"]}, set()),  # flat names: decided by the layers that feed it
        (BODY, "", {"train": ["fc.*"]}, set()),
        (BODY, "body", {"freeze": ["body.conv1.*"]}, {"body.norm2"}),
        (BODY, "body", {"freeze": ["body.conv2.*"]}, EVERY),  # conv1, which feeds both, is trained
        (("norm2", "head.0"), "body", {"freeze": ["body.*"]}, set()),  # head has no trained layer
        (BODY, "body", {"train": ["fc.*", "body.norm2.*"]}, {"body.norm2"}),  # named in --train
        (("norm0",), "body", {}, {"body.norm0"}),  # at the input: decided by the layers after it
        (("norm0",), "body", {"freeze": ["body.conv1.*"]}, set()),
        (("norm0",), "body", {"freeze": ["fc.*"]}, {"body.norm0"}),
        (BODY, "body", {"freeze": ["body.*"], "freeze_bn": False}, EVERY),
        (BODY, "body", {"freeze_bn": True}, set()),
    ],
)
def test_batch_norm_without_parameters_follows_the_layers_around_it(norms, inner, options, moving):
    assert _moving(_net(*norms, affine=False, inner=inner), **options) == moving


@pytest.mark.parametrize(
    ("freeze", "moving"),
    [(["body.*"], {"head.0"}), (["body.*", "head.1.*"], set()), (["body.*", "head.*"], set())],
)
def test_batch_norm_of_a_head_that_is_trained_moves(freeze, moving):
    net = Net(2, 5, 5)
    x = net.norm(net.conv("x", "body.conv", 4, 2), "head.0", 4)
    for tag in ("gamma", "beta"):
        net.constants[f"head.0.{tag}"] = net.weights.pop(f"head.0.{tag}")
    model = net.model(net.head(net.conv(x, "head.1", 4, 4), 4))
    assert _moving(model, freeze=freeze) == moving


def test_held_batch_norm_is_affine_and_keeps_nothing():
    train = graphs(residual(), freeze=["*.bn*"]).train
    ops = {node.op for node in train.nodes}
    assert not {"bn_stats", "bn_running", "bn_dx", "bn_reduce"} & ops
    assert {"bn_eval_stats", "bn_dx_eval"} <= ops
    net = Net(2, 5, 5)  # with no activation after it, the gradient does not read the input
    x = net.add("Tanh", [net.norm(net.conv("x", "conv", 4, 2), "norm", 4)], "tanh")
    train = graphs(net.model(net.head(x, 4)), freeze=["norm.*"]).train
    assert "conv" not in {n for node in train.nodes if node.phase == "backward" for n in node.reads}


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, 8), ({"freeze": ["b*.bn*"]}, 1), ({"freeze_bn": True}, 1),
        ({"freeze": ["b0.*"]}, 8), ({"freeze": ["b*"], "freeze_bn": False}, 8),
    ],
)  # fmt: skip
def test_microbatches_are_free_where_no_batch_norm_moves(options, least):
    compilation = Compilation(residual(), make_options(minibatch=16, **options))
    assert min(microbatches(compilation)) == least


def test_fine_tuning_takes_half_the_bytes_where_statistics_are_held():
    options = {"minibatch": 16, "freeze": ["stem.*", "b*"]}
    held = plan(residual(), **options)["min_budget_nbytes"]
    moving = plan(residual(), freeze_bn=False, **options)["min_budget_nbytes"]
    assert held < 0.55 * moving


def test_one_element_a_channel_is_refused_where_the_norm_moves():
    net = Net(4)
    flat = net.norm(net.add("Gemm", ["x", net.weight("one", 4, 3)], "h"), "norm", 3)
    model = net.model(net.add("Gemm", [flat, net.weight("two", 3, 3)], "y"))
    with pytest.raises(ModelError, match=r"node 'norm' .* one value per channel; .*--freeze-bn"):
        graphs(model, microbatch=1)
    assert _moving(model, microbatch=1, freeze=["norm.*"]) == set()


def test_staged_copies_do_not_take_the_name_of_another_value():
    net = Net(2, 5, 5)
    x = net.norm(net.conv("x", "conv", 4, 2), "norm", 4)
    taken = net.add("Relu", [x], batch_norm.staged_name("norm.mean"))
    with pytest.raises(ModelError, match=r"'norm\.mean'.*'norm\.mean\.staged'"):
        graphs(net.model(net.head(taken, 4)))


def test_freeze_bn_is_none_true_or_false():
    with pytest.raises(UsageError, match="freeze_bn 'all': expected true or false or None"):
        make_options(freeze_bn="all")


def test_account_lists_what_is_trained_what_is_frozen_and_what_moves():
    facts = plan(_net(*BODY), freeze=["body.conv*", "body.norm1.*"], minibatch=8)["training"]
    assert {kind: found["names"] for kind, found in facts.items()} == {
        "trained": ["body.norm2.gamma", "body.norm2.beta", "fc.w", "fc.b"],
        "frozen": ["body.conv1.w", "body.norm1.gamma", "body.norm1.beta", "body.conv2.w"],
        "moves": ["body.norm2.mean", "body.norm2.var"],
        "stays": ["body.norm1.mean", "body.norm1.var"],
    }
    assert (facts["trained"]["count"], facts["trained"]["numbers"]) == (4, 4 + 4 + 12 + 3)
    assert facts["moves"]["nbytes"] == 32


def test_account_says_which_weights_stay_dense_and_why():
    options = {"density": 0.5, "freeze": ["b1.conv1.*"], "minibatch": 8}
    facts = plan(residual(), density_overrides={"b0.conv1.*": 1}, **options)["training"]
    assert facts["sparse"] == ["b0.conv2.w", "b1.conv2.w"]
    assert facts["dense"] == {
        "stem.w": "first convolution", "b0.conv1.w": "density 1", "b1.conv1.w": "frozen",
        "fc.w": "classifier",
    }  # fmt: skip
    assert "dense" not in plan(residual(), minibatch=8)["training"]


@pytest.mark.parametrize("affine", [False, True])
def test_a_batch_norm_in_evaluation_mode_stays_frozen(tmp_path, affine):
    torch.manual_seed(0)
    norms = nn.BatchNorm1d(5, affine=affine), nn.BatchNorm1d(5)
    module = nn.Sequential(nn.Linear(6, 5), *norms, nn.Linear(5, 2))
    module[1].eval()
    x, y = torch.randn(6, 6), torch.randn(6, 2)
    model = et.load_onnx(export_torch(module, x, tmp_path / "model.onnx"))
    assert model.frozen == ("1.running_mean",)
    options = {"loss": "mse", "minibatch": 6}
    noted = Compilation(model, make_options(**options)).notes()
    assert ["1.running_mean" in note for note in noted] == [True]
    assert not Compilation(model, make_options(**options, freeze_bn=False)).notes()
    trainer = et.Trainer(et.compile(model, optimizer=et.SGD(lr=0.1), **options))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(module(x), y).backward()
        optimizer.step()
        trainer.step(x.numpy(), y.numpy())
    found = trainer.state_dict()
    for name, tensor in module.state_dict().items():
        if "num_batches" not in name:
            np.testing.assert_allclose(found[name], tensor, rtol=1e-4, atol=1e-5, err_msg=name)
