"""A budget never changes the objective: losses over the batch are split correctly or not at all."""

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its own name

import edgetrain as et
import examples
from device_tests import kinds
from edgetrain.api import make_options
from edgetrain.cli import main
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.model.samples import INDEPENDENT, MEAN, MIXED, SUM
from edgetrain.compiler.plan.frontier import microbatches
from edgetrain.errors import BudgetError, DataError, UsageError
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity
from edgetrain.importer.decode import decode
from tests.quick import slow_between, slow_except, slow_unless

MINIBATCH, WIDTH = 8, 5


def off_diagonal(s):
    return s.masked_fill(torch.eye(s.shape[0], dtype=torch.bool), 0.0)


def variance(z):
    return ((z - z.mean(0)) ** 2).mean(0)


FIRST = torch.tensor([0])


def set_columns(a, b):
    a = a.clone()
    a[:, 1:3] = b[:, 2:4]
    return a


def volumes(a, b):
    """A 3-D convolution over each sample's own volume."""
    x = (a[:, :, None] * b[:, None, :]).reshape(-1, 1, WIDTH, WIDTH, 1)
    return torch.nn.functional.conv3d(x, torch.ones(2, 1, 3, 2, 1), padding=(1, 0, 0))


def filled(a, b, number):
    return torch.where(a > b, a - b, torch.full_like(a, number))


def scattered(a):
    return torch.zeros(a.shape[0], WIDTH).scatter(1, (a[:, :1] > 0).long() * 3, a[:, 1:2])


# (embeddings of two views, the layer) -> the loss, and how it depends on the samples.
LOSSES = {
    "mean": (lambda a, b, net: ((a - b) ** 2).mean(), MEAN),
    "each": (lambda a, b, net: ((a - b) ** 2).sum(1), INDEPENDENT),
    "filled with infinity": (lambda a, b, net: filled(a, b, math.inf).clamp(max=2).mean(), MEAN),
    "filled with NaN": (lambda a, b, net: filled(a, b, math.nan).nan_to_num(3).mean(), MEAN),
    "sum": (lambda a, b, net: ((a - b) ** 2).sum(), SUM),
    "sum by a constant": (lambda a, b, net: ((a - b) ** 2).sum() / 3, SUM),
    "sum by the batch": (lambda a, b, net: ((a - b) ** 2).sum() / a.shape[0], MEAN),
    "largest of each": (lambda a, b, net: (a * b).amax(1).mean(), MEAN),
    "mean and weights": (
        lambda a, b, net: ((a - b) ** 2).mean() + 0.01 * (net.l.weight**2).sum(),
        MEAN,
    ),
    "sum and weights": (
        lambda a, b, net: ((a - b) ** 2).sum() + 0.01 * (net.l.weight**2).sum(),
        MIXED,
    ),
    "infonce": (
        lambda a, b, net: (
            -(torch.log_softmax(a @ b.T, 1) * torch.eye(a.shape[0])).sum() / a.shape[0]
        ),
        MIXED,
    ),
    "softmax over the batch": (lambda a, b, net: ((a - b).softmax(0) ** 2).mean(), MIXED),
    "masked mean": (
        lambda a, b, net: ((a - b) ** 2 * (b > 0)).sum() / (b > 0).float().sum(),
        MIXED,
    ),
    "centred": (lambda a, b, net: ((a - a.mean(0)) * b).mean(), MIXED),
    "gram": (lambda a, b, net: (off_diagonal(a @ a.T) ** 2).mean(), MIXED),
    "hardest of the batch": (
        lambda a, b, net: torch.relu((a @ b.T).amax(1) - (a * b).sum(1) + 1).mean(),
        MIXED,
    ),
    "variance": (lambda a, b, net: torch.relu(1 - torch.sqrt(variance(a) + 1e-4)).mean(), MIXED),
    "log of a mean": (lambda a, b, net: torch.log(((a - b) ** 2).mean()), MIXED),
    "root of a sum": (lambda a, b, net: torch.sqrt(((a - b) ** 2).sum()), MIXED),
    "the first one": (lambda a, b, net: ((a - b[:1]) ** 2).mean(), MIXED),
    "running sum": (lambda a, b, net: (a.cumsum(0) * b).mean(), MIXED),
    "set in each": (lambda a, b, net: (set_columns(a, b) ** 2).mean(), MEAN),
    "scattered in each": (lambda a, b, net: (scattered(a) * b).mean(), MEAN),
    "the first one written": (lambda a, b, net: (a.index_copy(0, FIRST, b[:1]) * b).mean(), MIXED),
    "greatest of each": (lambda a, b, net: (a.topk(2, 1)[0] * b.sort(1)[0][:, :2]).mean(), MEAN),
    "picked by each": (lambda a, b, net: a.gather(1, b.argmax(1, True)).mean(), MEAN),
    "entropy of each": (
        lambda a, b, net: F.cross_entropy(a, b.argmax(1), reduction="none").mean(),
        MEAN,
    ),
    "entropy of what is not ignored": (lambda a, b, net: F.cross_entropy(a, b.argmax(1)), MIXED),
    "soft entropy": (lambda a, b, net: F.cross_entropy(a, b.softmax(1)), MEAN),
    "greatest of the batch": (lambda a, b, net: (a.topk(1, 0)[0] * b).mean(), MIXED),
    "volumes": (lambda a, b, net: volumes(a, b).mean(), MEAN),
    "mirrored": (lambda a, b, net: ((a - b.flip(0)) ** 2).mean(), MIXED),
}


