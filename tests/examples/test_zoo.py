"""Every model of the zoo exports completely, and computes the same as torch in training mode."""

import copy

import numpy as np
import onnx
import pytest
import torch

from examples.zoo import ZOO, ZooModel
from tests.exporters.exported import (
    export,
    initializers,
    metadata,
    run,
    updated_statistics,
    without_dropout,
)

# The fast suite keeps one of each kind; these take up to ten seconds each.
_SLOW = {
    "alexnet",
    "densenet",
    "dynamic_conv",
    "inception_v3",
    "light_conv",
    "lstm_language_model",
    "resnet50",
    "unet_resize",
    "vgg19",
    "vgg19_bn",
    "wrn28_2_projection",
}
_MODELS = [
    pytest.param(model, id=name, marks=[pytest.mark.slow] if name in _SLOW else [])
    for name, model in ZOO.items()
]
# From the papers' published weights; Inception-v3 without its auxiliary head.
_PUBLISHED_PARAMETERS = {
    "alexnet": 61_100_840,
    "densenet": 7_978_856,
    "gpt": 124_439_808,
    "inception_v3": 23_834_568,
    "mobilenet_v2": 3_504_872,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
    "vit_tiny": 5_717_416,
    # 1.46 million; projections add about 11 thousand
    "wrn28_2": 1_456_858,
    "wrn28_2_projection": 1_467_610,
}
# fp32 against fp32, other summation orders; batch-norm over few samples magnifies the error.
_TOLERANCE = 1e-4


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Run torch on one thread: the models are too small to gain from more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _state(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the tensors that the file must contain, by first name, without step counters."""
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    persistent = module.state_dict()
    return {
        name: tensor.detach().numpy()
        for name, tensor in tensors.items()
        if name in persistent and not name.endswith("num_batches_tracked")
    }


def _batch_dims(model: onnx.ModelProto, batch_dim: int) -> set[str]:
    return {v.type.tensor_type.shape.dim[batch_dim].dim_param for v in model.graph.input}


def _running_means(model: onnx.ModelProto, outputs: list[np.ndarray]) -> dict[str, np.ndarray]:
    values = dict(zip(updated_statistics(model), outputs[len(model.graph.output) :], strict=True))
    suffix = ".updated"
    return {n.removesuffix(suffix): v for n, v in values.items() if n.endswith("mean" + suffix)}


@pytest.mark.parametrize("entry", _MODELS)
def test_zoo_model_exports_and_computes_as_torch(entry: ZooModel, tmp_path):
    torch.manual_seed(0)
    module = without_dropout(entry.build("small"))
    model = export(module, entry.example_inputs(2, "small"), tmp_path, batch_dim=entry.batch_dim)

    expected = _state(module)
    found = initializers(model)
    assert set(expected) == {*metadata(model)["parameters"], *metadata(model)["buffers"]}
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert _batch_dims(model, entry.batch_dim) == {"batch"}

    inputs = entry.example_inputs(5, "small")
    reference = copy.deepcopy(module)
    with torch.no_grad():
        output = reference(*inputs)
    output = output if isinstance(output, torch.Tensor) else output[0]
    outputs = run(model, inputs)
    np.testing.assert_allclose(outputs[0], output.numpy(), atol=_TOLERANCE, rtol=_TOLERANCE)
    buffers = dict(reference.named_buffers())
    for name, value in _running_means(model, outputs).items():
        np.testing.assert_allclose(value, buffers[name], atol=_TOLERANCE, err_msg=name)


@pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO)
def test_zoo_loss_reaches_every_parameter(entry: ZooModel):
    torch.manual_seed(0)
    module = entry.build("small")
    output = module(*entry.example_inputs(4, "small"))
    output = output if isinstance(output, torch.Tensor) else output[0]
    entry.loss_value(output, entry.target(4, "small")).backward()
    assert [n for n, p in module.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO)
def test_zoo_full_scale_is_the_published_model(entry: ZooModel):
    with torch.device("meta"):
        module = entry.build("full")
        output = module(*entry.example_inputs(2, "full"))
    assert output.shape[0] == 2
    count = sum(parameter.numel() for parameter in module.parameters())
    assert _PUBLISHED_PARAMETERS.get(entry.name, count) == count
