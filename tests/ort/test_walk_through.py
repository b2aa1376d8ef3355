"""Scripts for ONNX Runtime's on-device training with other imports; every call against torch."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.ort import artifacts
from edgetrain.ort.api import CheckpointState, LinearLRScheduler, Module, Optimizer

pytestmark = pytest.mark.usefixtures("every_rung")

PIXELS, CLASSES, BATCH = 64, 10, 32


class MNISTNet(nn.Module):
    """The walk-through's net, for digits of 8 by 8."""

    def __init__(self, input_size: int = PIXELS, hidden: int = 48, classes: int = CLASSES) -> None:
        super().__init__()
        self.fc1, self.relu = nn.Linear(input_size, hidden), nn.ReLU()
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, model_input: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.relu(self.fc1(model_input)))


def digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    source = et.open_data("digits", split=split)
    x, y = np.empty((source.n, 1, 8, 8), np.float32), np.empty(source.n, np.int64)
    source.fill(np.arange(source.n), {"x": x, "y": y})
    return x.reshape(source.n, PIXELS), y


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    return MNISTNet()


@pytest.fixture
def model(module: nn.Module, tmp_path: Path) -> onnx.ModelProto:
    export_torch(module, (torch.zeros(2, PIXELS),), tmp_path / "forward.onnx")
    return onnx.load(tmp_path / "forward.onnx")


def made(model: Any, folder: Path, **options: Any) -> tuple[Module, Optimizer, CheckpointState]:
    """The artifacts, opened as in the documentation."""
    given: dict[str, Any] = {
        "loss": artifacts.LossType.CrossEntropyLoss,
        "optimizer": artifacts.OptimType.AdamW,
        "minibatch": BATCH,
        "threads": 1,
    }
    artifacts.generate_artifacts(model, artifact_directory=folder, **{**given, **options})
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    found = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    return found, Optimizer(folder / "optimizer_model.onnx", found), state


def test_the_walk_through_learns_digits(model: onnx.ModelProto, module, tmp_path: Path) -> None:
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    output = model.graph.output[0].name
    net, optimizer, state = made(
        model, tmp_path, requires_grad=names, frozen_params=[], additional_output_names=[output]
    )
    scheduler = LinearLRScheduler(optimizer, 4, 6 * 44, initial_lr=0.01)
    (x, y), (x_test, y_test) = digits("train"), digits("test")

    def train() -> float:
        net.train()
        losses = []
        for k in range(0, len(x) - BATCH + 1, BATCH):
            train_loss, _ = net(x[k : k + BATCH], y[k : k + BATCH].astype(np.int32))
            optimizer.step()
            net.lazy_reset_grad()
            scheduler.step()
            losses.append(train_loss)
        return sum(losses) / len(losses)

    def test() -> tuple[float, float]:
        net.eval()
        right, losses = 0, []
        for k in range(0, len(x_test), 50):
            test_loss, logits = net(x_test[k : k + 50], y_test[k : k + 50])
            right += int((logits.argmax(axis=1) == y_test[k : k + 50]).sum())
            losses.append(test_loss)
        return sum(losses) / len(losses), right / len(x_test)

    first = train()
    for epoch in range(5):
        last = train()
        state.properties["epoch"] = epoch
    loss, accuracy = test()
    assert last < first / 4 and accuracy > 0.93 and loss < 0.5
    assert optimizer.get_learning_rate() == pytest.approx(0.0, abs=1e-9)
    net.export_model_for_inferencing(tmp_path / "inference_model.onnx", [output])
    run = onnxruntime.InferenceSession(tmp_path / "inference_model.onnx")
    found = run.run([output], {run.get_inputs()[0].name: x_test})[0]
    assert np.mean(found.argmax(1) == y_test) == pytest.approx(accuracy)
    CheckpointState.save_checkpoint(state, tmp_path / "trained.ckpt", include_optimizer_state=True)
    again = CheckpointState.load_checkpoint(tmp_path / "trained.ckpt")
    assert again.properties["epoch"] == 4 and again["epoch"] == 4 and "epoch" in again


def test_steps_are_torchs(model: onnx.ModelProto, tmp_path: Path) -> None:
    torch.manual_seed(0)
    twin = MNISTNet()
    net, optimizer, state = made(model, tmp_path)
    method = torch.optim.AdamW(twin.parameters(), lr=0.01, eps=1e-6, weight_decay=0.0)
    optimizer.set_learning_rate(0.01)
    x, y = digits("train")
    for k in range(3):
        part = slice(BATCH * k, BATCH * (k + 1))
        loss = nn.functional.cross_entropy(twin(torch.tensor(x[part])), torch.tensor(y[part]))
        method.zero_grad()
        loss.backward()
        assert net(x[part], y[part]) == pytest.approx(loss.item(), rel=1e-5)
        for name, parameter in twin.named_parameters():
            found = state.parameters[name].grad
            np.testing.assert_allclose(found, parameter.grad, rtol=1e-3, atol=1e-6)
        optimizer.step()
        method.step()
    for name, parameter in twin.named_parameters():
        np.testing.assert_allclose(
            state.parameters[name].data, parameter.detach(), rtol=1e-3, atol=1e-5
        )


