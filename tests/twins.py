"""Plain Python twins of the step loop's kernels: order, rates, loss scale, a minibatch."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from edgetrain.data.order.permute import permuted
from edgetrain.kernels import control
from edgetrain.optim import Schedule
from edgetrain.optim.loss_scale import MAX_SCALE
from edgetrain.optim.schedules import Cosine, InverseSqrt, OneCycle, Plateau
from edgetrain.runtime.session import Session, StepResult
from edgetrain.sparse.rewiring import LAST, LEAST, PERIODS, SHORT_RUN, Rewiring


@dataclass(frozen=True, order=True)
class Cursor:
    """Progress of training.

    Attributes:
      epoch: completed passes over the data.
      position: samples used in this epoch; a multiple of the minibatch.
    """

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True)
class Batches:
    """The order of the training samples; stateless, so it works for any cursor.

    Each epoch has its own order and drops its last partial minibatch.

    Attributes:
      n: samples.
      minibatch: samples per weight update.
      microbatch: samples per forward and backward; divides the minibatch.
      seed: of the order.
    """

    n: int
    minibatch: int
    microbatch: int
    seed: int = 0

    @property
    def steps_per_epoch(self) -> int:
        """Whole minibatches in an epoch."""
        return self.n // self.minibatch

    def microbatches(self, cursor: Cursor) -> Iterator[np.ndarray]:
        """The microbatches of the minibatch at `cursor`: int64 indices [microbatch] each."""
        assert cursor == self._wrapped(cursor), cursor
        positions = np.arange(cursor.position, cursor.position + self.minibatch)
        indices = permuted(self.seed, cursor.epoch, positions, self.n)
        yield from indices.reshape(-1, self.microbatch)

    def after(self, cursor: Cursor) -> Cursor:
        """The cursor after the minibatch at `cursor`."""
        return self._wrapped(Cursor(cursor.epoch, cursor.position + self.minibatch))

    def cursor_at(self, step: int) -> Cursor:
        """The cursor before minibatch number `step` (from 0) of the whole run."""
        epoch, number = divmod(step, self.steps_per_epoch)
        return Cursor(epoch, number * self.minibatch)

    def _wrapped(self, cursor: Cursor) -> Cursor:
        if cursor.position + self.minibatch > self.n:
            return Cursor(cursor.epoch + 1, 0)
        return cursor


def evaluation_batches(n: int, microbatch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Every sample once, in order: (int64 indices [microbatch], number that count).

    The last microbatch is padded with sample 0, which does not count.
    """
    for start in range(0, n, microbatch):
        valid = min(microbatch, n - start)
        indices = np.zeros(microbatch, np.int64)
        indices[:valid] = np.arange(start, start + valid)
        yield indices, valid


@dataclass(frozen=True, slots=True)
class Scale:
    """Loss scale between steps; `update` returns the next state.

    Attributes:
      scale: factor of the loss gradient; fixed at 1 for fp32.
      good_steps: finite steps since the scale last changed.
      bad_steps: steps in a row without an update.
    """

    scale: float = 1.0
    growth_interval: int = 1000
    good_steps: int = 0
    bad_steps: int = 0
    dynamic: bool = False

    @classmethod
    def for_precision(cls, precision: str) -> "Scale":
        """fp16 starts at 2^12 and adapts, fp32 stays at 1."""
        return cls(2.0**12, dynamic=True) if precision == "fp16" else cls()

    def update(self, finite: bool, counted: bool = True) -> "Scale":
        """The state after a step.

        Args:
          finite: whether its gradients were finite.
          counted: whether it had targets; a step without any says nothing about the scale.
        """
        if not finite:
            scale = max(1.0, self.scale / 2) if self.dynamic else self.scale
            return replace(self, scale=scale, good_steps=0, bad_steps=self.bad_steps + 1)
        if not counted:
            return replace(self, bad_steps=self.bad_steps + 1)
        if self.dynamic and self.good_steps + 1 >= self.growth_interval:
            return replace(self, scale=min(MAX_SCALE, self.scale * 2), good_steps=0, bad_steps=0)
        return replace(self, good_steps=self.good_steps + 1, bad_steps=0)


def factor(schedule: Schedule, step: int) -> float:
    """Factor of the learning rate at 0-based `step`, including skipped steps."""
    if step < schedule.warmup_steps:
        return (step + 1) / schedule.warmup_steps
    if schedule.kernel:
        return schedule.factor_at(step)
    return FACTORS[schedule.name](schedule, step)


def _cosine(schedule: Cosine, step: int) -> float:
    span = max(1, schedule.total_steps - schedule.warmup_steps)
    done = min(1.0, (step - schedule.warmup_steps) / span)
    return 0.5 * (1.0 + math.cos(math.pi * done))


