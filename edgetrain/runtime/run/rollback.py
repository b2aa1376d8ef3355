"""Steps that cannot be undone: with fused updates a run goes back to its last checkpoint.

A gradient that is not finite is found when other weights have moved already. The run goes back,
does the steps since the checkpoint again, and takes the failed one as a step that moves nothing: it
ends with the bits of a run that updates at the end of a step, which skips it. Failed steps are
listed in checkpoints, so that a resumed run knows them.
"""

from collections.abc import Callable
from typing import Any

from ...errors import RunError, UsageError
from ...kernels.device.layout import RETURNS
from ...program import Program
from ..session import StepResult
from .checkpoint import Loaded, latest
from .folder import RunFolder

MOST = RETURNS  # failed steps that end a run


class Rollback:
    """The failed steps of a run.

    Args:
      folder: where checkpoints are; None refuses to train a Program that may have to go back.
    Attributes:
      failed: steps whose gradients were not finite, counted from 0.
      astray: the weights are those of a failed step, and no checkpoint was gone back to yet.
    """

    def __init__(
        self, program: Program, folder: RunFolder | None, emit: Callable[[dict[str, Any]], None]
    ) -> None:
        self.fused = bool(program.recipe.get("fused_update"))
        self.failed: set[int] = set()
        self.astray = False
        self._folder, self._emit = folder, emit

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint says of them."""
        return {"failed": sorted(self.failed)} if self.failed else {}

    def check(self, what: str) -> None:
        """Refuse to train where there is nothing to go back to.

        Raises:
          UsageError: names what was asked for.
          RunError: as `check_state`.
        """
        self.check_state(what)
        if self.fused and self._folder is None:
            raise UsageError(
                f"{what}: the Program updates weights before all gradients are known "
                "(fused_update); a step that fails goes back to the last checkpoint, and there is "
                "no directory for one. Give out (--out DIR), or compile without fused_update."
            )

    def check_state(self, what: str) -> None:
        """Raises RunError: the weights are those of a failed step."""
        if self.astray:
            raise RunError(
                f"{what}: the weights have moved by a step that failed, {_WHY}. Go on from the "
                "last checkpoint by resume()."
            )

    def needs_first(self) -> bool:
        """Whether a checkpoint has to be written before the first step."""
        return self.fused and self._folder is not None and self._folder.newest is None

    def has_failed(self, result: StepResult) -> bool:
        """Whether a step left weights that cannot be gone on with."""
        return self.fused and result.skipped and not result.finite and result.counted > 0

    def back(self, step: int, result: StepResult) -> Loaded:
        """The checkpoint to go on from after a step that failed.

        Args:
          step: its number, counted from 0.
        Raises:
          RunError: it is one too many, or no checkpoint can be used.
        """
        self.astray = True
        self.failed.add(step)
        loaded = latest(self._folder.path) if self._folder is not None else None
        if loaded is None:
            raise RunError(f"step {step + 1}: {_WHY}; no checkpoint is there to go back to.")
        self.failed.update(loaded.meta.get("failed", ()))
        if len(self.failed) >= MOST:
            raise RunError(
                f"step {step + 1}: {_WHY}, the {MOST}th such step of the run. Lower the learning "
                f"rate; the last good state is {loaded.used}."
            )
        message = (
            f"step {step + 1}: {_WHY} (norm {result.grad_norm}); going back to {loaded.used} and "
            f"on past this minibatch ({len(self.failed)} of {MOST} that end a run)."
        )
        self._emit({"event": "warning", "message": message})
        return loaded


_WHY = "gradients or statistics are not finite"


def passed_over(result: StepResult) -> StepResult:
    """A step that failed before, done again without a target that counts: as it would have been
    told of had it been skipped at once."""
    return result._replace(finite=False, uncounted="gradients not finite")
