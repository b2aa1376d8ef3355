"""The nine models of the onnx package: weights as ConstantOfShape, opset 9, a batch of 1 baked in.

Each is loaded, initialised, and its gradients at batch 2 are compared with torch in float64.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import edgetrain as et
from edgetrain.exporters.reference import StepResult, reference, with_state
from edgetrain.ops.model import Model

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
# Side of the image: the files' 224, smaller where the head takes any size.
SIDES = {
    "bvlc_alexnet": 224,
    "densenet121": 224,
    "inception_v1": 224,
    "inception_v2": 224,
    "resnet50": 224,
    "shufflenet": 224,
    "squeezenet": 64,
    "vgg19": 224,
    "zfnet512": 224,
}
MODELS = [
    pytest.param(name, id=name, marks=[] if name == "squeezenet" else pytest.mark.slow)
    for name in SIDES
]
BATCH = 2


@pytest.fixture(autouse=True)
def two_threads():
    """Torch's own choice would follow the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def _load(name: str) -> Model:
    model = et.load_onnx(FOLDER / f"light_{name}.onnx", seed=1)
    (image,) = (spec for spec in model.inputs if len(spec.dims) == 4)
    side = SIDES[name]
    resized = dataclasses.replace(image, dims=(*image.dims[:2], side, side))
    return dataclasses.replace(model, inputs=(resized,))


def _data(model: Model, shape) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    spec = model.inputs[0]
    x = rng.standard_normal((BATCH, *spec.dims[1:])).astype(np.float32)
    return {spec.name: x}, rng.integers(0, 1000, shape)


@pytest.mark.parametrize("name", MODELS)
def test_light_model_gradients_equal_torch(name):
    model = _load(name)
    assert len(model.parameters) > 10
    # Heads that are convolutions keep two dimensions of one.
    shape = (BATCH, 1, 1) if name in ("densenet121", "squeezenet") else (BATCH,)
    inputs, target = _data(model, shape)
    expected = reference(model, inputs, target)
    loss, gradients = et.loss_and_gradients(model, inputs, target)
    assert loss == pytest.approx(expected.loss, rel=1e-5)
    assert gradients.keys() == expected.gradients.keys()
    worst = _worst(gradients, expected)
    if worst > 5e-3:
        runs = _float32_runs(model, inputs, target)
        assert worst <= 1.5 * max(_worst(run.gradients, expected) for run in runs)


def _worst(gradients: Mapping[str, np.ndarray], expected: StepResult) -> float:
    """The largest error of a tensor, relative to its norm."""
    whole = np.sqrt(sum(np.sum(g * g) for g in expected.gradients.values()))
    return max(
        float(np.linalg.norm(gradients[name] - true) / max(np.linalg.norm(true), 1e-4 * whole))
        for name, true in expected.gradients.items()
    )


def _float32_runs(model, inputs, target) -> list[StepResult]:
    """Torch's float32, then with weights moved by 8 units in the last place: as much coarser than
    plain sums may Winograd's convolutions be (tests/kernels/test_winograd.py).

    Masks (a ReLU at zero) flip with every order of summation; which tensors they reach is luck,
    so the worst tensor is compared with the worst.
    """
    draw = np.random.default_rng(0)
    runs = [reference(model, inputs, target, dtype=torch.float32)]
    for _ in range(3):
        moved = {
            name: model.initializers[name]
            * (1 + draw.choice([-1, 0, 1], model.initializers[name].shape) * np.float32(2.0**-20))
            for name in model.parameters
        }
        moved = {name: array.astype(np.float32) for name, array in moved.items()}
        runs.append(reference(with_state(model, moved), inputs, target, dtype=torch.float32))
    return runs


def test_light_model_is_initialised_by_seed():
    path = FOLDER / "light_squeezenet.onnx"
    first, again, other = (et.load_onnx(path, seed=seed) for seed in (1, 1, 2))
    name = "conv1_w_0"
    np.testing.assert_array_equal(first.initializers[name], again.initializers[name])
    assert np.abs(first.initializers[name] - other.initializers[name]).max() > 0.01
    assert np.std(first.initializers[name]) == pytest.approx((2 / 27) ** 0.5, rel=0.05)
