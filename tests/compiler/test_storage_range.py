"""Weights that their storage format cannot hold are refused by name."""

import numpy as np
import onnxruntime
import pytest

import edgetrain as et
from edgetrain.compiler import options as options_module
from edgetrain.errors import UsageError

from .nets import Net

HEAD = {"train": ["head"]}


def scaled(size: float) -> Net:
    """Two layers; the weights of the first have about this size, and its output is of size 1."""
    net = Net(64)
    net.weights["w"] = (size * net.rng.standard_normal((64, 8))).astype(np.float32)
    net.constants["factor"] = np.float32(0.1 / size)
    x = net.add("Mul", [net.add("MatMul", ["x", "w"], "product"), "factor"], "scaled")
    x = net.add("Tanh", [x], "act")
    net.add("MatMul", [x, net.weight("head", 8, 3)], "y")
    return net


def compiled(net: Net, **options) -> et.Program:
    return et.compile(net.model("y"), loss="mse", minibatch=4, effort="quick", **options)


@pytest.mark.parametrize(
    "options",
    [
        {**HEAD, "frozen": "fp16"},
        {"weights": "fp16"},
        {"precision": "fp16"},
        {**HEAD, "precision": "fp16"},
    ],
    ids=["frozen", "weights", "precision", "precision of frozen weights"],
)
def test_a_weight_beyond_the_range_of_fp16_is_refused_by_name(options):
    net = scaled(1e3)
    net.weights["w"][2, 3] = 7e4  # fp16 ends at 65,504
    with pytest.raises(UsageError, match=r"'w': 7e\+04 is out of the range .* fp32 or bf16"):
        compiled(net, **options)


@pytest.mark.parametrize("frozen", ["int8", "int4"])
def test_a_weight_beyond_the_range_of_a_groups_scale_is_refused_by_name(frozen):
    with pytest.raises(UsageError, match=r"'w': .*e\+\d\d is out of the range"):
        compiled(scaled(1e8), **HEAD, frozen=frozen)


@pytest.mark.parametrize(
    ("size", "frozen"),
    [(1.0, "int4"), (1.0, "fp16"), (1e5, "bf16"), (1e-6, "bf16"), (1e5, "int8"), (1e-5, "int8")],
)
def test_frozen_weights_in_the_range_of_their_storage_are_used(size, frozen):
    net, x = scaled(size), np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    data = net.proto("y").SerializeToString()
    wanted = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    with et.Trainer(compiled(net, **HEAD, frozen=frozen)) as trainer:
        error = np.abs(trainer.predict(x) - wanted).max()
    assert error < (0.3 if frozen == "int4" else 0.03) * np.abs(wanted).max()


@pytest.mark.parametrize(("size", "frozen"), [(1e-6, "int8"), (1e-8, "int4")])
def test_frozen_weights_that_become_zeros_are_refused_by_name(size, frozen):
    with pytest.raises(UsageError, match=r"'w': .*too small .* error of (9\d|100) %"):
        compiled(scaled(size), **HEAD, frozen=frozen)


@pytest.mark.parametrize("options", [{"precision": "fp16"}, {**HEAD, "frozen": "fp16"}])
def test_weights_that_fp16_would_round_to_zeros_are_refused_with_formats_that_keep_them(options):
    with pytest.raises(UsageError, match=r"'w': .*too small .* Store it as fp32 or bf16 \("):
        compiled(scaled(1e-9), **options)


def test_state_that_divides_steps_needs_a_format_of_many_binades(monkeypatch):
    """Its root would be stored as 0, and the next step divided by `eps` alone."""
    monkeypatch.setattr(options_module, "STATE_BINADES", 41)
    net = scaled(1.0)
    with pytest.raises(UsageError, match=r"state fp16: its numbers span 40 binades, .* lion\."):
        compiled(net, state="fp16", optimizer="adam")
    for options in ({"optimizer": "lion"}, {"optimizer": "adam", "state": "int8"}):
        compiled(net, **{"state": "fp16", **options})


def test_large_numbers_of_a_mask_become_infinite_in_fp16():
    net, x = scaled(1.0), np.ones((4, 64), np.float32)
    net.constants["mask"] = np.where(np.arange(3) < 2, 0, -3e38).astype(np.float32)[None]
    net.nodes[-1].output[0] = "scores"
    net.add("Softmax", [net.add("Add", ["scores", "mask"], "masked")], "y", axis=-1)
    program = compiled(net, precision="fp16")
    np.testing.assert_array_equal(program.init["mask"], np.float16([[0, 0, -np.inf]]))
    with et.Trainer(program) as trainer:
        found = trainer.predict(x)
    assert np.isfinite(found).all() and not found[:, 2].any()


@pytest.mark.parametrize(("precision", "value"), [("fp16", 1e5), ("bf16", 3.4e38)])
def test_data_beyond_the_range_of_the_storage_names_its_sample(precision, value):
    x, y = np.ones((16, 64), np.float32), np.zeros((16, 3), np.float32)
    x[5, 3] = value
    program = compiled(scaled(1.0), precision=precision)
    refused = pytest.raises(
        et.DataError, match=rf"sample 5: field 'x': .* at most .*{precision[-2:]}"
    )
    with et.Trainer(program, (x, y), verbose=False) as trainer, refused:
        trainer.fit(epochs=1)
