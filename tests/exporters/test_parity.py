"""The parity report: compares the right values, names the first departure, is JSON."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from rich.console import Console
from torch import nn

import edgetrain as et
from edgetrain.errors import DataError, UsageError
from edgetrain.exporters import export_torch, parity_step
from edgetrain.exporters import parity as parity_module
from edgetrain.exporters.parity import ParityReport, parity
from edgetrain.exporters.parity_step import ROUNDINGS, UPDATE_TOLERANCE, Row, gradient_order
from edgetrain.exporters.reference import Reference
from edgetrain.exporters.sample import sample_batch
from edgetrain.formats import PRECISIONS
from edgetrain.ir import Builder
from edgetrain.losses import Loss
from edgetrain.program import WEIGHT
from edgetrain.runtime.microbatch import run_minibatch
from tests.quick import slow_between


class _Net(nn.Module):
    """Token ids and a feature vector; batch-norm after a bias whose gradient is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.body, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens, x):
        mixed = self.table(tokens).mean(1) + x
        return self.head(self.dropout(torch.relu(self.norm(self.body(mixed)))))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("net") / "net.onnx"
    example = torch.zeros(2, 4, dtype=torch.int64), torch.randn(2, 6)
    return export_torch(_Net(), example, out, input_names=["tokens", "x"])


@pytest.mark.parametrize(
    "optimizer", [None, et.SGD(lr=0.1, momentum=0.9, nesterov=True), et.Adam(), et.AdamW()]
)
def test_parity_holds_for_loss_gradients_statistics_and_updates(path, optimizer):
    report = parity(path, steps=3, optimizer=optimizer)
    assert report.first is None and report.ok
    assert {row.kind for row in report.rows} == {
        "forward", "loss", "statistic", "gradient", "parameter", "state",
    }  # fmt: skip
    assert {row.name for row in report.rows if row.kind == "gradient"} == {
        name for name, _ in _Net().named_parameters()
    }
    assert {row.step for row in report.rows} == {0, 1, 2, 3}


@pytest.mark.parametrize("microbatch", [4, 2])
@pytest.mark.parametrize("how", [{}, {"freeze_bn": True}, {"train": ("head.*",)}])
def test_parity_of_microbatches_holds(path, microbatch, how):
    """In torch too, moving batch-norms use the statistics of microbatches."""
    report = parity(path, steps=3, minibatch=8, microbatch=microbatch, **how)
    assert report.first is None and report.ok
    assert (report.facts["minibatch"], report.facts["microbatch"]) == (8, microbatch)
    moves = {row.name for row in report.rows if row.kind == "statistic" and row.step == 3}
    assert "norm.running_mean" in moves


def test_parity_of_microbatches_weighs_targets_as_the_minibatch(path):
    """All ignored targets are in one microbatch."""
    draw = np.random.default_rng(0)
    inputs = {
        "tokens": draw.integers(0, 7, (8, 4)).astype(np.int32),
        "x": draw.standard_normal((8, 6), np.float32),
    }
    target = draw.integers(0, 3, 8)
    target[1:4] = -100
    given = {"inputs": inputs, "target": target, "steps": 2}
    assert parity(path, microbatch=4, **given).ok
    assert parity(path, microbatch=4, freeze_bn=True, **given).ok


@pytest.mark.parametrize("verbose", [False, True])
def test_parity_takes_the_verbose_of_compile(path, verbose):
    assert parity(path, steps=1, verbose=verbose).ok


def test_parity_refuses_what_is_no_divisor(path):
    with pytest.raises(UsageError, match="microbatch 3: expected a divisor of the minibatch of 8"):
        parity(path, microbatch=3)


def test_parity_holds_against_torch_in_fp32(path):
    report = parity(path, steps=2, reference="fp32")
    assert report.ok and report.facts["reference"] == "fp32"
    with pytest.raises(UsageError, match="reference 'bf16': expected fp64 or fp32"):
        parity(path, reference="bf16")


