"""Everything registered has a test case: losses, optimizers, schedules, rewirings."""

import re
import sys
from pathlib import Path

import pytest

from edgetrain import ops
from edgetrain.losses import LOSSES
from edgetrain.optim import OPTIMIZERS, SCHEDULES
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


def test_every_schedule_has_its_naive_twin() -> None:
    assert FACTORS.keys() == {name for name, kind in SCHEDULES.items() if not kind.kernel}


def test_every_file_of_ops_registers_itself() -> None:
    """A family in a file of its own is not in any list."""
    folder = Path(ops.__file__).parent
    files = {f"edgetrain.ops.{path.stem}" for path in folder.glob("*.py")}
    assert files - {"edgetrain.ops.__init__"} <= sys.modules.keys()
