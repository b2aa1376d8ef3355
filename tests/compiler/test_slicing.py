"""Wide maps of a frozen forward pass in channel slices: the same numbers in fewer bytes."""

import numpy as np
import pytest

from edgetrain.api import gradient_program, gradients
from edgetrain.compiler.passes import slicing
from edgetrain.runtime.microbatch import run_microbatch
from edgetrain.runtime.session import Session

from .nets import Net, conv_bn_relu_conv, graphs

pytestmark = pytest.mark.usefixtures("quick_planner")


def _inverted(channels: int = 20, stride: int = 1, group: int | None = None, twice: bool = False):
    """Norm, expansion, depthwise convolution, projection, classifier."""
    net, group = Net(4, 9, 9), group or channels
    x = net.norm(net.conv("x", "stem", 4, 4), "norm0", 4)
    net.weights["bias"] = net.rng.standard_normal(channels).astype(np.float32)
    wide = net.add("Conv", [x, net.weight("expand.w", channels, 4, 1, 1), "bias"], "wide")
    net.constants |= {"low": np.float32(0), "high": np.float32(6)}
    wide = net.add("Clip", [net.norm(wide, "norm1", channels), "low", "high"], "clipped")
    weight = net.weight("depthwise.w", channels, channels // group, 3, 3)
    attrs = {"group": group, "pads": [1] * 4, "strides": [stride] * 2}
    deep = net.add("Conv", [wide, weight], "deep", **attrs)
    deep = net.add("Relu", [net.norm(deep, "norm2", channels)], "relu")
    out = net.conv(deep, "project", 4, channels, 1)
    if twice:
        out = net.add("Add", [out, net.add("ReduceMean", ["wide"], "mean", axes=[1])], "both")
    return net.model(net.head(out, 4))


def _ops(graph) -> list[str]:
    return [node.op for node in graph.nodes]


def _trained(model, precision: str, freeze_bn: bool):
    """Return (all results of a microbatch, predictions included, arena bytes)."""
    rng = np.random.default_rng(1)
    x = {"x": rng.standard_normal((3, 4, 9, 9)).astype(np.float32)}
    target = np.array([0, 2, 1])
    program = gradient_program(
        model, x, target, loss="cross_entropy", train=["fc.*"], precision=precision,
        freeze_bn=freeze_bn,
    )  # fmt: skip
    session = Session(program)
    loss = run_microbatch(session, x, target)
    found = {"loss": loss, **gradients(session)}
    session.executor.run("update")
    found |= {n: session.values[n].copy() for n in session.values if n.startswith("norm")}
    for slot in program.inputs["eval"]:
        session.arena.view(slot)[...] = x[slot.name]
    session.executor.run("eval")
    found["predictions"] = session.arena.view(program.outputs["eval"][0]).copy()
    session.close()
    return found, program.account["arena_nbytes"]


@pytest.mark.parametrize(
    ("channels", "stride", "precision", "held"),
    [(20, 1, "fp32", False), (24, 2, "fp32", True), (24, 2, "fp32", False), (20, 2, "fp16", False)],
)
def test_slices_leave_the_numbers_of_the_whole(monkeypatch, channels, stride, precision, held):
    model = _inverted(channels, stride)
    cut, cut_nbytes = _trained(model, precision, held)
    monkeypatch.setattr(slicing, "choose", lambda graph: {})
    whole, whole_nbytes = _trained(model, precision, held)
    assert cut.keys() == whole.keys() and cut_nbytes < whole_nbytes
    for name, array in whole.items():
        # With few output channels another variant of the convolution may run, which sums in another
        # order: fp32 rounding errors, or fp16 ones if a map is stored.
        tolerance = 1e-5 if precision == "fp32" else 2e-3
        np.testing.assert_allclose(cut[name], array, tolerance, tolerance, err_msg=name)


def test_training_and_evaluation_take_the_same_slices():
    found = graphs(_inverted(), train=["fc.*"])
    for graph in (found.train, found.evaluate):
        (node,) = [n for n in graph.nodes if n.op == "conv_sliced"]
        assert graph.values[node.outputs[1]].shape == (2, slicing.LEAST, 9, 9)
        assert "wide" not in graph.values


@pytest.mark.parametrize("train", [(), ["depthwise.w", "fc.*"], ["norm1.*"], ["expand.w"]])
def test_a_map_that_backward_reads_is_left_whole(train):
    assert "conv_sliced" not in _ops(graphs(_inverted(), train=train).train)


@pytest.mark.parametrize(
    "model",
    [_inverted(group=4), _inverted(twice=True), conv_bn_relu_conv()],
    ids=["grouped", "read twice", "dense"],
)
def test_a_map_that_others_need_whole_is_left_whole(model):
    assert "conv_sliced" not in _ops(graphs(model, train=["fc.*"]).train)


def test_a_map_that_does_not_set_the_peak_is_left_whole():
    net = Net(64, 12, 12)  # the input is larger than everything after it
    x = net.conv("x", "stem", 2, 64)
    wide = net.norm(net.conv(x, "expand", 16, 2, 1), "norm1", 16)
    weight = net.weight("depthwise.w", 16, 1, 3, 3)
    net.add("Conv", [wide, weight], "deep", group=16, pads=[1] * 4)
    train = graphs(net.model(net.head("deep", 16)), train=["fc.*"]).train
    assert "conv_sliced" not in _ops(train)
