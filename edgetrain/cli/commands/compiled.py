"""A compiled model, as used by the commands."""

from typing import NamedTuple

from ...compiler import Plan
from ...compiler.compilation import Compilation
from ...program import Program


class Compiled(NamedTuple):
    """A Program and the plan it was made from.

    Attributes:
      front: the available plans, including `plan`.
      tried: the microbatches that were tried.
      seconds: planning time.
      compilation: as requested; the plan's own lacks `--allow` options without benefit.
    """

    program: Program
    plan: Plan
    front: list[Plan]
    tried: list[int]
    seconds: float
    compilation: Compilation