class Net(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.l = LOSSES[way][0], nn.Linear(4, WIDTH)

    def forward(self, a, b):
        return self.way(self.l(a), self.l(b), self)


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory):
    folder, made = tmp_path_factory.mktemp("samples"), {}

    def of(way: str):
        if way not in made:
            torch.manual_seed(0)
            net, path = Net(way), folder / f"{len(made)}.onnx"
            a, b = torch.randn(MINIBATCH, 4), torch.randn(MINIBATCH, 4)
            export_torch(net, (a, b), path)
            made[way] = net, a, b, et.load_onnx(path)
        return made[way]

    return of


@pytest.mark.parametrize("way", slow_between(LOSSES, 2))
def test_what_a_loss_is_of_its_samples(nets, way: str) -> None:
    model = nets(way)[-1]
    options = make_options(minibatch=MINIBATCH, loss="output")
    found = Compilation(model, options).prepared.samples
    assert found.kind == LOSSES[way][1], found
    splits = found.kind != MIXED
    assert microbatches(Compilation(model, options)) == ([8, 4, 2, 1] if splits else [8])
    assert bool(found.why) is not splits


@pytest.mark.parametrize("microbatch", slow_except([MINIBATCH, MINIBATCH // 2, 1], MINIBATCH // 2))
@pytest.mark.parametrize("way", LOSSES)
def test_a_step_is_torchs_or_refused(nets, way: str, microbatch: int) -> None:
    net, a, b, model = nets(way)
    given = {"minibatch": MINIBATCH, "microbatch": microbatch, "loss": "output"}
    if LOSSES[way][1] == MIXED and microbatch < MINIBATCH:
        with pytest.raises(UsageError, match="can't be split. Use --microbatch 8"):
            et.compile(model, optimizer=et.SGD(lr=1.0), **given)
        return
    arrays = {"a": a.numpy(), "b": b.numpy()}
    program = et.compile(model, optimizer=et.SGD(lr=1.0), **given)
    assert program.account["samples"] == LOSSES[way][1]
    trainer = et.Trainer(program)
    try:
        found = trainer.step({name: arrays[name] for name in program.input_names})
        moved = dict(trainer.parameters)
    finally:
        trainer.close()
    net.zero_grad()
    loss = net(a, b).mean()
    loss.backward()
    assert found.loss == pytest.approx(loss.item(), rel=1e-6, abs=1e-6)
    for name, parameter in net.named_parameters():
        expected = (parameter - parameter.grad).detach().numpy()
        np.testing.assert_allclose(moved[name], expected, 2e-6, 2e-6, err_msg=name)


@pytest.mark.parametrize("microbatch", slow_except([MINIBATCH // 2, 1], 1))
@pytest.mark.parametrize("way", LOSSES)
def test_parity_of_microbatches_is_torchs_minibatch_or_refused(nets, way: str, microbatch) -> None:
    model = nets(way)[-1]
    given = {"minibatch": MINIBATCH, "microbatch": microbatch, "loss": "output", "steps": 1}
    if LOSSES[way][1] == MIXED:
        with pytest.raises(UsageError, match="can't be split. Use --microbatch 8"):
            parity(model, **given)
        return
    report = parity(model, **given)
    assert report.ok, report.summary()


def test_a_net_that_mixes_samples_says_so(nets, capsys, tmp_path: Path) -> None:
    net, a, b, model = nets("softmax over the batch")
    with pytest.raises(BudgetError, match="can't be split: node .*softmax"):
        et.compile(model, minibatch=MINIBATCH, loss="output", budget=100)
    path = tmp_path / "net.onnx"
    export_torch(net, (a, b), path)
    assert main(["plan", str(path), "--loss", "output", "--minibatch", "8"]) == 0
    assert "not split into microbatches: node " in capsys.readouterr().out
    trainer = et.Trainer(et.compile(model, minibatch=MINIBATCH, loss="output"))
    names = [spec.name for spec in model.inputs]
    few = dict(zip(names, (a[:4].numpy(), b[:4].numpy()), strict=True))
    with pytest.raises(DataError, match="whole minibatch. Pass 8"):
        trainer.step(few)
    trainer.close()


class Pairs(nn.Module):
    """Logits are similarities between samples of a batch: the classes are the other samples."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, WIDTH)

    def forward(self, a):
        z = self.l(a)
        return (z - z.mean(0)) @ self.l.weight


def test_an_ordinary_loss_of_samples_that_mix_is_not_split(tmp_path: Path) -> None:
    path = tmp_path / "pairs.onnx"
    export_torch(Pairs(), (torch.randn(3, 4),), path)
    found = Compilation(et.load_onnx(path), make_options(minibatch=8)).prepared.samples
    assert found.kind == MIXED and "(sub)" in found.why
    trainer = et.Trainer(et.compile(path, minibatch=8))
    with pytest.raises(DataError, match="predict: 3 samples.* 8 at a time"):
        trainer.predict(np.zeros((3, 4), np.float32))
    trainer.close()


@pytest.mark.parametrize(
    "kind", slow_unless({**kinds.KINDS, **kinds.RECURRENT}, lambda kind: kind in kinds.KINDS)
)
def test_samples_of_nets_run_on_devices_are_independent(kind: str) -> None:
    path, loss = kinds.model(kinds.EVERY[kind][0])
    options = make_options(loss=loss, minibatch=MINIBATCH, **kinds.options_of(kind))
    assert Compilation(et.load_onnx(path), options).prepared.samples.kind == INDEPENDENT


EXAMPLES = sorted(Path(examples.__path__[0]).glob("*/*.onnx"))
OF_EXAMPLES = {"anomaly": "mse"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_samples_of_examples_are_independent(path: Path) -> None:
    loss = OF_EXAMPLES.get(path.parent.name, "cross_entropy")
    options = make_options(loss=loss, minibatch=MINIBATCH)
    assert Compilation(et.load_onnx(path), options).prepared.samples.kind == INDEPENDENT


_SIZE = "s = Shape(x) zero = Constant<value = int64 {0}>() n = Gather(s, zero) "
SMALL = {
    "a branch": _SIZE
    + "one = Constant<value = int64 {1}>() c = Equal(n, one) y = If(c) <then_branch = t () => "
    "(float[N, 5] a) { a = Add(h, h) }, else_branch = e () => (float[N, 5] b) { b = Identity(h) }>",
    "at most": _SIZE
    + "f = Cast<to=1>(n) most = Constant<value = float {2.5}>() q = Min(f, most) y = Div(h, q)",
    "a choice": _SIZE
    + "two = Constant<value = int64 {2}>() c = Less(n, two) five = Constant<value = float {5.0}>() "
    "unit = Constant<value = float {1.0}>() q = Where(c, five, unit) y = Mul(h, q)",
}


@pytest.mark.parametrize("way", SMALL)
def test_a_net_that_treats_small_batches_otherwise_is_not_split(way: str) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[N, 6] x) => (float[N, 5] y) '
        f"{{ h = MatMul(x, w) {SMALL[way]} }}"
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((6, 5), np.float32), "w"))
    model = decode(proto, Path("net"))
    found = Compilation(model, make_options(minibatch=8, loss="mse")).prepared.samples
    assert found.kind == MIXED and "in a batch of" in found.why
    with pytest.raises(UsageError, match="can't be split"):
        et.compile(model, minibatch=8, microbatch=1, loss="mse", verbose=False)
