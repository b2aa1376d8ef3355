"""Gradients that overflow fp16 at the usual loss scale."""

import numpy as np
import pytest

import edgetrain as et
from tests.compiler.nets import Net

RNG = np.random.default_rng(0)
X, TARGET = RNG.normal(size=(4, 6)).astype(np.float32), np.zeros((4, 3), np.float32)


def steep(factor: float):
    """A matrix product scaled by `factor`."""
    net = Net(6)
    net.constants |= {"factor": np.float32(factor)}
    product = net.add("MatMul", ["x", net.weight("w", 6, 3)], "product")
    return net.model(net.add("Mul", [product, "factor"], "y"))


@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_gradients_are_made_at_a_loss_scale_that_holds_them(factor):
    model = steep(factor)
    loss, exact = et.loss_and_gradients(model, {"x": X}, TARGET, loss="mse")
    half, found = et.loss_and_gradients(model, {"x": X}, TARGET, loss="mse", precision="fp16")
    assert half == pytest.approx(loss, rel=1e-2)
    size = np.abs(exact["w"]).max()
    np.testing.assert_allclose(found["w"], exact["w"], 1e-2, 5e-3 * size)


def test_a_loss_scale_that_was_asked_for_stays():
    how = {"loss": "mse", "precision": "fp16", "loss_scale": 2.0**15}
    _, found = et.loss_and_gradients(steep(30.0), {"x": X}, TARGET, **how)
    assert not np.isfinite(found["w"]).all()


def test_what_is_infinite_at_any_loss_scale_is_given_back():
    _, found = et.loss_and_gradients(steep(np.inf), {"x": X}, TARGET, loss="mse", precision="fp16")
    assert not np.isfinite(found["w"]).all()
