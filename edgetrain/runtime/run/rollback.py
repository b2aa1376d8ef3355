"""Rolls a run with fused updates back to its last checkpoint after a failed step.

When a non-finite gradient is found, other weights have already been updated. The run goes back to
the checkpoint, repeats the steps since then, and skips the failed one. It ends with the same bits
as a run without fused updates, which skips such a step at once. Checkpoints list failed steps, so a
resumed run knows them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...errors import RunError, UsageError
from ...kernels.device.layout import RETURNS
from ...program import Program
from ..session import StepResult
from .checkpoint import Loaded, latest
from .folder import RunFolder

MOST = RETURNS  # failed steps in a row that end a run


class Changeable(NamedTuple):
    """What callbacks may change.

    Attributes:
      weights: of losses; None: the Program's.
      callbacks: their states; None for one whose state can't be stored.
    """

    lr: float
    weights: dict[str, float] | None
    callbacks: list[Any]


class Rollback:
    """The failed steps of a run.

    Args:
      folder: where checkpoints are; None: refuse Programs that may need to roll back.
    Attributes:
      failed: steps with non-finite gradients, counted from 0.
      astray: the weights are those of a failed step, not yet rolled back.
    """

    def __init__(
        self, program: Program, folder: RunFolder | None, emit: Callable[[dict[str, Any]], None]
    ) -> None:
        self.fused = bool(program.recipe.get("fused_update"))
        self.failed: set[int] = set()
        self.astray = False
        self._folder, self._emit = folder, emit
        self._begun: dict[int, Changeable] = {}

    def remember(self, step: int, begun: Changeable) -> None:
        """Keep what an epoch began with, if a rollback may lead to this step."""
        if not self.fused:
            return
        newest = self._folder.newest or 0 if self._folder is not None else 0
        kept = {number: was for number, was in self._begun.items() if number >= newest}
        self._begun = kept | {step: begun}

    def begun_at(self, step: int) -> Changeable | None:
        """What an epoch began with at this step; None if none did.

        A checkpoint at an epoch's end is written before callbacks are called.
        """
        return self._begun.get(step)

    def resumed(self, failed: Iterable[int]) -> None:
        """Continue from a checkpoint that lists these failed steps."""
        self.failed, self._begun = set(failed), {}

    def to_json(self) -> dict[str, Any]:
        """The failed steps, for checkpoints."""
        return {"failed": sorted(self.failed)} if self.failed else {}

    def check(self, what: str) -> None:
        """Refuse to train if a rollback is impossible.

        Raises:
          UsageError: names the call that was refused.
          RunError: as for `check_state`.
        """
        self.check_state(what)
        if self.fused and self._folder is None:
            raise UsageError(
                f"{what}: with fused_update, a failed step needs a checkpoint to go back to, but "
                "there is no directory for one. Pass out (--out DIR), or compile without "
                "fused_update."
            )

    def check_state(self, what: str) -> None:
        """Raise RunError if the weights are those of a failed step."""
        if self.astray:
            raise RunError(
                f"{what}: a failed step changed the weights ({_WHY}). Call resume() to continue "
                "from the last checkpoint."
            )

    def needs_first(self) -> bool:
        """Whether a checkpoint must be written before the first step."""
        return self.fused and self._folder is not None and self._folder.newest is None

    def has_failed(self, result: StepResult) -> bool:
        """Whether a step left unusable weights."""
        return self.fused and result.skipped and not result.finite and result.counted > 0

    def back(self, step: int, result: StepResult) -> Loaded:
        """The checkpoint to continue from after a failed step.

        Args:
          step: number of the failed step, counted from 0.
        Raises:
          RunError: too many steps have failed, or there is no usable checkpoint.
        """
        self.astray = True
        self.failed.add(step)
        loaded = latest(self._folder.path) if self._folder is not None else None
        if loaded is None:
            raise RunError(f"step {step + 1}: {_WHY}, and there is no checkpoint to go back to.")
        self.failed.update(loaded.meta.get("failed", ()))
        in_a_row = next(k for k in range(1, MOST + 1) if k == MOST or step - k not in self.failed)
        if in_a_row == MOST:
            raise RunError(
                f"step {step + 1}: {_WHY}, for the {MOST}th time in a row. Lower the learning "
                f"rate; the last good state is {loaded.used}."
            )
        message = (
            f"step {step + 1}: {_WHY} (norm {result.grad_norm}); going back to {loaded.used}, "
            f"then skipping this minibatch ({in_a_row} in a row; {MOST} end the run)."
        )
        self._emit({"event": "warning", "message": message})
        return loaded


_WHY = "gradients or statistics are not finite"


def passed_over(result: StepResult) -> StepResult:
    """The result of a failed step after it was repeated and skipped, as if it had been skipped at
    once."""
    return result._replace(finite=False, uncounted="gradients not finite")
