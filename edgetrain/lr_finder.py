"""`et.find_lr`: a learning-rate range test on a Trainer, a Program or a model."""

from os import PathLike
from pathlib import Path
from typing import Any

from .api import compile
from .errors import UsageError
from .ops.model import Model
from .program import Program
from .runtime.training.rate_finder import END_LR, START_LR, STEPS, STOP, LearningRates, find_rates
from .runtime.training.trainer import Trainer
from .screen.levels import levels
from .units.public import public


@public
def find_lr(
    target: Trainer | Program | Model | str | PathLike[str],
    data: Any = None,
    *,
    start_lr: float = START_LR,
    end_lr: float = END_LR,
    steps: int = STEPS,
    stop: float = STOP,
    verbose: bool | None = None,
    **options: Any,
) -> LearningRates:
    """Find the learning rate at which the loss falls fastest, by increasing the rate step by step.

    The rate grows exponentially, and the test ends when the loss diverges. It takes the memory of
    training plus a copy of the state. Afterwards, a Trainer's state, step, rate and history are
    bit-identical to before, but a shuffling DataLoader has drawn random numbers.

    Args:
      target: a Trainer; a Program or its path; or a model, which is compiled with `options`.
      data: as for `Trainer`; a generator is refused. None: the Trainer's.
      start_lr, end_lr: first and last rate.
      steps: number of steps between them.
      stop: end when the smoothed loss is this many times the smallest so far.
      verbose: as for `compile`.
      options: as for `compile`, such as budget, loss, optimizer and minibatch.
    Returns:
      `.lr`, the suggestion; `.rates` and `.losses`; `.plot()`.
    Raises:
      BudgetError, ModelError, UsageError: as for `compile`, or there is no data.
    """
    if not isinstance(target, Trainer) and data is None:
        raise UsageError("find_lr: data is missing. Pass it: find_lr(model, data).")
    path = isinstance(target, str | PathLike)
    model = isinstance(target, Model)
    model |= isinstance(target, str | PathLike) and Path(target).suffix == ".onnx"
    if options and not model:
        raise UsageError(
            f"find_lr: {next(iter(options))}: options are for a model, which is compiled. Leave "
            f"them out for a {'Program' if path else type(target).__name__}."
        )
    if model:
        target = compile(target, verbose=verbose, **options)  # type: ignore[arg-type]
    with _trying(verbose):
        if isinstance(target, Trainer):
            return find_rates(
                target, data, start_lr=start_lr, end_lr=end_lr, steps=steps, stop=stop
            )
        with Trainer(target, data, verbose=False) as trainer:  # type: ignore[arg-type]
            return find_rates(trainer, start_lr=start_lr, end_lr=end_lr, steps=steps, stop=stop)


def _trying(verbose: bool | None) -> Any:
    """Show a message within the block, if it takes long."""
    from .screen.python import waiting

    return waiting(levels(verbose).progress, "trying learning rates")