def _inverse_sqrt(schedule: InverseSqrt, step: int) -> float:
    scale = schedule.timescale or schedule.warmup_steps or 10_000
    return math.sqrt(scale / (scale + step - schedule.warmup_steps))


def _one_cycle(schedule: OneCycle, step: int) -> float:
    peak, last = schedule.pct_start * schedule.total_steps - 1, schedule.total_steps - 1
    low, end = 1 / schedule.div_factor, 1 / schedule.div_factor / schedule.final_div_factor
    first, then, done = (low, 1.0, step / peak) if step <= peak else (
        1.0, end, min(1.0, (step - peak) / (last - peak))
    )  # fmt: skip
    return then + (first - then) / 2 * (1 + math.cos(math.pi * done))


# Schedule -> factor after warm-up, unless it has its own; a plateau's before any loss.
FACTORS: dict[str, Callable[..., float]] = {
    "constant": lambda schedule, step: 1.0,
    "step": lambda schedule, step: schedule.gamma ** (step // schedule.step_size),
    "cosine": _cosine,
    "multistep": lambda s, step: s.gamma ** sum(at <= step for at in s.milestones),
    "exponential": lambda schedule, step: schedule.gamma**step,
    "inverse_sqrt": _inverse_sqrt,
    "one_cycle": _one_cycle,
    "plateau": lambda schedule, step: 1.0,
}


@dataclass
class Windows:
    """The factor of a plateau schedule as losses arrive."""

    schedule: Plateau
    factor: float = 1.0
    best: float = math.inf
    bad: int = 0
    wait: int = 0
    losses: tuple[float, ...] = ()

    def see(self, loss: float) -> None:
        """Record the loss of one more step."""
        if math.isfinite(loss):
            self.losses += (loss,)
        if len(self.losses) < self.schedule.window:
            return
        mean, self.losses = sum(self.losses) / len(self.losses), ()
        better = mean < self.best * (1 - self.schedule.threshold)
        self.best, self.bad = (mean, 0) if better else (self.best, self.bad + 1)
        if self.wait > 0:
            self.wait, self.bad = self.wait - 1, 0
        if self.bad > self.schedule.patience:
            self.factor *= self.schedule.gamma
            self.wait, self.bad = self.schedule.cooldown, 0


def due(method: Rewiring, step: int, total_steps: int) -> bool:
    """Whether to rewire after `step` minibatches of `total_steps`."""
    short = total_steps < SHORT_RUN
    usual = 1.0 if short or method.long_frequency is None else method.long_frequency
    often = usual if method.frequency is None else method.frequency
    short = short and method.periods == PERIODS
    scale, least = (total_steps / SHORT_RUN, LEAST) if short else (1.0, 1)
    if short and step > LAST * total_steps:
        return False
    scale /= often
    for end, interval in method.periods:
        if step <= end * total_steps:
            return step % max(least, round(interval * scale)) == 0
    return False


def train_step(
    session: Session, step: int, lr: float, loss_scale: float, fills: Iterable
) -> StepResult | None:
    """Run minibatch number `step`: accumulate every microbatch, update once; no rewiring.

    Args:
      fills: yields once for each microbatch after the staging bytes are filled; yields False to
        discard the minibatch.
    """
    ints, reals = session.ints, session.reals
    ints[control.STEP], reals[control.LR], reals[control.LOSS_SCALE] = step, lr, loss_scale
    reals[control.NOMINAL] = session.program.minibatch * session.program.target_count
    _reset(session, session.program.microbatch)
    done = False
    try:
        for number, filled in enumerate(fills):
            if filled is False:
                return None
            ints[control.MICROBATCH] = number
            session.executor.run("micro")
        done = True
    finally:
        for slot in session.program.persistent:
            if slot.role == "accumulator" and not done:
                session.values[slot.name][...] = 0
    count, total = int(ints[control.TARGETS]), float(reals[control.LOSS_SUM])
    session.executor.run("update")
    norm, skipped = float(reals[control.GRAD_NORM]), bool(ints[control.SKIP])
    loss = total / count if count else math.nan
    return StepResult(loss, norm, skipped, bool(np.isfinite(norm)), count, lr)


def evaluate(session: Session, batches: Iterable[int]) -> dict[str, float]:
    """Mean loss and accuracy.

    Args:
      batches: yields the number of samples that count, once the staging bytes are filled.
    """
    ints = session.ints
    _reset(session, 0)
    for valid in batches:
        ints[control.COUNT] = valid
        session.executor.run("eval")
    count = int(ints[control.TARGETS])
    loss = float(session.reals[control.LOSS_SUM]) / count
    return {"loss": loss, "accuracy": int(ints[control.CORRECT]) / count}


def _reset(session: Session, count: int) -> None:
    session.ints[control.COUNT] = count
    session.ints[control.TARGETS] = session.ints[control.CORRECT] = 0
    session.reals[control.LOSS_SUM] = 0.0