@pytest.mark.parametrize(
    "optimizer", [et.SGD(lr=0.1, momentum=0.9), et.AdamW(), et.Lamb(), et.Adafactor()]
)
def test_parity_holds_for_sparse_weights(path, optimizer):
    report = parity(
        path, steps=3, optimizer=optimizer, density_overrides={"body.weight": 0.5, "head.*": 0.3}
    )
    assert report.ok
    names = {row.name for row in report.rows if row.kind in ("gradient", "parameter")}
    assert names == {name for name, _ in _Net().named_parameters()}


def test_parity_of_sparse_weights_judges_every_nonzero(path, monkeypatch):
    from edgetrain.exporters import parity_slots

    right = parity_slots.positions_of
    monkeypatch.setattr(parity_slots, "positions_of", lambda *args: right(*args)[::-1])
    assert not parity(path, steps=1, density_overrides={"body.weight": 0.5}).ok


def test_parity_of_a_frozen_body_judges_the_head(path):
    report = parity(path, steps=2, train=("head.*",))
    assert report.ok
    judged = {row.name for row in report.rows if row.kind in ("gradient", "parameter")}
    assert judged == {"head.weight", "head.bias"}


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({"freeze": ("norm.*",)}, False), ({"freeze": ("body.*", "norm.*", "table.*")}, False),
        ({"freeze_bn": True}, False), ({"freeze": ("norm.*",), "freeze_bn": False}, True),
        ({"freeze": ("norm.weight",)}, True),
    ],
)  # fmt: skip
def test_parity_of_a_held_batch_norm_judges_it_on_its_running_statistics(path, options, moves):
    report = parity(path, steps=2, **options)
    assert report.ok
    found = {row.error > 0 for row in report.rows if row.kind == "statistic"}
    assert (True in found) == moves and len(report.rows) > 4
    gradients = {row.name for row in report.rows if row.kind == "gradient"}
    assert ("norm.weight" in gradients) == ("freeze" not in options)


def test_parity_departs_where_the_engine_moves_what_torch_holds(path, monkeypatch):
    monkeypatch.setattr("edgetrain.exporters.reference.hold_statistics", lambda graph, *_: graph)
    report = parity(path, steps=2, freeze=("norm.*",))
    assert not report.ok and report.first.kind == "loss"


def test_parity_clips_as_training_does(path):
    for most in (0.01, 100.0):
        assert parity(path, steps=2, optimizer=et.SGD(lr=0.1), max_grad_norm=most).ok, most


@pytest.mark.parametrize("short", [{"grads": "int8"}, {"grads": "fp16"}, {"model_memory": "int8"}])
def test_parity_judges_clipped_updates_by_the_storage_of_all_gradients(short):
    """Clipping uses all gradients, so an exact vector gets a different update too."""
    digits = Path(__file__).parents[2] / "examples" / "digits" / "model.onnx"
    report = parity(digits, steps=2, minibatch=4, threads=1, max_grad_norm=0.5, **short)
    assert report.ok, report.first
    expected = ROUNDINGS * 2.0**-10 if "fp16" in short.values() else None
    assert {r.tolerance for r in report.rows if r.kind in ("parameter", "state")} == {expected}
    free = parity(digits, steps=2, minibatch=4, threads=1, **short)
    judged = {row.name for row in free.rows if row.kind == "parameter" and row.tolerance}
    assert free.ok and ("fp16" in short.values() or judged)


def test_parity_takes_given_inputs_a_loss_and_a_budget(path):
    draw = np.random.default_rng(0)
    inputs = {
        "tokens": draw.integers(0, 7, (8, 4)).astype(np.int32),
        "x": draw.standard_normal((8, 6), np.float32),
    }
    target = draw.standard_normal((8, 3), np.float32)
    options = {"inputs": inputs, "target": target, "steps": 1, "loss": "mse"}
    free = parity(path, **options)
    report = parity(path, budget=free.facts["arena_nbytes"], **options)
    assert report.ok and report.facts["loss"] == "mse"
    assert report.facts["arena_nbytes"] <= free.facts["arena_nbytes"]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_parity_rounds_weights_as_their_own_storage_does(path, precision):
    """`model_memory` is a different format from the values'."""
    other = {"fp32": "fp16", "fp16": "fp32"}[precision]
    report = parity(path, steps=2, precision=precision, model_memory=other)
    assert report.ok, report.summary()
    judged = {row.kind for row in report.rows if row.tolerance is not None}
    assert judged == {"forward", "loss", "gradient", "parameter", "state"}
    updates = {row.tolerance for row in report.rows if row.kind == "parameter"}
    assert (max(updates) <= UPDATE_TOLERANCE) == (other == "fp32")


