"""A compiled model, as the commands use it."""

from typing import NamedTuple

from ...compiler import Plan
from ...compiler.compilation import Compilation
from ...program import Program


class Compiled(NamedTuple):
    """A Program and the plan it was made from.

    Attributes:
      front: the available plans, `plan` included.
      tried: the microbatches that were tried.
      seconds: planning time.
      compilation: as it was requested; that of the plan has no `--allow` options without benefit.
    """

    program: Program
    plan: Plan
    front: list[Plan]
    tried: list[int]
    seconds: float
    compilation: Compilation
