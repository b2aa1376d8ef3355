"""An optimizer as arithmetic: how it updates one weight.

An optimizer defines the update of one weight; declare.py registers its kernels, and frame.py has
what all optimizers share: spans and threads, skipped updates, formats and rounding, zeroed
gradients.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .states import State


class Arithmetic(NamedTuple):
    """Functions that kernels are built from, on numbers or vectors of them (language/number.py).

    Attributes:
      per_step: (args, rate) -> factors of one update, shared by all weights. args has the
        operands, such as args.ctl and the declared numbers; rate is the learning rate in
        float64.
      update: (args, by, w, g, states) -> (w, states): update one weight; g is its gradient, a mean
        over targets. by is the result of `per_step`, or of `settle`.
      terms: (args, by, w, g, states) -> float64 numbers that are summed over the whole weight
        before any of it changes; None: no sums.
      settle: (args, by, sums) -> the `by` of `update`, from those sums.
    """

    per_step: Callable
    update: Callable
    terms: Callable | None = None
    settle: Callable | None = None


class Rule(NamedTuple):
    """An optimizer, as `declare` takes it.

    Attributes:
      name: of its kernel.
      states: in the order of the kernel's operands, four at most.
      numbers: further operands, as in a declaration: `b1:f wd:f nesterov`.
      arithmetic: called when a kernel is compiled, so nothing is imported earlier.
      sums: number of values that `terms` returns.
      wide: also use vectors, if the processor has them and formats are fp32 or fp16.
      module: that declares it.
    """

    name: str
    states: Sequence[State]
    numbers: str
    arithmetic: Callable[[], Arithmetic]
    sums: int
    wide: bool
    module: str