def test_parity_of_a_loss_without_targets_takes_inputs_alone(path):
    draw = np.random.default_rng(0)
    inputs = {
        "tokens": draw.integers(0, 7, (8, 4)).astype(np.int32),
        "x": draw.standard_normal((8, 6), np.float32),
    }
    assert parity(path, inputs=inputs, steps=1, loss="output").ok
    with pytest.raises(UsageError, match="no target"):
        parity(path, inputs=inputs, target=np.zeros((8, 3)), loss="output")


@pytest.mark.parametrize("batch", [1, 2])
def test_samples_that_are_weighed_have_one_that_counts(path, batch):
    exact = Reference(et.load_onnx(path), batch, freeze_bn=True)
    loss = Loss("mse", sample_weights=True)
    inputs, _ = sample_batch(exact.graph, exact.output, loss, np.random.default_rng(0))
    assert inputs[WEIGHT].any() and (inputs[WEIGHT] == 0).sum() == batch - 1


@pytest.mark.parametrize("precision", [name for name in PRECISIONS if name != "fp32"])
def test_parity_of_short_storage_judges_updates_by_its_spacing(path, precision):
    report = parity(path, steps=2, precision=precision, optimizer=et.Adam(lr=0.01))
    assert report.ok
    judged = {row.kind for row in report.rows if row.tolerance is not None}
    assert judged == {"forward", "loss", "gradient", "parameter", "state"}
    worst = {kind: report.worst(kind) for kind in ("parameter", "state")}
    assert all(row.error > 0 for row in worst.values())


@pytest.mark.parametrize(
    "optimizer",
    [et.RMSprop(lr=0.01, momentum=0.9, centered=True), et.Lion(lr=1e-3), et.Adagrad(lr=0.05)],
    ids=lambda one: one.name,
)
def test_parity_reads_states_of_short_storage_as_the_optimizer_scales_them(path, optimizer):
    """Moments have a scale and squares are roots; RMSprop's momentum is stored unchanged."""
    report = parity(path, steps=3, precision="fp16", optimizer=optimizer)
    assert report.ok, report.summary()
    assert report.worst("state").error < 4 * 2.0**-10


