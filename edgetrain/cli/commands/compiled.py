"""What the commands make of a model."""

from typing import NamedTuple

from ...compiler import Options, Plan
from ...ops.model import Model
from ...program import Program


class Compiled(NamedTuple):
    """A Program and where it comes from.

    Attributes:
      front: the plans that were found, `plan` among them.
      tried: microbatches.
      seconds: that planning took.
      options: that the plan was made with; `asked`: before rungs that do not help were left out.
    """

    program: Program
    plan: Plan
    front: list[Plan]
    tried: list[int]
    seconds: float
    model: Model
    options: Options
    asked: Options
