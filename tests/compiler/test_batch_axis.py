"""The batch may be any axis that the file names, separately for each input, output and target."""

from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its own name

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity
from tests.quick import slow_between, slow_unless

N, T, C, H, LAYERS, CLASSES = 4, 5, 3, 6, 2, 3
# Storage of weights and values -> relative tolerance of loss and outputs, absolute of weights.
TOLERANCES = {"fp32": (2e-6, 2e-6), "fp16": (5e-3, 5e-3)}


class Recurrent(nn.Module):
    """A recurrence with initial states as inputs, and a layer on the part that `head` selects."""

    def __init__(self, kind, head, **options) -> None:
        super().__init__()
        self.net, self.head = kind(C, H, LAYERS, **options), head
        ways = 2 if options.get("bidirectional") else 1
        self.l = nn.Linear(H * (1 if head == "states" else ways), CLASSES)

    def forward(self, x, h):
        y, last = self.net(x, h)
        if self.head == "states":
            return self.l(last)
        if self.head == "last":
            return self.l(y[:, -1] if self.net.batch_first else y[-1])
        y = self.l(y)
        return y.permute(2, 1, 0) if self.head == "classes first" else y


class Pair(Recurrent):
    """An LSTM with its two states as inputs."""

    def forward(self, x, h, c):
        y, _ = self.net(x, (h, c))
        return self.l(y)


class State(nn.Module):
    """Both states of an LSTM in one input, as in silero; the next state is an output too."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.l = nn.LSTMCell(C, H), nn.Linear(H, 1)

    def forward(self, x, state):
        h, c = self.cell(x, (state[0], state[1]))
        return self.l(h), torch.stack([h, c])


class Columns(nn.Module):
    """Samples are the columns of every array."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(CLASSES, C) / 2), nn.Linear(2, CLASSES)

    def forward(self, x, mask):
        return torch.tanh(self.a @ x) + self.b(mask.float().permute(1, 0)).T


