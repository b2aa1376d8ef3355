"""The storage format of each role."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.errors import UsageError
from edgetrain.exporters import export_torch
from edgetrain.ops.registry import op
from edgetrain.runtime.samples.check import checked_run
from tests.quick import slow_between, slow_except

from ..kept import kept
from .nets import Net, graphs, residual


def _dtypes(train, role):
    return {(len(v.shape) > 1, v.dtype) for v in train.values.values() if v.role == role}


def test_fp32_stores_everything_in_fp32():
    train = graphs(residual()).train
    assert {v.dtype for v in train.values.values()} == {"f32", "f64", "i64", "i32", "u8"} or (
        "f16" not in {v.dtype for v in train.values.values()}
    )


def test_fp16_stores_matrices_and_maps_in_fp16_and_vectors_and_statistics_in_fp32():
    train = graphs(residual(), precision="fp16").train
    assert _dtypes(train, "parameter") == {(True, "f16"), (False, "f32")}
    assert _dtypes(train, "accumulator") == {(True, "f16"), (False, "f32")}
    assert {d for _, d in _dtypes(train, "gradient")} == {"f16"}
    assert _dtypes(train, "input") == {(True, "f16")}
    assert _dtypes(train, "buffer") == {(False, "f32")}
    stats = {v.dtype for v in train.values.values() if v.role == "statistic"}
    assert stats <= {"f32", "f64"}


@pytest.mark.parametrize(("memory", "weights"), [("fp32", "f32"), ("fp16", "f16")])
def test_model_memory_sets_the_weights_alone(memory, weights):
    other = {"fp32": "fp16", "fp16": "fp32"}[memory]
    train = graphs(residual(), precision=other, model_memory=memory).train
    assert (True, weights) in _dtypes(train, "parameter")
    assert train.values["stem"].dtype == {"fp32": "f32", "fp16": "f16"}[other]


def test_views_are_stored_as_their_root():
    train = graphs(residual(), precision="fp16").train
    assert train.values["flat"].dtype == train.values["pooled"].dtype == "f16"


@pytest.mark.parametrize("options", [{"precision": "fp8"}, {"model_memory": "half"}])
def test_unknown_format_is_an_error(options):
    with pytest.raises(UsageError, match="expected one of"):
        graphs(residual(), **options)


def test_what_is_added_to_an_fp16_accumulator_is_rounded_stochastically():
    net = Net(6)
    weight = net.add("Softmax", [net.weight("w", 6, 8)], "softmax")
    shifted = net.add("Sub", [net.weight("v", 8, 4), net.weight("u", 8, 4)], "shifted")
    h = net.add("Tanh", [net.add("MatMul", ["x", weight], "h")], "tanh")
    net.add("MatMul", [h, shifted], "y")
    train = graphs(net.model("y"), loss="mse", precision="fp16").train
    writers = [
        (node, train.root(name))
        for node in train.nodes
        for name in node.writes
        if train.values[train.root(name)].role == "accumulator"
    ]
    assert {root for _, root in writers} == {"w.grad", "v.grad", "u.grad"}
    assert all(train.values[root].dtype == "f16" for _, root in writers)
    assert all(op(node.op).rounds for node, _ in writers)


class _OfWeight(nn.Module):
    """A head whose matrix is computed from a weight."""

    def __init__(self, way: str, columns: int) -> None:
        super().__init__()
        drawn = torch.randn(6, columns)
        # no weight is so near 0 that rounding moves it across the kink of a ReLU
        self.way, self.w = OF_WEIGHTS[way], nn.Parameter(drawn + 0.3 * drawn.sign())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.way(self.w).T


OF_WEIGHTS = {
    "itself": lambda w: w,
    "softmax": lambda w: w.softmax(-1),
    "relu": torch.relu,
    "centred": lambda w: w - w.mean(1, keepdim=True),
    "product": lambda w: w * w,
    "layer norm": lambda w: nn.functional.layer_norm(w, (w.shape[1],)),
    "pool": lambda w: nn.functional.max_pool1d(w[None], 3, 1, 1)[0],
    "turned": lambda w: w.flip(0),
}
# Largest departure of a step, relative to the largest change of a weight, by its storage.
DEPARTURE = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2, "int8": 0.4}


@pytest.mark.parametrize("fused", [False, True], ids=["", "fused update"])
@pytest.mark.parametrize("columns", [8, 64], ids=["less than a block", "blocks"])
@pytest.mark.parametrize(
    ("memory", "precision", "way"),
    slow_between(product(DEPARTURE, ["fp32", "fp16", "bf16"], OF_WEIGHTS), 7),
)
def test_what_is_computed_of_a_weight_trains_in_every_storage(
    tmp_path: Path, way: str, memory: str, precision: str, columns: int, fused: bool
) -> None:
    """The kernels have one storage for weight and result, so the weight is converted."""
    torch.manual_seed(len(way))
    net = _OfWeight(way, columns)
    path = kept(
        f"of weight {way} {columns}.onnx",
        lambda to: export_torch(net, (torch.randn(2, columns),), to),
    )
    x, y = torch.randn(4, columns), torch.randn(4, 6)
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    before, gradient = net.w.detach().numpy().copy(), net.w.grad.numpy()
    lr = float(64 / np.abs(gradient).max())  # so large that rounding of the weight doesn't count
    chosen = {"precision": precision, "model_memory": memory, "loss_scale": 1.0}
    chosen |= {"fused_update": True} if fused else {"microbatch": 2}
    program = et.compile(
        path, loss="mse", minibatch=4, threads=1, optimizer=et.SGD(lr=lr), **chosen
    )
    with et.Trainer(program, out=tmp_path) as trainer:
        found = trainer.step(x.numpy(), y.numpy())
        change = (before - trainer.state_dict()["w"]) / lr
    departure = np.abs(change - gradient).max() / np.abs(gradient).max()
    assert found.loss == pytest.approx(loss.item(), rel=2e-2)
    assert departure <= max(DEPARTURE[memory], DEPARTURE[precision])


@pytest.mark.parametrize(
    ("cell", "memory"),
    slow_except(
        product([nn.RNN, nn.GRU, nn.LSTM], ["fp16", "int8"]), (nn.RNN, "fp16"), (nn.LSTM, "int8")
    ),
)
def test_cells_of_two_layers_compile_with_weights_in_short_formats(
    tmp_path: Path, cell: type, memory: str
) -> None:
    """An RNN's weights are read through views, but unpacked under their own names."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = cell(16, 24, num_layers=2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cells(x)[0][:, -1]

    path = tmp_path / "net.onnx"
    export_torch(Net(), (torch.randn(2, 5, 16),), path)
    program = et.compile(path, minibatch=4, threads=1, precision="fp16", model_memory=memory)
    assert np.isfinite(checked_run(program, 2).scales).all()
