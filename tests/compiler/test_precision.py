"""Which storage each role gets."""

import pytest

from edgetrain.errors import UsageError
from edgetrain.ops.registry import op

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