def test_gradients_add_up_until_they_are_reset(model: onnx.ModelProto, tmp_path: Path) -> None:
    net, optimizer, state = made(model, tmp_path)
    x, y = digits("train")
    weight = state.parameters["fc1.weight"]
    assert weight.grad is None
    net(x[:32], y[:32])
    one = weight.grad
    net(x[:32], y[:32])
    np.testing.assert_allclose(weight.grad, 2 * one, rtol=1e-5, atol=1e-7)
    net(x[32:37], y[32:37])  # of another size: its mean is added
    three = weight.grad
    net.lazy_reset_grad()
    assert weight.grad is None
    net(x[32:37], y[32:37])
    np.testing.assert_allclose(weight.grad + 2 * one, three, rtol=1e-4, atol=1e-6)
    before = weight.data
    optimizer.step()
    assert not np.array_equal(weight.data, before) and weight.grad is None
    with pytest.raises(et.UsageError, match="no gradients"):
        optimizer.step()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fused_update": True, "minibatch": 8}, "with fused_update, .*Leave it out"),
        ({"allow": ["rows"], "minibatch": 8}, "with allow rows, .*Leave it out"),
    ],
)
def test_programs_without_gradients_of_any_number_of_calls_are_refused(
    options, words, tmp_path: Path
) -> None:
    net = nn.Sequential(nn.Embedding(300, 4), nn.Flatten(), nn.Linear(12, 3))
    path = et.exporters.export_torch(net, (torch.zeros(2, 3, dtype=torch.long),), tmp_path / "net")
    given = {"loss": artifacts.LossType.CrossEntropyLoss, "artifact_directory": tmp_path}
    artifacts.generate_artifacts(path, **given, **options)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(et.UsageError, match=f"Module: {words}"):
        Module(tmp_path / "training_model.onnx", state)


def test_a_checkpoint_with_the_optimizers_state_goes_on(model, tmp_path: Path) -> None:
    x, y = digits("train")

    def stepped(net: Module, optimizer: Optimizer, ks: range) -> None:
        for k in ks:
            net(x[k * 32 : k * 32 + 32], y[k * 32 : k * 32 + 32])
            optimizer.step()

    net, optimizer, state = made(model, tmp_path)
    stepped(net, optimizer, range(3))
    CheckpointState.save_checkpoint(state, tmp_path / "whole", include_optimizer_state=True)
    CheckpointState.save_checkpoint(state, tmp_path / "weights")
    stepped(net, optimizer, range(3, 6))
    wanted = net.get_contiguous_parameters()
    for name, equal in (("whole", True), ("weights", False)):
        loaded = CheckpointState.load_checkpoint(tmp_path / name)
        other = Module(tmp_path / "training_model.onnx", loaded)
        begun = other.get_contiguous_parameters().numpy()
        assert not np.array_equal(begun, wanted.numpy())
        stepped(other, Optimizer(tmp_path / "optimizer_model.onnx", other), range(3, 6))
        assert np.array_equal(other.get_contiguous_parameters(), wanted) == equal


def test_parameters_go_out_and_in_as_one_buffer(model: onnx.ModelProto, tmp_path: Path) -> None:
    net, _, state = made(model, tmp_path, frozen_params=["fc1.weight", "fc1.bias"])
    whole = net.get_contiguous_parameters()
    assert whole.shape == (net.get_parameters_size(False),) and whole.dtype == np.float32
    head = net.get_contiguous_parameters(trainable_only=True)
    assert head.size == net.get_parameters_size() == 48 * 10 + 10
    net.copy_buffer_to_parameters(np.zeros_like(head))
    assert not state.parameters["fc2.weight"].data.any()
    assert state.parameters["fc1.weight"].data.any()
    assert not state.parameters["fc1.weight"].requires_grad
    net.copy_buffer_to_parameters(whole, trainable_only=False)
    np.testing.assert_array_equal(net.get_contiguous_parameters(), whole)
    state.parameters["fc2.bias"].data = np.ones(10)
    state.parameters["fc1.bias"] = np.ones(48)
    assert state.parameters["fc2.bias"].data.all() and state.parameters["fc1.bias"].data.all()
    with pytest.raises(et.UsageError, match="3 numbers; expected 490"):
        net.copy_buffer_to_parameters(np.zeros(3))


@pytest.mark.parametrize("loss", artifacts.LossType, ids=lambda loss: loss.name)
def test_every_loss_learns(loss: artifacts.LossType, model, tmp_path: Path) -> None:
    net, optimizer, _ = made(model, tmp_path, loss=loss, optimizer=artifacts.OptimType.SGD)
    optimizer.set_learning_rate(0.05)
    x, y = digits("train")
    one_hot = np.eye(CLASSES, dtype=np.float32)[y[:64]]
    target = y[:64] if loss is artifacts.LossType.CrossEntropyLoss else one_hot
    losses = []
    for _ in range(12):
        losses.append(net(x[:64], target))  # two minibatches at once
        optimizer.step()
    assert losses[-1] < losses[0] and net.output_names() == ["loss"]
    assert net.input_names()[-1] == "target" and isinstance(losses[0], np.float32)


