"""A compiled model, as the commands use it."""

from typing import NamedTuple

from ...compiler import Options, Plan
from ...ops.model import Model
from ...program import Program


class Compiled(NamedTuple):
    """A Program and the plan it was made from.

    Attributes:
      front: the available plans, `plan` included.
      tried: the microbatches that were tried.
      seconds: planning time.
      options: the options of the plan.
      asked: the options given, before `--allow` options without benefit were dropped.
    """

    program: Program
    plan: Plan
    front: list[Plan]
    tried: list[int]
    seconds: float
    model: Model
    options: Options
    asked: Options
