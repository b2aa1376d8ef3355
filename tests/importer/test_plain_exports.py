"""torch's own exports of a net are trained like the net itself."""

import re

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.api import forward
from edgetrain.importer import load_onnx
from edgetrain.program.trained import export_trained

from .plain_nets import EXPORTERS, NETS, batch, exported

_FAST = {("lstm", "new"), ("encoder", "new"), ("decoder", "old"), ("images", "old")}


def cases(fast: set[tuple[str, str]]) -> pytest.MarkDecorator:
    """All nets and exporters; combinations not in `fast` are slow tests."""
    params = [
        pytest.param(
            (net, exporter),
            marks=[] if (net, exporter) in fast else [pytest.mark.slow],
            id=f"{net} {exporter}",
        )
        for net in NETS
        for exporter in EXPORTERS
    ]
    return pytest.mark.parametrize("case", params, indirect=True)


# The newer exporter folds the weight norm and the softmax of weights at export.
FOLDED = {("images", "new")}


@pytest.fixture(scope="module")
def case(request, tmp_path_factory):
    net, exporter = request.param
    module, path = exported(net, exporter, tmp_path_factory.mktemp(net))
    return net, exporter, module, path, load_onnx(path)


def numbers(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


@cases(_FAST)
def test_plain_export_trains_every_number_of_the_module(case):
    net, exporter, module, _, model = case
    found = sum(model.initializers[name].size for name in model.parameters)
    made = 8 if (net, exporter) in FOLDED else 0  # the weight norm's scale is in the weight
    assert found == numbers(module) - made
    assert not {"positions", "cos", "sin", "mask"}.intersection(model.parameters)
    assert model.untrained == ()


_OF_NODE = re.compile(r"(Conv|Gemm|MatMul)(_\d+)?\.(weight|bias)|onnx::.*")


@cases(_FAST)
def test_plain_export_names_weights_as_torch_does(case):
    net, exporter, module, _, model = case
    if net in ("lstm", "gru") and "unfolded" not in exporter:
        names = {f"rnn.{part}_l{k}" for part in ("weight_ih", "weight_hh", "bias") for k in (0, 1)}
        names |= {"embedding.weight", "head.weight", "head.bias"}
        assert set(model.parameters) == names
    elif (net, exporter) not in FOLDED:
        own = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        # Tensors that the exporter computed (a softmax, a folded norm) are named after their node.
        assert {name for name in model.parameters if not _OF_NODE.fullmatch(name)} <= own


@cases({("lstm", "new"), ("encoder", "new")})
def test_plain_export_has_the_gradients_of_torch(case):
    net, _, module, _, model = case
    torch.manual_seed(1)
    x = batch(net)
    output = module.double()(x.double() if x.is_floating_point() else x)
    target = torch.randint(0, output.shape[-1], output.shape[:-1])
    loss = F.cross_entropy(output.movedim(-1, 1), target)
    found = torch.autograd.grad(loss, list(module.parameters()))
    module.float()
    exact = dict(zip((n for n, _ in module.named_parameters()), found, strict=True))
    chosen = et.Loss("cross_entropy", class_axis=output.dim() - 1)
    value, gradients = et.loss_and_gradients(
        model, {"x": x.numpy()}, target.numpy().astype(np.int32), loss=chosen
    )
    assert value == pytest.approx(loss.item(), rel=1e-5)
    for name, gradient in gradients.items():
        true = exact[name].numpy() if name in exact else None
        if true is not None and true.size == gradient.size and "rnn" not in name:
            turned = true.ndim == 2 and true.shape != gradient.shape
            true = true.T if turned else true.reshape(gradient.shape)
            options = [true, true.T] if true.ndim == 2 and len(set(true.shape)) == 1 else [true]
            error = min(np.linalg.norm(gradient - t) for t in options)
            assert error <= 1e-4 * np.linalg.norm(true) + 1e-6, name
    if not any(name.endswith("taps") or "original" in name for name in set(exact) - set(gradients)):
        norms = [
            np.sqrt(sum(float((g * g).sum()) for g in part.values())) for part in (gradients, exact)
        ]
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)


@cases({("encoder", "new")})
def test_plain_export_is_written_back_in_its_own_layout(case, tmp_path):
    net, _, _, _, model = case
    program = et.compile(model, minibatch=4, microbatch=4, loss="cross_entropy")
    draw = np.random.default_rng(0)
    state = {
        slot.name: (0.1 * draw.standard_normal(slot.shape)).astype(np.float32)
        for slot in program.persistent
        if slot.role == "parameter"
    }
    path = export_trained(program, state, tmp_path / "trained.onnx")
    x = batch(net).numpy()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    again = load_onnx(path)
    assert set(again.parameters) == set(model.parameters) == set(state)
    np.testing.assert_allclose(
        forward(again, {"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5
    )
    for name, array in state.items():
        np.testing.assert_array_equal(again.initializers[name], array, err_msg=name)