STATES = (LAYERS, N, H)
BOTH_WAYS = (2 * LAYERS, N, H)
# module, input shapes, batch axis of each input and of the output, class axis
NETS = {
    "gru, batch first": (
        lambda: Recurrent(nn.GRU, "last", batch_first=True), [(N, T, C), STATES], (0, 1), 0, 1,
    ),
    "gru, time first": (lambda: Recurrent(nn.GRU, "last"), [(T, N, C), STATES], (1, 1), 0, 1),
    "rnn, all steps": (lambda: Recurrent(nn.RNN, "all"), [(T, N, C), STATES], (1, 1), 1, 2),
    "gru, both ways": (
        lambda: Recurrent(nn.GRU, "all", bidirectional=True), [(T, N, C), BOTH_WAYS], (1, 1), 1, 2,
    ),
    "gru, states": (
        lambda: Recurrent(nn.GRU, "states", batch_first=True), [(N, T, C), STATES], (0, 1), 1, 2,
    ),
    "gru, classes first": (
        lambda: Recurrent(nn.GRU, "classes first"), [(T, N, C), STATES], (1, 1), 1, 0,
    ),
    "lstm": (lambda: Pair(nn.LSTM, "all"), [(T, N, C), STATES, STATES], (1, 1, 1), 1, 2),
    "lstm, batch first, both ways": (
        lambda: Pair(nn.LSTM, "all", batch_first=True, bidirectional=True),
        [(N, T, C), BOTH_WAYS, BOTH_WAYS], (0, 1, 1), 0, 2,
    ),
    "one state": (State, [(N, C), (2, N, H)], (0, 1), 0, None),
    "columns": (Columns, [(C, N), (2, N)], (1, 1), 1, 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    folder, known = tmp_path_factory.mktemp("nets"), {}

    def of(kind: str):
        if kind not in known:
            torch.manual_seed(1)
            module, shapes, axes, *_ = NETS[kind]
            net, path = module(), folder / f"{len(known)}.onnx"
            inputs = [torch.randn(shape) for shape in shapes]
            export_torch(net, inputs, path, batch_dim=axes)
            known[kind] = path, net.state_dict()
        return known[kind]

    return of


def net_of(kind: str, made):
    path, state = made(kind)
    net = NETS[kind][0]()
    net.load_state_dict(state)
    return path, net


def data_of(kind: str, loss: str, samples: int, seed: int = 0):
    """Draw inputs and a target in the file's layout, with another number of samples."""
    _, shapes, axes, at, classes = NETS[kind]
    draw = np.random.default_rng(seed)
    inputs = [
        draw.standard_normal([*shape[:k], samples, *shape[k + 1 :]]).astype(np.float32)
        for shape, k in zip(shapes, axes, strict=True)
    ]
    module = NETS[kind][0]()
    with torch.no_grad():
        out = first(module(*map(torch.tensor, inputs)))
    assert out.shape[at] == samples
    if loss == "mse":
        return inputs, draw.standard_normal(out.shape).astype(np.float32)
    shape = [size for k, size in enumerate(out.shape) if k != classes]
    return inputs, draw.integers(0, CLASSES, shape)


def first(out):
    return out[0] if isinstance(out, tuple) else out


def loss_of(kind: str, loss: str, out, target):
    if loss == "mse":
        return F.mse_loss(out, torch.tensor(target))
    classes = NETS[kind][-1]
    return F.cross_entropy(
        out.movedim(classes, -1).reshape(-1, CLASSES), torch.tensor(target).reshape(-1)
    )


def options_of(kind: str, loss: str) -> dict:
    """Return loss options; the class axis counts with the batch as axis 0."""
    if loss == "mse":
        return {"loss": loss}
    at, classes = NETS[kind][-2:]
    return {"loss": et.Loss(loss, class_axis=classes + (classes < at))}


def parts(kind: str, inputs, target, loss: str, rows):
    """Select samples; an integer `rows` drops the batch axis."""
    _, _, axes, at, classes = NETS[kind]
    if loss != "mse":
        at -= classes < at
    picked = [np.take(array, rows, k) for array, k in zip(inputs, axes, strict=True)]
    return picked, np.take(target, rows, at)


LOSSES = [
    (kind, loss)
    for kind in NETS
    for loss in ("mse", "cross_entropy")
    if loss == "mse" or NETS[kind][-1] is not None
]


def names_of(path: Path) -> list[str]:
    return [spec.name for spec in et.load_onnx(path).inputs]


@pytest.mark.parametrize(
    ("microbatch", "precision"),
    slow_unless(
        product([N, N // 2, 1], TOLERANCES), lambda pair: pair[1] == "fp32" or pair[0] == N // 2
    ),
)
@pytest.mark.parametrize(("kind", "loss"), slow_between(LOSSES, 2))
def test_training_along_the_named_axes_is_torchs(
    made, kind, loss, microbatch, precision, tmp_path
) -> None:
    if precision == "fp16" and (loss, microbatch) != ("mse", N // 2):
        pytest.skip("one split is enough: what is stored does not depend on the layout")
    path, net = net_of(kind, made)
    names, (relative, absolute) = names_of(path), TOLERANCES[precision]
    options = {"minibatch": N, "microbatch": microbatch, "precision": precision}
    program = et.compile(path, optimizer=et.SGD(lr=0.3), **options_of(kind, loss), **options)
    assert program.account["samples"] == "independent" and program.microbatch == microbatch
    trainer, sgd = et.Trainer(program), torch.optim.SGD(net.parameters(), 0.3)
    for seed in range(3):
        inputs, target = data_of(kind, loss, N, seed)
        sgd.zero_grad()
        value = loss_of(kind, loss, first(net(*map(torch.tensor, inputs))), target)
        value.backward()
        sgd.step()
        found = trainer.step(dict(zip(names, inputs, strict=True)), target)
        assert found.loss == pytest.approx(value.item(), rel=relative)
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(
            trainer.parameters[name], parameter.detach(), 0, absolute, err_msg=name
        )
    inputs, target = data_of(kind, loss, 2 * N + 1, 9)
    given = dict(zip(names, inputs, strict=True))
    with torch.no_grad():
        out = first(net(*map(torch.tensor, inputs)))
        value = loss_of(kind, loss, out, target).item()
    np.testing.assert_allclose(trainer.predict(given), out, 0, 10 * absolute)
    found = trainer.evaluate([(given, target)])
    assert found["loss"] == pytest.approx(value, rel=10 * relative)
    trainer.export_onnx(tmp_path / "trained.onnx")
    trainer.close()
    session = onnxruntime.InferenceSession(tmp_path / "trained.onnx")
    np.testing.assert_allclose(session.run(None, given)[0], out, 0, 10 * absolute)


@pytest.mark.parametrize(("kind", "loss"), LOSSES)
def test_one_sample_comes_without_the_axis_and_sources_count_by_the_first(made, kind, loss) -> None:
    """Arrays of a source have samples on axis 0, whatever the file's layout."""
    path, net = net_of(kind, made)
    names = names_of(path)
    inputs, target = data_of(kind, loss, 3)
    axes, at, classes = NETS[kind][-3:]
    program = et.compile(path, minibatch=2, microbatch=1, **options_of(kind, loss))
    trainer = et.Trainer(program)
    whole = dict(zip(names, inputs, strict=True))
    outputs = trainer.predict(whole)
    for row in range(3):
        picked, wanted = parts(kind, inputs, target, loss, row)
        alone = dict(zip(names, picked, strict=True))
        found = trainer.predict(alone)
        np.testing.assert_array_equal(found, np.take(outputs, row, at))
    source = {name: np.moveaxis(a, k, 0) for (name, a), k in zip(whole.items(), axes, strict=True)}
    place = at - (loss != "mse" and classes < at)
    source["y"] = np.moveaxis(target, place, 0)
    found = trainer.evaluate(source)
    with torch.no_grad():
        value = loss_of(kind, loss, first(net(*map(torch.tensor, inputs))), target).item()
    assert found["loss"] == pytest.approx(value, rel=5e-6)
    assert trainer.evaluate([(whole, target)])["loss"] == pytest.approx(value, rel=5e-6)
    trainer.close()


@pytest.mark.parametrize(("kind", "loss"), LOSSES)
def test_gradients_and_outputs_along_the_named_axes_are_torchs(made, kind, loss) -> None:
    path, net = net_of(kind, made)
    model, (inputs, target) = et.load_onnx(path), data_of(kind, loss, N)
    given = dict(zip(names_of(path), inputs, strict=True))
    value = loss_of(kind, loss, first(net(*map(torch.tensor, inputs))), target)
    value.backward()
    found, gradients = et.loss_and_gradients(model, given, target, loss=loss)
    assert found == pytest.approx(value.item(), rel=2e-6)
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad, 2e-5, 2e-6, err_msg=name)
    session = onnxruntime.InferenceSession(path)
    wanted = dict(
        zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True)
    )
    outputs = et.forward(model, given)
    assert outputs.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(outputs[name], array, 0, 2e-6, err_msg=name)


@pytest.mark.parametrize("microbatch", [2, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "loss"),
    slow_unless(LOSSES, lambda pair: pair[1] == "mse" and "both ways" not in pair[0]),
)
def test_parity_holds_along_the_named_axes(made, kind, loss, microbatch) -> None:
    path, _ = made(kind)
    options = options_of(kind, loss) | {"minibatch": N, "microbatch": microbatch, "steps": 2}
    report = parity(path, **options)
    assert report.ok, report.summary()
    inputs, target = data_of(kind, loss, N)
    given = dict(zip(names_of(path), inputs, strict=True))
    report = parity(path, inputs=given, target=target, **options)
    assert report.ok, report.summary()
