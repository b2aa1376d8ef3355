"""Op rows: the kernel call they make, with values from shapes, attributes and defaults."""

from typing import ClassVar

import pytest

from edgetrain.errors import UnsupportedOpError
from edgetrain.ir import Graph, Node, Value
from edgetrain.losses import LOSSES, Loss
from edgetrain.ops.registry import Adding, Op, op

SHAPES = {"x": (2, 3, 4), "y": (2, 3, 4), "dy": (2, 3, 4), "dx": (2, 3, 4)}


class Kernelless(Loss):
    """A loss before its kernel is named; it has no options of its own."""

    name: ClassVar[str] = "none"


del LOSSES["none"]


def graph(role: str = "gradient") -> Graph:
    values = {name: Value(name, shape, role=role) for name, shape in SHAPES.items()}
    return Graph((), values, (), ())


def test_row_names_operands_and_leaves_out_what_the_kernel_does_not_take() -> None:
    row = Op("row", "- y dy -> dx", lambda v, _: {"n": v["x"].size}, kernel="relu_mask_bwd")
    node = Node("node", "row", ("x", "", "dy", "sum"), ("dx",), {"acc": 1})
    call = row.call(node, graph())
    assert call.args == {"y": None, "dy": "dy", "dx": "dx", "n": 24, "acc": 1}


def test_row_whose_kernel_needs_an_attribute_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError, match="axis"):
        op("softmax").lower(Node("node", "softmax", ("x",), ("y",)), graph())
    with pytest.raises(KeyError, match="size"):
        op("lrn").lower(Node("node", "lrn", ("x",), ("y",)), graph())


@pytest.mark.parametrize(("role", "rounded"), [("gradient", 0), ("accumulator", 1)])
def test_row_of_an_accumulator_is_rounded_stochastically(role: str, rounded: int) -> None:
    attrs = {"axes": (2,), "mean": True, "acc": 1}
    node = Node("node", "reduce_spread", ("dy",), ("dx",), attrs)
    (call,) = op("reduce_spread").lower(node, graph(role))
    assert (call.args["sr"], call.args["ctl"]) == (rounded, "ctl" if rounded else None)


@pytest.mark.parametrize(("acc", "kernels"), [(0, ["fill", "relu"]), (1, ["relu"])])
def test_adding_row_clears_what_it_writes_anew(acc: int, kernels: list[str]) -> None:
    row = Adding("row", "x -> y", lambda v, _: {"n": 24, "a": 0, "b": 0}, kernel="un_relu")
    calls = row.lower(Node("node", "row", ("x",), ("y",), {"acc": acc}), graph())
    assert [call.kernel.removeprefix("un_") for call in calls] == kernels


@pytest.mark.parametrize(
    ("cost", "expected"), [(None, 24), (3, 72), (lambda v, attrs: v["x"].shape[2], 4)]
)
def test_row_costs_what_it_says(cost, expected: int) -> None:
    row = Op("row", "dy -> dx", cost=cost)
    assert row.flops(Node("node", "row", ("dy",), ("dx",)), graph()) == expected


def test_what_a_row_lacks_is_named_with_its_place() -> None:
    with pytest.raises(UnsupportedOpError, match=r"op 'softmx': not registered.* ops/.*softmax"):
        op("softmx")
    row = Op("row", "x -> y", kernel="misspelt")
    with pytest.raises(UnsupportedOpError, match=r"kernel 'misspelt': not available.* kernels/"):
        row.call(Node("node", "row", ("x",), ("y",)), graph())
    with pytest.raises(NotImplementedError, match=r"loss none: no `kernel`.* kernels/losses/"):
        Kernelless().call((2, 3))
