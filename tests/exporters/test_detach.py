"""What stops gradients in torch (detach, no_grad) stops them in the file."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

import edgetrain as et
from edgetrain.exporters import export_torch

from .exported import metadata, nodes, run

BATCH = 6


class Net(nn.Module):
    """Two layers; `stop` decides what is between them."""

    def __init__(self, stop: Callable) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.rand(4) + 0.5)
        self.stop = stop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stop(self, x)) + self.scale[:3]


def _through(net: Net, x: torch.Tensor) -> torch.Tensor:
    """A straight-through estimator."""
    y = net.body(x)
    return y + (y.round() - y).detach()


def _codebook(net: Net, x: torch.Tensor) -> torch.Tensor:
    y = net.body(x)
    with torch.no_grad():
        nearest = torch.cdist(y, net.head.weight[:, :4]).argmin(-1)
    return y + (net.head.weight[nearest] - y).detach()


def _region(net: Net, x: torch.Tensor) -> torch.Tensor:
    y = net.body(x)
    with torch.no_grad():
        low, high = (y * net.scale).tanh(), y.exp()
        place = y.argmax(-1, keepdim=True)
    return y * low + high.sqrt() * net.scale + place


def _inference(net: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        y = net.body(x).relu()  # eager torch can only add it
    return y + net.scale


@torch.no_grad()
def _frozen(y: torch.Tensor) -> torch.Tensor:
    return y.softmax(-1)


def _in_place(net: Net, x: torch.Tensor) -> torch.Tensor:
    y = net.body(x)
    z = y * net.scale
    z.detach_()
    return y * z


def _again(net: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = net.body(x)
        with torch.enable_grad():
            y = y * net.scale
    return y


def _maybe(stop: bool, y: torch.Tensor) -> torch.Tensor:
    return y.detach() if stop else y


def _softmax(y: torch.Tensor, top: bool, total: bool) -> torch.Tensor:
    y = (y - _maybe(top, y.amax(-1, True))).exp()
    return y / _maybe(total, y.sum(-1, keepdim=True))


def _log_softmax(y: torch.Tensor, inner: bool, outer: bool, sign: int = 1) -> torch.Tensor:
    top = y.amax(-1, True)
    shifted = y - _maybe(inner, top) if sign > 0 else y + -_maybe(inner, top)
    return y - (shifted.exp().sum(-1, True).log() + _maybe(outer, top))


def _power(spectrum: torch.Tensor) -> torch.Tensor:
    """[samples, 3] complex -> [samples, 4]."""
    return functional.pad(spectrum.real**2 + spectrum.imag**2, (0, 1))


def _written(net: Net, x: torch.Tensor) -> torch.Tensor:
    """Parameters get into values by writes into views of them, before and after a stop."""
    y, z = net.body(x), torch.zeros(x.shape[0], 4, dtype=x.dtype)
    z[:, 1:] = y[:, 1:] * net.scale[1:]
    z[:, :2] += net.scale[:2]
    stopped = z.detach().clone()
    stopped[:, 2] *= 3
    return z * stopped


STOPS: dict[str, Callable] = {
    "factor": lambda net, x: net.body(x) * net.body(x).detach() * net.scale,
    "straight through": _through,
    "codebook": _codebook,
    "region": _region,
    "inference mode": _inference,
    "flows again": _again,
    "decorated": lambda net, x: net.body(x) * _frozen(net.body(x)),
    "in place": _in_place,
    "written": _written,
    "weight": lambda net, x: functional.linear(x, net.body.weight.detach(), net.body.bias),
    "transposed weight": lambda net, x: x @ net.body.weight.detach().T + net.body(x),
    "twice": lambda net, x: net.body(x).detach().detach() + net.scale,
    "view": lambda net, x: net.body(x).reshape(-1, 2, 2).detach().flatten(1) * net.scale,
    "maximum": lambda net, x: (net.body(x) - net.body(x).amax(-1, True).detach()).exp(),
    "softmax": lambda net, x: _softmax(net.body(x), top=True, total=False),
    "stopped total": lambda net, x: _softmax(net.body(x), top=False, total=True),
    "log softmax": lambda net, x: _log_softmax(net.body(x), True, True),
    "half stopped": lambda net, x: _log_softmax(net.body(x), True, False),
    "other half": lambda net, x: _log_softmax(net.body(x), False, True),
    "negated": lambda net, x: _log_softmax(net.body(x), True, False, -1),
    "norm": lambda net, x: net.body(x) / net.body(x).norm(dim=-1, keepdim=True).detach(),
    "spectrum": lambda net, x: _power(torch.fft.rfft(net.body(x))) * net.scale[:3].sum(),
    "whole layer": lambda net, x: net.body(x).detach(),
}


def _drawn() -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, 4, generator=made), torch.randn(BATCH, 3, generator=made)


def _exported(module: nn.Module, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is lost, so nothing is said
        return export_torch(module, torch.zeros(2, 4), folder / "model.onnx")


@pytest.mark.parametrize(
    ("name", "precision"),
    [*((name, "fp32") for name in STOPS), ("straight through", "fp16"), ("region", "fp16")],
)
def test_gradients_stop_where_torch_stops_them(tmp_path, name, precision) -> None:
    net, (x, target) = Net(STOPS[name]), _drawn()
    path = _exported(net, tmp_path)
    exact = copy.deepcopy(net).double()
    loss = functional.mse_loss(exact(x.double()), target.double())
    loss.backward()
    found, gradients = et.loss_and_gradients(
        path, {"x": x.numpy()}, target.numpy(), loss="mse", precision=precision
    )
    close = 2e-2 if precision == "fp16" else 2e-5
    assert found == pytest.approx(loss.item(), rel=close)
    for parameter, value in exact.named_parameters():
        if parameter in gradients or value.grad is not None:
            wanted = np.zeros(value.shape) if value.grad is None else value.grad.numpy()
            np.testing.assert_allclose(gradients[parameter], wanted, atol=close, rtol=close)


def test_the_file_runs_elsewhere_and_a_trained_one_still_stops_gradients(tmp_path) -> None:
    net, (x, target) = Net(STOPS["region"]), _drawn()
    path = _exported(net, tmp_path)
    model = onnx.load(path)
    assert {node.domain for node in model.graph.node} == {""}
    np.testing.assert_allclose(run(model, (x,))[0], net(x).detach(), atol=1e-5)
    program = et.compile(path, loss="mse", minibatch=BATCH, microbatch=2, optimizer=et.SGD(lr=0.05))
    trainer = et.Trainer(program)
    trainer.step(x.numpy(), target.numpy())
    trainer.export_onnx(tmp_path / "trained.onnx")
    trainer.close()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    functional.mse_loss(net(x), target).backward()
    optimizer.step()
    loss = functional.mse_loss(net(x), target)
    optimizer.zero_grad()
    loss.backward()
    trained = onnx.load(tmp_path / "trained.onnx")
    assert len(nodes(trained, "Identity")) == len(nodes(model, "Identity")) > 0
    _, gradients = et.loss_and_gradients(
        tmp_path / "trained.onnx", {"x": x.numpy()}, target.numpy(), loss="mse"
    )
    for name, value in net.named_parameters():
        np.testing.assert_allclose(gradients[name], value.grad, atol=2e-5, rtol=2e-5)


class _Twins(nn.Module):
    """Predicts what a slowly updated copy makes; it has another output without gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.online, self.copied, self.head = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.online(x)
        with torch.no_grad():
            wanted = self.copied(x)
            self.mean.mul_(0.9).add_(0.1 * y.mean(0))
        return (self.head(y) - wanted) ** 2, y.detach()


