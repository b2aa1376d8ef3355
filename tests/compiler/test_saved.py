"""Saved values in 8 bits: the ops that read them in backward say which may be packed."""

import numpy as np
import pytest
from onnx import defs

from edgetrain.compiler.passes.saved import check_saved
from edgetrain.errors import UsageError
from edgetrain.kernels.elementwise.formulas import ROWS
from edgetrain.ops.registry import op
from edgetrain.ops.saved import PACK, PACK_SIDES
from edgetrain.ops.sides import sides_of

from .nets import Net, graphs

SCHEMAS = defs.get_all_schemas_with_history()
pytestmark = pytest.mark.usefixtures("quick_planner")
# For an activation alone: its input or output, between two products that do not read it.


def _known(op_type: str) -> bool:
    """Whether opset 17, which these nets use, has the op."""
    return any(s.name == op_type and s.since_version <= 17 for s in SCHEMAS)


OPS = {row.onnx: row for row in ROWS.values() if row.onnx and row.vjp and row.saved}
ONNX = {name: row for name, row in OPS.items() if "." in name or _known(name)}


def _activation(op_type: str, **attrs: float):
    """x W1 -> act -> times 2: only the activation's backward reads its input or output."""
    net = Net(64)
    x = net.add("MatMul", ["x", net.weight("w1", 64, 128)], "in")
    domain, _, name = op_type.rpartition(".")
    y = net.add(name, [x], "act", domain=domain, **attrs)
    net.constants["two"] = np.float32(2)
    scaled = net.add("Mul", [y, "two"], "scaled")
    return net.model(scaled)


@pytest.mark.parametrize("op_type", ONNX)
def test_what_an_activation_with_a_bounded_slope_reads_is_packed(op_type):
    row = ONNX[op_type]
    train = graphs(_activation(op_type), loss="mse", saved="int8").train
    packs = [node for node in train.nodes if node.op in (PACK.name, PACK_SIDES.name)]
    masked = any(node.op == "relu_mask" for node in train.nodes)  # one bit per element is smaller
    assert bool(packs) == (row.bounded and not masked)
    kinks = row.kinks(row.a[1], row.b[1])
    for node in packs:
        assert (node.op == PACK_SIDES.name) == bool(kinks)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("op_type", "alpha"), [("Celu", 1.0), ("HardSigmoid", 0.2)])
def test_a_slope_is_computed_from_roundings_only_for_signs_it_is_bounded_for(op_type, alpha, sign):
    train = graphs(_activation(op_type, alpha=sign * alpha), loss="mse", saved="int8").train
    packed = any(node.op in (PACK.name, PACK_SIDES.name) for node in train.nodes)
    assert packed == (sign > 0)


def test_kinks_may_be_in_any_order():
    row = ROWS["hardsigmoid"]
    for a in (0.2, -0.2):
        sides = sides_of(row, a, 0.5)
        assert sides is not None
        assert (sides.lo, sides.hi) == (-2.5, 2.5)


def test_an_op_is_asked_whether_it_reads_roundings(monkeypatch):
    model = _activation("Celu")
    monkeypatch.setattr(op("unary_bwd"), "may_round", lambda node: False)
    train = graphs(model, loss="mse", saved="int8").train
    assert not any(node.op in (PACK.name, PACK_SIDES.name) for node in train.nodes)
    with pytest.raises(UsageError, match="64 elements"):
        check_saved([train], "int8")
