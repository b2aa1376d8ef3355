"""Gradients of a model's inputs: equal to torch, within a budget, in the file's layout."""

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.api import _with_wanted, gradient_program
from edgetrain.compiler.passes.autodiff import accumulator_name
from edgetrain.errors import BudgetError, UsageError
from edgetrain.exporters import export_torch
from edgetrain.runtime.session import Session


class Conv(nn.Module):
    """Reads its input twice, once reshaped."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.fc, self.skip = nn.Linear(4, 3), nn.Linear(72, 3)

    def forward(self, x):
        found = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.fc(found) + self.skip(x.flatten(1))


class Steps(nn.Module):
    """Samples are on axis 1."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][-1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.norm(x)
        return self.fc(nn.functional.scaled_dot_product_attention(x, x, x).mean(1))


class Prompted(nn.Module):
    """Integer and float inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.fc = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, ids, x):
        return self.fc(torch.tanh(self.words(ids).mean(1) + x))


# Net -> module, input names and shapes, options.
NETS = {
    "conv": (Conv, {"x": (4, 2, 6, 6)}, {}),
    "conv fp16": (Conv, {"x": (4, 2, 6, 6)}, {"precision": "fp16"}),
    "steps": (Steps, {"x": (6, 4, 4)}, {"batch_axis": {"x": 1}}),
    "attention": (Attention, {"x": (4, 5, 8)}, {}),
    "attention by blocks": (Attention, {"x": (4, 5, 8)}, {"allow": ("attention",)}),
    "prompted": (Prompted, {"ids": (4, 5), "x": (4, 4)}, {}),
}


def made(name, tmp_path):
    kind, shapes, options = NETS[name]
    torch.manual_seed(0)
    module, draw = kind(), np.random.default_rng(0)
    x = {n: draw.integers(0, 7, s) if n == "ids" else draw.normal(size=s).astype(np.float32)
         for n, s in shapes.items()}  # fmt: skip
    given = tuple(torch.tensor(array) for array in x.values())
    axis = 1 if kind is Steps else 0
    path = tmp_path / "net.onnx"
    export_torch(module, given, path, input_names=[*x], batch_dim=axis)
    return module, x, path, options


@pytest.mark.parametrize("name", NETS)
def test_gradients_of_inputs_equal_torchs(name, tmp_path):
    module, x, path, options = made(name, tmp_path)
    y = np.array([0, 2, 1, 1])
    asked = True if "ids" not in x else ["x"]
    value, found = et.loss_and_gradients(path, x, y, inputs=asked, **options)
    given = {n: torch.tensor(a, requires_grad=n == "x") for n, a in x.items()}
    loss = nn.functional.cross_entropy(module.train()(*given.values()), torch.tensor(y))
    loss.backward()
    true = given["x"].grad.numpy()
    # fp16 rounds every activation to 11 bits; otherwise float32 sums differ in order.
    tolerance = 1e-2 if "precision" in options else 1e-5
    assert abs(value - loss.item()) < tolerance
    assert found["x"].shape == true.shape and found["x"].dtype == np.float32
    assert np.abs(found["x"] - true).max() <= tolerance * np.abs(true).max()
    plain = et.loss_and_gradients(path, x, y, **options)[1]
    assert set(found) == {*plain, "x"}
    alone = et.loss_and_gradients(path, inputs=x, target=y, **options)[1]
    assert all((alone[n] == plain[n]).all() and (found[n] == plain[n]).all() for n in plain)


def test_inputs_alone_need_no_trained_parameter(tmp_path):
    _, x, path, _ = made("attention", tmp_path)
    y = np.array([0, 2, 1, 1])
    both = et.loss_and_gradients(path, x, y, inputs=True)[1]
    alone = et.loss_and_gradients(path, x, y, inputs=["x"], freeze=["*"])[1]
    assert list(alone) == ["x"] and (alone["x"] == both["x"]).all()


def test_the_budget_holds_the_gradients_of_inputs(tmp_path):
    """Plans have the same bits, the arena is as planned, less than the minimum is refused."""
    _, x, path, _ = made("conv", tmp_path)
    y, model = np.array([0, 2, 1, 1]), et.load_onnx(path)
    wanted = _with_wanted(model, True)
    program = gradient_program(wanted, x, y, loss="cross_entropy")
    least = program.account["min_budget_nbytes"]
    session = Session(program)
    try:
        assert session.arena.nbytes == program.arena_nbytes
        assert session.values[accumulator_name("x")].shape == (4, 2, 6, 6)
    finally:
        session.close()
    fast = et.loss_and_gradients(model, x, y, inputs=True)
    small = et.loss_and_gradients(model, x, y, inputs=True, budget=least)
    assert fast[0] == small[0] and all((fast[1][n] == small[1][n]).all() for n in fast[1])
    with pytest.raises(BudgetError):
        et.loss_and_gradients(model, x, y, inputs=True, budget=least - 64)


def test_inputs_without_a_gradient_are_refused(tmp_path):
    _, x, path, _ = made("prompted", tmp_path)
    y = np.array([0, 2, 1, 1])
    with pytest.raises(UsageError, match=r"'ids': it has the type int.*inputs=\['x'\]"):
        et.loss_and_gradients(path, x, y, inputs=True)
    with pytest.raises(UsageError, match="'z': the model has ids, x"):
        et.loss_and_gradients(path, x, y, inputs=["z"])