def test_parameters_that_no_gradient_reaches_are_frozen(tmp_path) -> None:
    """torch's optimizers skip them: not even weight decay changes them."""
    net, (x, target) = _Twins(), _drawn()
    path = _exported(net, tmp_path)
    model = onnx.load(path)
    assert metadata(model)["frozen"] == ["copied.weight", "copied.bias"]
    first, second = run(model, (x,))
    np.testing.assert_allclose(first, copy.deepcopy(net)(x)[0].detach(), atol=1e-5)
    np.testing.assert_allclose(second, net.online(x).detach(), atol=1e-5)
    optimizer = et.SGD(lr=0.1, weight_decay=0.1)
    program = et.compile(
        path, loss="mse", output=model.graph.output[0].name, minibatch=BATCH, optimizer=optimizer
    )
    trainer = et.Trainer(program)
    trainer.step(x.numpy(), target.numpy())
    functional.mse_loss(net(x)[0], target).backward()
    torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1).step()
    for name, value in net.named_parameters():
        np.testing.assert_allclose(trainer.parameters[name], value.detach(), atol=2e-5)
    trainer.close()


def test_a_tied_parameter_that_a_gradient_reaches_by_one_name_is_not_frozen(tmp_path) -> None:
    net = Net(lambda net, x: net.body(x) + functional.linear(x, net.twin.weight.detach()))
    net.twin = nn.Linear(4, 4)
    net.twin.weight, net.twin.bias = net.body.weight, net.body.bias
    assert "frozen" not in metadata(onnx.load(_exported(net, tmp_path)))


def test_parameters_that_are_written_into_a_view_are_not_frozen(tmp_path) -> None:
    def written(net: Net, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(x.shape[0], 4, dtype=x.dtype)
        y[:, 1:] = net.body(x)[:, 1:]
        return y

    assert "frozen" not in metadata(onnx.load(_exported(Net(written), tmp_path)))


def test_a_mask_without_gradient_is_still_dropout(tmp_path) -> None:
    """Nothing is marked where no gradient could flow."""

    def masked(net: Net, x: torch.Tensor) -> torch.Tensor:
        y = net.body(x)
        return y * (torch.rand_like(y) < 0.5).to(y.dtype).detach() / 0.5

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the module draws it in evaluation too
        path = export_torch(Net(masked), torch.zeros(2, 4), tmp_path / "model.onnx")
    model = onnx.load(path)
    assert len(nodes(model, "Dropout")) == 1 and not nodes(model, "Identity")
