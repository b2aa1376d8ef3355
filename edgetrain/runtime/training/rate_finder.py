"""A learning-rate range test: the loss while the learning rate grows from step to step.

Leslie Smith, "Cyclical learning rates for training neural networks", 2017, section 3.3; smoothing,
stop and suggestion as in fastai and PyTorch Lightning.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError, Interrupted, RunError, UsageError
from ...history.shown import optional_package
from ...optim.schedules import Constant
from ...units import finite_number
from ...units.options import typed
from ...units.wording import counted
from ..run.position import EndOfPass
from .signals import StopRequests

if TYPE_CHECKING:
    from .epochs import Passes
    from .trainer import Trainer

START_LR, END_LR, STEPS, STOP = 1e-7, 10.0, 100, 4.0
LEAST_STEPS = 10
_KEPT = 0.98  # weight of the previous average


class LearningRates:
    """The result of `find_lr`.

    Attributes:
      rates: learning rates, one per step.
      losses: smoothed loss of each step.
      raw_losses: loss of each step's minibatch.
      diverged: the loss became too large, or not finite, before the last rate.
    """

    def __init__(
        self, rates: list[float], raw_losses: list[float], diverged: bool, steps: int
    ) -> None:
        self.rates, self.raw_losses, self.diverged = rates, raw_losses, diverged
        self.losses = smoothed(raw_losses)
        self._skipped = steps // 10  # too few losses to average

    @property
    def lr(self) -> float:
        """The suggested rate, at which the smoothed loss falls fastest.

        Raises:
          RunError: the loss never falls, or diverged at once.
        """
        index = self._steepest()
        if index is None:
            tried = f"{self.rates[0]:.2g} to {self.rates[-1]:.2g}" if self.rates else "none"
            if self.diverged and len(self.rates) <= self._skipped + 3:
                raise RunError(
                    f"find_lr: the loss diverged after {counted(len(self.rates), 'step')}, rates "
                    f"{tried}; expected it to fall first. Lower start_lr, or check the data."
                )
            raise RunError(
                f"find_lr: the loss never fell, rates {tried}, {counted(len(self.rates), 'step')}. "
                "Raise end_lr or steps, or look at .plot()."
            )
        return self.rates[index]

    def _steepest(self) -> int | None:
        """The step at which the smoothed loss falls fastest over the logarithm of the rate."""
        part = np.array(self.losses[self._skipped : -1])
        if len(part) < 2:
            return None
        slopes = np.gradient(part)
        best = int(slopes.argmin())
        return self._skipped + best if slopes[best] < 0 else None

    def __repr__(self) -> str:
        index = self._steepest()
        tried = f"{self.rates[0]:.2g} to {self.rates[-1]:.2g}" if self.rates else "none"
        ended = ", diverged" if self.diverged else ""
        lr = f"lr {self.rates[index]:.3g}" if index is not None else "no suggestion"
        return f"LearningRates({lr}; {counted(len(self.rates), 'step')}, rates {tried}{ended})"

    def plot(self, axes: Any = None) -> Any:
        """Plot the loss over the rate with matplotlib, and mark the suggestion.

        Args:
          axes: matplotlib axes; None: a new figure.
        Returns:
          The axes.
        Raises:
          UsageError: matplotlib is not installed.
        """
        if axes is None:
            axes = optional_package("matplotlib.pyplot").subplots()[1]
        axes.plot(self.rates, self.raw_losses, alpha=0.3, label="loss")
        axes.plot(self.rates, self.losses, label="smoothed")
        index = self._steepest()
        if index is not None:
            label = f"lr {self.rates[index]:.3g}"
            axes.plot([self.rates[index]], [self.losses[index]], "o", label=label)
        axes.set_xscale("log")
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss")
        axes.legend()
        return axes


def smoothed(losses: list[float]) -> list[float]:
    """Exponential moving averages, corrected for starting at 0."""
    result, mean = [], 0.0
    for k, loss in enumerate(losses, 1):
        mean = _KEPT * mean + (1 - _KEPT) * loss
        result.append(mean / (1 - _KEPT**k))
    return result


def check_range(start_lr: float, end_lr: float, steps: int, stop: float = STOP) -> None:
    """Check the arguments of `find_rates`.

    Raises:
      UsageError: one is out of range.
    """
    least = finite_number("find_lr: start_lr", start_lr, least=0)
    most = finite_number("find_lr: end_lr", end_lr, least=0)
    if not 0 < least < most:
        raise UsageError(
            f"find_lr: start_lr {least:g}, end_lr {most:g}: expected 0 < start_lr < end_lr."
        )
    if typed("find_lr: steps", steps, (int,)) < LEAST_STEPS:
        raise UsageError(f"find_lr: steps {steps}: expected at least {LEAST_STEPS}.")
    if finite_number("find_lr: stop", stop) <= 1:
        raise UsageError(f"find_lr: stop {stop:g}: expected more than 1.")


def find_rates(
    trainer: "Trainer",
    data: Any = None,
    *,
    start_lr: float = START_LR,
    end_lr: float = END_LR,
    steps: int = STEPS,
    stop: float = STOP,
) -> LearningRates:
    """Run a range test on a Trainer; afterwards its state is bit-identical to before.

    No events, callbacks or checkpoints. A copy of the state is kept outside the arena.

    Args:
      data: as for `Trainer.fit`; a generator is refused.
      start_lr, end_lr, steps, stop: as in `find_lr`.
    Raises:
      UsageError: a wrong argument, or no data that can be read again.
      Interrupted: Ctrl-C; the state is restored first.
    """
    check_range(start_lr, end_lr, steps, stop)
    trainer.session.executor.check_process()
    passes = trainer.passes_over(data, "find_lr")
    if not passes.again:
        raise UsageError(
            "find_lr: a generator can't restart, so training would miss its batches. Pass a list, "
            "a DataLoader, or a function that returns the generator."
        )
    rates, losses, diverged = [], [], False
    stopped = StopRequests()
    with trainer.rehearsing("find_lr"), stopped.listening(), _steps(trainer, passes) as step:
        for k in range(steps):
            rate = start_lr * (end_lr / start_lr) ** (k / (steps - 1))
            loss = step(rate)
            if loss is None:
                continue
            diverged = not math.isfinite(loss)
            if not diverged:
                rates.append(rate)
                losses.append(loss)
                averages = smoothed(losses)
                best = min(averages)
                diverged = k > 1 and averages[-1] > best + (stop - 1) * abs(best)
            if stopped.count:
                word = stopped.word
                raise Interrupted(f"{word}; the state is as it was before find_lr", stopped.signum)
            if diverged:
                break
    return LearningRates(rates, losses, diverged, steps)


@contextlib.contextmanager
def _steps(trainer: "Trainer", passes: "Passes") -> Iterator[Callable[[float], float | None]]:
    """A function that runs a step at a rate and returns its loss: not finite if the loss or a
    gradient is not, None if no target counted. After the block, the passes restart."""
    session = trainer.session
    passes.begin(0, 0)

    def step(rate: float) -> float | None:
        try:
            passes.ready()
        except EndOfPass:
            passes.begin(0, 0)
            _ready(passes)
        with session.turn:
            session.lr, scale = rate, session.loss_scale
            result = passes.run()
        if result is None or not result.counted:
            return None
        # A falling loss scale is not divergence.
        lost = result.skipped and session.loss_scale == scale
        return math.inf if lost else result.loss

    session.set_schedule(Constant(), trainer.total_steps)
    try:
        yield step
    finally:
        passes.check_again()


def _ready(passes: "Passes") -> None:
    """Fetch the first batch of a pass. Raises DataError if there is none."""
    try:
        passes.ready()
    except EndOfPass:
        raise DataError("find_lr: the data returned no batches. Pass data with samples.") from None
