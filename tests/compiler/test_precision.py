"""The storage format of each role."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.errors import ModelError, UsageError
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

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.w = OF_WEIGHTS[way], nn.Parameter(torch.randn(6, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.way(self.w).T


OF_WEIGHTS = {
    "itself": lambda w: w,
    "softmax": lambda w: w.softmax(-1),
    "relu": torch.relu,
    "centred": lambda w: w - w.mean(1, keepdim=True),
    "product": lambda w: w * w,
    "layer norm": lambda w: nn.functional.layer_norm(w, (64,)),
    "pool": lambda w: nn.functional.max_pool1d(w[None], 3, 1, 1)[0],
    "turned": lambda w: w.flip(0),
}
MEMORY = [{"model_memory": name} for name in ("fp32", "fp16", "int8")]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("memory", MEMORY, ids=lambda one: one["model_memory"])
@pytest.mark.parametrize("way", slow_between(OF_WEIGHTS, 3))
def test_what_is_computed_of_a_weight_is_compiled_or_refused_with_what_would(
    way: str, memory: dict, precision: str
) -> None:
    path = kept(
        f"of weight {way}.onnx", lambda to: export_torch(_OfWeight(way), (torch.randn(2, 64),), to)
    )
    given = {"minibatch": 4, "threads": 1, "precision": precision}
    try:
        et.compile(path, **given, **memory)
    except ModelError as error:
        assert "'w" in str(error) and "the model computes with the weight itself" in str(error)
        (move,) = re.findall(r"Use --model-memory (fp16|fp32)\.$", str(error))
        assert move == precision
        et.compile(path, **given, model_memory=move)


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