def _file(path, nodes, arrays, wide):
    graph = helper.make_graph(
        [helper.make_node(op, reads.split(), [made], **attrs) for op, reads, made, attrs in nodes],
        "net",
        [helper.make_tensor_value_info("x", 1, ["n", 6])],
        [helper.make_tensor_value_info("y", 1, ["n", wide])],
        [numpy_helper.from_array(a.astype(np.float32), name) for name, a in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize(
    "inputs, target, said",
    [
        ({"wrong": np.ones((2, 3))}, [0, 1], "input 'x' is missing; found wrong"),
        ({"x": np.ones((2, 3))}, [0, 7], "target: sample 1: value 7; expected a whole number"),
        (np.ones((2, 4)), [0, 1], "input 'x' has shape"),
    ],
)
def test_parity_refuses_given_samples_by_name(tmp_path, inputs, target, said):
    path = export_torch(
        nn.Linear(3, 2), (torch.ones(2, 3),), tmp_path / "m.onnx", input_names=["x"]
    )
    with pytest.raises(DataError, match=said):
        parity(path, steps=1, inputs=inputs, target=np.array(target))
    assert parity(path, steps=1, inputs=np.ones((2, 3)), target=np.array([0, 1])).ok


def test_parity_of_fp16_storage_bears_a_comparison_that_it_decides(tmp_path):
    """x + 1 equals x + 1.00001 if both are stored in 16 bits."""
    weights = np.random.default_rng(0).standard_normal((6, 3))
    nodes = [
        ("Mul", "x w", "h", {}), ("Add", "h a", "p", {}), ("Add", "h b", "q", {}),
        ("Equal", "p q", "e", {}), ("Cast", "e", "f", {"to": 1}), ("MatMul", "f v", "m", {}),
        ("Add", "m h", "y", {}),
    ]  # fmt: skip
    arrays = {"w": 0.1 + 0 * weights[:1, :1], "v": np.abs(weights) @ np.ones((3, 6))}
    arrays |= {"a": np.full(6, 1.0), "b": np.full(6, 1.00001)}
    path = _file(tmp_path / "net.onnx", nodes, arrays, 6)
    report = parity(path, steps=1, loss="mse", precision="fp16")
    (row,) = [row for row in report.rows if row.kind == "loss"]
    assert row.error > 0.1 and row.torch_error > 0.1 and report.ok, report.first


def test_parity_bears_roundings_of_a_gradient_that_cancels(tmp_path):
    """Two equal samples with targets on both sides of the output: the exact gradient is zero."""
    torch.manual_seed(0)
    net = nn.Linear(1, 3, bias=False)
    path = export_torch(net, (torch.ones(2, 1),), tmp_path / "m.onnx", input_names=["x"])
    x, target = np.full((6, 1), 0.7310586, np.float32), np.tile([[9.0], [-9.0]], (3, 3))
    report = parity(path, loss="l1", steps=1, inputs={"x": x}, target=target)
    gradient = report.worst("gradient")
    assert gradient.error > 0 and report.ok, report.summary()


def test_parity_bears_statistics_that_cancellation_decides(tmp_path):
    """Statistics of differences between large numbers, which torch's float32 gets no better."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with torch.no_grad():
        net[0].weight -= net[0].weight.mean(1, keepdim=True)
    path = export_torch(net, (torch.ones(2, 64),), tmp_path / "m.onnx", input_names=["x"])
    x = 1e4 + np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    report = parity(path, steps=1, inputs={"x": x}, target=np.arange(8) % 2)
    rows = [row for row in report.rows if row.kind == "statistic"]
    assert max(row.error for row in rows) > parity_step.STATISTICS_TOLERANCE
    assert all(row.ok for row in rows), report.summary()


@pytest.mark.parametrize("units, ok", [(7, True), (1000, False)])
def test_parity_bears_a_mask_that_rounding_decides(tmp_path, monkeypatch, units, ok):
    """A ReLU 6 units above zero; the engine is off by 7, like a Winograd convolution, or by more.

    Moving torch's weights by one unit never flips the mask.
    """
    net, unit = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)), 2.0**-23
    with torch.no_grad():
        net[0].weight[:], net[0].bias[:] = 1.0, torch.tensor([6 * unit - 1.0, -0.5])
    path = export_torch(net, (torch.ones(1, 1),), tmp_path / "edge.onnx", input_names=["x"])

    def errs(session, inputs, target):
        session.values["0.bias"][0] -= units * unit
        return run_minibatch(session, inputs, target)

    monkeypatch.setattr(parity_step, "run_minibatch", errs)
    given = {"inputs": {"x": np.ones((1, 1), np.float32)}, "target": np.zeros(1, np.int32)}
    report = parity(path, steps=1, **given)
    masked = next(row for row in report.rows if row.name == "0.bias" and row.kind == "gradient")
    assert masked.error > 0.1 and masked.torch_error > 0.1
    assert report.ok is ok, report.summary()


def test_parity_of_fp16_storage_bears_what_a_saturated_tanh_keeps(tmp_path):
    """tanh(3.3) is 0.9973, stored as 0.9971: 1 - y^2 is 8 % more."""
    nodes = [("MatMul", "x w", "h", {}), ("Tanh", "h", "t", {}), ("MatMul", "t v", "y", {})]
    arrays = {"w": np.full((6, 9), 0.55), "v": np.full((9, 3), 0.5)}
    path = _file(tmp_path / "net.onnx", nodes, arrays, 3)
    ones, given = np.ones((8, 6), np.float32), {"steps": 1, "loss": "mse", "precision": "fp16"}
    report = parity(path, inputs={"x": ones}, target=ones[:, :3], **given)
    (row,) = [r for r in report.rows if (r.kind, r.name) == ("gradient", "w")]
    assert row.error > 0.05 and report.ok, report.first


def test_parity_measures_an_update_by_what_it_is_made_of(tmp_path):
    """If an update cancels a weight almost completely, the difference has the roundings of both."""
    path = _file(tmp_path / "net.onnx", [("Mul", "x w", "y", {})], {"w": np.ones((1, 6))}, 6)
    x = np.full((4, 6), 1.1, np.float32)
    _, gradients = et.loss_and_gradients(path, {"x": x}, 0 * x, loss="mse")
    for share in (1 - 1e-5, 1 - 1e-6, 1.0):
        optimizer = et.SGD(lr=share / float(gradients["w"].mean()))
        report = parity(
            path, inputs={"x": x}, target=0 * x, optimizer=optimizer, steps=1, loss="mse"
        )
        assert report.ok, report.first


def test_parity_names_the_first_tensor_that_departs(path, monkeypatch):
    from edgetrain.exporters import reference_ops

    right = reference_ops.RULES["bn_apply"]

    def wrong(node, inputs, outs):
        return 1.01 * right(node, inputs, outs)

    monkeypatch.setitem(reference_ops.RULES, "bn_apply", wrong)
    report = parity(path, steps=1)
    assert not report.ok and report.first.kind == "loss"
    assert "first loss 'loss' at step 1" in report.summary()
    gradients = [row.name for row in report.rows if row.kind == "gradient"]
    assert gradients[:2] == ["head.weight", "head.bias"]  # as backward makes them
    text = json.dumps(report.to_json(), allow_nan=False)
    assert json.loads(text)["first_departure"]["name"] == "loss"


class _OtherSlope(torch.autograd.Function):
    """GELU by erf, with the slope of GELU by tanh."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = nn.functional.gelu(x, approximate="tanh")
        return torch.autograd.grad(y, x, gradient)[0]


def test_parity_departs_where_only_the_slope_of_gelu_is_approximate(tmp_path, monkeypatch):
    from edgetrain.exporters import reference_ops

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    export_torch(net, (torch.randn(2, 6),), tmp_path / "net.onnx")
    assert parity(tmp_path / "net.onnx", steps=1).ok
    others = {**reference_ops.UNARY, "gelu": lambda x, a, b: _OtherSlope.apply(x)}
    monkeypatch.setattr(reference_ops, "UNARY", others)
    report = parity(tmp_path / "net.onnx", steps=1)
    assert report.first.kind == "gradient" and report.first.name == "0.weight"


def test_report_with_nan_departs_and_stays_json():
    rows = (Row(1, "loss", "loss", float("nan"), 1e-5), Row(1, "gradient", "w", 1.0, None))
    report = ParityReport({"model": "m"}, rows)
    assert not report.ok and report.first == rows[0]
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["tensors"][0]["error"] is None


def test_report_prints_worst_and_departing_tensors(path, capsys):
    report = parity(path, steps=1)
    report.print(Console(width=120))
    text = capsys.readouterr().out
    assert "against torch" in text and "all within tolerance" in text and "statistic" in text


def test_parity_refuses_what_it_cannot_do(path):
    with pytest.raises(UsageError, match="precision 'int4'"):
        parity(path, precision="int4")
    with pytest.raises(UsageError, match="steps 0: expected"):
        parity(path, steps=0)
    with pytest.raises(UsageError, match="both inputs and target, or neither"):
        parity(path, inputs={"x": np.zeros((8, 6))})


class _OneHot(nn.Module):
    """Booleans become floats."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, ids):
        return self.layer((ids[:, None] == torch.arange(5)[None]).float())


def test_parity_takes_truth_values_as_floats(tmp_path):
    torch.manual_seed(0)
    example = torch.tensor([0, 4])
    path = export_torch(_OneHot(), (example,), tmp_path / "hot.onnx", input_names=["ids"])
    report = parity(path, steps=1, minibatch=2)
    assert report.ok, report.first


def test_samples_lie_within_the_rows_that_they_look_up():
    builder = Builder()
    builder.value("ids", (64,), "i32", "input")
    builder.value("table", (3, 2), "f32", "parameter")
    builder.value("y", (64, 2))
    builder.node("gather", ["table", "ids"], ["y"], {"axis": 0})
    graph = builder.graph(["ids"], ["y"])
    inputs, target = sample_batch(graph, "y", et.Loss(), np.random.default_rng(0))
    assert set(inputs["ids"]) == {0, 1, 2} and set(target) == {0, 1}
    assert gradient_order(graph) == ["table"]


STORED = [
    {"model_memory": "int8"},
    {"weights": "int8", "state": "int8", "grads": "fp32"},
    {"precision": "fp16", "model_memory": "int8"},
    {"precision": "fp16", "weights": "fp16", "state": "int8", "grads": "int8"},
    {"model_memory": "int8", "density": 0.5},
    {"saved": "int8"},
    {"precision": "fp16", "model_memory": "int8", "saved": "int8", "density": 0.5},
]


@pytest.mark.parametrize("optimizer", [et.SGD(lr=0.1, momentum=0.9), et.AdamW(lr=1e-3)])
@pytest.mark.parametrize("stored", slow_between(STORED, 2))
def test_parity_holds_with_model_memory_in_blocks(wide, optimizer, stored):
    """The reference uses the rounded weights, so an fp32 loss meets the tolerance of fp32."""
    report = parity(wide, steps=2, optimizer=optimizer, **stored)
    assert report.ok, report.first
    if "precision" not in stored:
        assert all(row.tolerance == 1e-5 for row in report.rows if row.kind == "loss")
    if stored.get("grads") == "fp32":
        assert all(row.error < 5e-3 for row in report.rows if row.kind == "gradient")


def test_parity_of_saved_roundings_bears_a_bias_whose_gradient_is_none(tmp_path):
    """A bias before batch-norm: its rounding errors are relative to the whole gradient's norm."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
    net = nn.Sequential(*layers, nn.Linear(8 * 36, 5))
    export_torch(net, (torch.randn(2, 2, 6, 6),), tmp_path / "conv.onnx")
    report = parity(tmp_path / "conv.onnx", steps=2, minibatch=4, saved="int8")
    assert report.ok, report.first


def test_parity_refuses_truncated_gradients(path):
    with pytest.raises(UsageError, match="parity: bptt 5: .* Leave bptt out"):
        parity(path, bptt=5)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Weights of several blocks, including a table and sparse layers."""
    torch.manual_seed(0)
    table, body, head = nn.Embedding(50, 20), nn.Linear(20, 48), nn.Linear(48, 3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.body, self.middle = table, body, nn.Linear(48, 48)
            self.head = head

        def forward(self, tokens):
            x = torch.tanh(self.body(self.table(tokens).mean(1)))
            return self.head(torch.tanh(self.middle(x)))

    out = tmp_path_factory.mktemp("wide") / "net.onnx"
    example = (torch.zeros(2, 4, dtype=torch.int64),)
    return export_torch(Net(), example, out, input_names=["tokens"])


WRONG = {
    "untrained": ({"freeze": ("body.weight",)}, ("gradient", "body.weight", 1)),
    "decay": ({"optimizer": et.SGD(lr=0.1, weight_decay=0.2)}, ("parameter", "body.weight", 1)),
    "group": (
        {"groups": (et.Group("head.*", lr=0.5),)}, ("parameter", "head.weight", 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_program_that_does_something_else_than_asked_departs(path, case, monkeypatch):
    """As if compiling lost an option: the Program's own record agrees with what it does."""
    wrong, expected = WRONG[case]
    options = {"steps": 1, "optimizer": et.SGD(lr=0.1)}
    assert parity(path, **options).ok
    made = parity_module.gradient_program

    def other(*given, **named):
        return made(*given, **{**named, **wrong})

    monkeypatch.setattr(parity_module, "gradient_program", other)
    report = parity(path, **options)
    bad = {(row.kind, row.name, row.step) for row in report.rows if not row.ok}
    assert not report.ok and expected in bad
