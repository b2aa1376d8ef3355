"""The onnx package's nine models: ConstantOfShape weights, opset 9, a fixed batch of 1.

Each is loaded and initialised, and its gradients at batch 2 are compared with torch in float64.
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
# Image size: the files' 224, or smaller if the head accepts any size.
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
    """Fix the thread count, because torch's default depends on the machine."""
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
    # Convolutional heads keep two dimensions of size 1.
    shape = (BATCH, 1, 1) if name in ("densenet121", "squeezenet") else (BATCH,)
    inputs, target = _data(model, shape)
    expected = reference(model, inputs, target)
    direct = _errors_of(model, inputs, target, expected, convolutions="direct")
    if max(direct.values()) > 5e-3:
        runs = [_errors(run.gradients, expected) for run in _float32_runs(model, inputs, target, 1)]
        for key, error in direct.items():
            assert error <= max(5e-3, 3 * max(run[key] for run in runs)), key
    chosen = _errors_of(model, inputs, target, expected)
    if max(chosen.values()) > 5e-3:
        runs = [_errors(run.gradients, expected) for run in _float32_runs(model, inputs, target, 8)]
        assert max(chosen.values()) <= 1.5 * max(max(run.values()) for run in runs)


def _errors_of(model, inputs, target, expected: StepResult, **options) -> dict[str, float]:
    """Return the error of each gradient; the loss must be accurate."""
    loss, gradients = et.loss_and_gradients(model, inputs, target, **options)
    assert loss == pytest.approx(expected.loss, rel=1e-5)
    assert gradients.keys() == expected.gradients.keys()
    return _errors(gradients, expected)


def _errors(gradients: Mapping[str, np.ndarray], expected: StepResult) -> dict[str, float]:
    """Return errors relative to each tensor's norm, but at least to 1e-4 of the norm of all."""
    least = 1e-4 * np.sqrt(sum(np.sum(g * g) for g in expected.gradients.values()))
    return {
        name: float(np.linalg.norm(gradients[name] - true) / max(np.linalg.norm(true), least))
        for name, true in expected.gradients.items()
    }


def _float32_runs(model, inputs, target, units: int) -> list[StepResult]:
    """Run torch in float32, then with weights moved by `units` in the last place: 1 for plain sums,
    8 for Winograd's, whose error may be that much larger (tests/kernels/test_winograd.py).

    Masks (a ReLU at zero) flip with the order of summation, and which ones do is luck in any
    single run. Of Winograd's flips only the worst is compared, in whichever tensor it occurs.
    """
    draw = np.random.default_rng(0)
    runs = [reference(model, inputs, target, dtype=torch.float32)]
    for _ in range(3):
        moved = {}
        for name in model.parameters:
            array = model.initializers[name]
            steps = units * draw.choice([-1, 0, 1], array.shape) * np.float32(2.0**-23)
            moved[name] = (array * (1 + steps)).astype(np.float32)
        runs.append(reference(with_state(model, moved), inputs, target, dtype=torch.float32))
    return runs


def test_light_model_is_initialised_by_seed():
    path = FOLDER / "light_squeezenet.onnx"
    first, again, other = (et.load_onnx(path, seed=seed) for seed in (1, 1, 2))
    name = "conv1_w_0"
    np.testing.assert_array_equal(first.initializers[name], again.initializers[name])
    assert np.abs(first.initializers[name] - other.initializers[name]).max() > 0.01
    assert np.std(first.initializers[name]) == pytest.approx((2 / 27) ** 0.5, rel=0.05)
