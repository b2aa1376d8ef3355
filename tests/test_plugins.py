"""Everything registered has a test case: losses, optimizers, schedules, rewirings."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from edgetrain import ops
from edgetrain.cli.parser.plugins import owners
from edgetrain.formats import FORMATS, FP16, PRECISIONS
from edgetrain.kernels.elementwise import formulas
from edgetrain.kernels.elementwise.rows import table
from edgetrain.kernels.optimizers.states import FIRST, MOMENT, SQUARE, State
from edgetrain.losses import LOSSES, Loss
from edgetrain.ops import registry
from edgetrain.ops.onnx_ops import onnx_op, onnx_rule
from edgetrain.optim import OPTIMIZERS, SCHEDULES, Optimizer, Schedule
from edgetrain.sparse import REWIRINGS
from tests.kernels.step_loop.test_counters import METHODS
from tests.losses.cases import LOSS_CASES
from tests.optim.cases import OPTIMIZER_CASES, SCHEDULE_CASES
from tests.twins import FACTORS


@pytest.mark.parametrize(
    "registered, cases",
    [
        (LOSSES, [loss for loss, _ in LOSS_CASES.values()]),
        (OPTIMIZERS, OPTIMIZER_CASES.values()),
        (SCHEDULES, SCHEDULE_CASES.values()),
        (REWIRINGS, METHODS),
    ],
    ids=["losses", "optimizers", "schedules", "rewirings"],
)
def test_everything_registered_has_a_case(registered, cases) -> None:
    assert {case.name for case in cases} == registered.keys()
    assert all(kind.name == name for name, kind in registered.items())


@pytest.mark.parametrize(
    ("option", "registered"),
    [("--loss", LOSSES), ("--optimizer", OPTIMIZERS), ("--lr-schedule", SCHEDULES)],
)
def test_everything_registered_is_in_the_table_of_choices(option, registered) -> None:
    page = (Path(__file__).parents[1] / "docs" / "budgets.md").read_text().splitlines()
    (row,) = (line for line in page if line.startswith(f"| `{option}` | `"))
    assert {*re.findall(r"`(\w+)`", row.split("|")[2])} == registered.keys()


def test_every_precision_is_in_the_page_of_budgets() -> None:
    page = (Path(__file__).parents[1] / "docs" / "budgets.md").read_text()
    default, *others = PRECISIONS
    assert [name for name in others if f"`--precision {name}`" not in page] == []


def test_a_flag_belongs_to_one_family() -> None:
    """Otherwise argparse refuses a command's second option of that name."""
    flags = [flag for family in (Loss, Optimizer, Schedule) for flag in owners(family)]
    shared = {flag for flag in flags if flags.count(flag) > 1}
    assert not shared, f"two families have --{min(shared)}: rename a field, or give it a flag"


def test_every_schedule_has_its_naive_twin() -> None:
    assert FACTORS.keys() == {name for name, kind in SCHEDULES.items() if not kind.kernel}


def test_every_file_of_ops_registers_itself() -> None:
    """A family in a file of its own is not in any list."""
    folder = Path(ops.__file__).parent
    files = {f"edgetrain.ops.{path.stem}" for path in folder.glob("*.py")}
    assert files - {"edgetrain.ops.__init__"} <= sys.modules.keys()


def _states() -> type[Optimizer]:
    class Twins(Optimizer):
        states: ClassVar = (State("one", "m", MOMENT, FIRST), State("two", "v", SQUARE, FIRST))

    return Twins


def _second() -> type[Loss]:
    class Mse(Loss):
        name: ClassVar[str] = "mse"

    return Mse


RELU = formulas.ROWS["relu"]
SAME = {
    "number": (lambda: replace(FP16, name="new", code="", precision=""), "f16 .* number"),
    "name": (lambda: replace(FP16, number=99, code="", precision=""), "f16 .* name"),
    "precision": (lambda: replace(FP16, name="new", number=99, code=""), "f16 .* name, fp16"),
    "memory": (lambda: replace(FP16, name="new", number=99, code="", precision="int8"), "int8"),
    "op": (lambda: registry.register(registry.op("relu")), "op relu"),
    "onnx": (lambda: onnx_rule("Relu")(onnx_op("Relu").rule), "ONNX op Relu"),
    "function": (lambda: table("name", (RELU, RELU)), "relu and relu .* name"),
    "act": (lambda: table("act", (RELU, replace(RELU, name="b"))), "relu and b .* act, 1"),
    "stream": (_states, "two states have the same stream"),
    "loss": (_second, r"losses\.mse\.MSE and .*\.Mse have this name"),
}


@pytest.mark.parametrize("same", SAME)
def test_a_second_one_of_the_same_is_refused(same) -> None:
    add, words = SAME[same]
    with pytest.raises(ValueError, match=words):
        add()
    assert FORMATS["f16"] is FP16 and LOSSES["mse"].__module__ == "edgetrain.losses.mse"
