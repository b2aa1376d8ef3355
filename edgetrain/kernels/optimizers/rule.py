"""An optimizer as its arithmetic: how it moves one weight.

An optimizer says what becomes of one weight; declare.py registers its kernels, and frame.py has all
that optimizers share: spans and threads, skipped updates, formats and rounding, zeroed gradients.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .states import State


class Arithmetic(NamedTuple):
    """Functions that kernels are made of, on numbers or vectors of them (language/number.py).

    Attributes:
      per_step: (args, rate) -> what one update multiplies by, for all weights. args has the
        operands, such as args.ctl and the numbers that were declared; rate is the learning rate in
        float64.
      update: (args, by, w, g, states) -> (w, states): one weight, by its gradient, a mean over
        targets. by is what `per_step` gave, or `settle`.
      terms: (args, by, w, g, states) -> float64 numbers that are summed over the whole weight
        before any of it moves; None: no sums.
      settle: (args, by, sums) -> the `by` of `update`, from those sums.
    """

    per_step: Callable
    update: Callable
    terms: Callable | None = None
    settle: Callable | None = None


class Rule(NamedTuple):
    """What `declare` is told of an optimizer.

    Attributes:
      name: of its kernel.
      states: in the order of the kernel's operands, four at most.
      numbers: further operands, as a declaration has them: `b1:f wd:f nesterov`.
      arithmetic: called when a kernel is compiled, so nothing is imported before.
      sums: number of values that `terms` returns.
      wide: also with vectors, if the processor has them and formats are fp32 or fp16.
      module: that declares it.
    """

    name: str
    states: Sequence[State]
    numbers: str
    arithmetic: Callable[[], Arithmetic]
    sums: int
    wide: bool
    module: str