def test_slips_are_one_line(model: onnx.ModelProto, tmp_path: Path) -> None:
    net, optimizer, state = made(model, tmp_path)
    x, y = digits("test")
    buffer = net.get_contiguous_parameters().copy()
    buffer[-1] = np.nan  # the last element: nothing is written
    output = model.graph.output[0].name
    slips: list[tuple[Any, str]] = [
        (lambda: made(model, tmp_path, requires_grad="fc1.weight"), r"such as \['fc1.weight'\]"),
        (lambda: made(model, tmp_path, frozen_params=3), "expected a list of names"),
        (lambda: made(model, tmp_path, requires_grad=[3]), "found 3; expected parameter names"),
        (lambda: made(model, tmp_path, additional_output_names=output), "a list of names, such"),
        (lambda: made(model, tmp_path, prefix=3), "prefix 3: expected a string"),
        (lambda: made(model, tmp_path, loss="CrossEntropy"), "Did you mean cross_entropy"),
        (lambda: artifacts.generate_artifacts(model, artifact_directory=3), "expected a directory"),
        (lambda: net([x[:4], y[:4]]), r"Call module\(.*, target\)"),
        (lambda: net(x[:4], target=y[:4]), "positional one, target; expected"),
        (lambda: net(inputs=x[:4], labels=y[:4]), "inputs inputs, labels; expected"),
        (lambda: net.copy_buffer_to_parameters(buffer), "some values are not finite"),
        (lambda: net.export_model_for_inferencing(tmp_path / "i.onnx", 3), "a list of names"),
        (lambda: LinearLRScheduler(net, 0, 3, 0.1), "expected an Optimizer"),
        (lambda: LinearLRScheduler(optimizer, "a", 3, 0.1), "warmup_step_count 'a'"),
        (lambda: CheckpointState.save_checkpoint(state), "checkpoint_uri: missing"),
        (lambda: CheckpointState.save_checkpoint("a", "b"), "expected a CheckpointState"),
        (
            lambda: CheckpointState.save_checkpoint(state, "b", nominal=True),
            "nominal: no such argument",
        ),
        (lambda: state.properties.pop("c"), "'c' not found"),
        (lambda: net(x[:4]), "module: 1 input; expected"),
        (lambda: Module(tmp_path / "training_model.onnx", state, device="cuda"), "device 'cuda'"),
        (lambda: Module(tmp_path / "other.onnx", state), "expected training_model.onnx"),
        (lambda: Module(tmp_path / "a_training_model.onnx", state), "missing"),
        (lambda: Module(tmp_path / "training_model.onnx", {}), "CheckpointState.load_checkpoint"),
        (lambda: optimizer.set_learning_rate("fast"), "learning_rate"),
        (lambda: net.export_model_for_inferencing(tmp_path / "i.onnx", ["logit"]), "'logit'"),
        (lambda: state.properties.__setitem__("a", [1]), "expected an int"),
        (lambda: state.properties["b"], "'b' not found"),
        (lambda: state.parameters["fc9.weight"], "no such name"),
        (lambda: made(model, tmp_path, requires_grad=["a"], frozen_params=["a"]), "'a'.* requ"),
        (lambda: made(model, tmp_path, loss=3), "expected a LossType"),
        (lambda: made(model, tmp_path, optimizer=3), "expected an OptimType"),
        (lambda: made(model, tmp_path, additional_output_names=["x"]), "additional_output_names"),
        (lambda: made(model, tmp_path / "none"), "none does not exist"),
        (lambda: made(3, tmp_path), "onnx.ModelProto"),
        (lambda: CheckpointState({}, {}).parameters, "Module"),
        (lambda: LinearLRScheduler(optimizer, 5, 3, 0.1), "warmup_step_count 5"),
    ]
    for call, wanted in slips:
        with pytest.raises(et.EdgetrainError, match=wanted) as found:
            call()
        assert "\n" not in str(found.value)
    assert not (net.get_contiguous_parameters() == buffer)[-1:].any()
    assert np.isfinite(net.get_contiguous_parameters()).all()


def test_what_scripts_say_otherwise_is_understood(model: onnx.ModelProto, tmp_path: Path) -> None:
    given: dict[str, Any] = {"loss": "CrossEntropyLoss", "optimizer": "SGD", "prefix": None}
    net, optimizer, state = made(model, tmp_path, additional_output_names=None, **given)
    x, y = digits("train")
    names = net.input_names()
    by_name = net(**dict(zip(names, (x[:32], y[:32]), strict=True)))
    net.lazy_reset_grad()
    assert net(torch.tensor(x[:32], requires_grad=True), torch.tensor(y[:32])) == by_name
    state["loss"], state["epoch"] = by_name, np.int64(3)  # a float32, as the call returned it
    assert type(state["loss"]) is float and state["epoch"] == 3
    assert state.properties.get("nothing") is None
    assert "nothing" not in state.parameters and state.parameters.get("nothing") is None
    net.export_model_for_inferencing(tmp_path / "i.onnx", None)
    optimizer.step()
