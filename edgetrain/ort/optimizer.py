"""ONNX Runtime's `Optimizer` and `LinearLRScheduler`."""

from os import PathLike

from ..errors import UsageError
from ..units import finite_number
from ..units.options import typed
from ..units.public import public_api
from .module import Module, program_of


@public_api
class Optimizer:
    """Applies a module's gradients.

    Args:
      optimizer_uri: path of `optimizer_model.onnx` in the artifact directory; accepted, but no such
        file is needed.
      module: module whose parameters are updated.
    """

    def __init__(self, optimizer_uri: str | PathLike, module: Module) -> None:
        if not isinstance(module, Module):
            raise UsageError(f"module {repr(module)[:60]}: expected a Module.")
        program_of(optimizer_uri)
        self._module = module

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return self._module.session.step

    def step(self) -> None:
        """Update the parameters and reset the gradients. Skipped if a gradient is not finite.

        Raises:
          UsageError: there are no gradients.
        """
        self._module.update(self.get_learning_rate())

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate from the next step on."""
        self._module.trainer.lr = finite_number("learning_rate", learning_rate, least=0)

    def get_learning_rate(self) -> float:
        """Learning rate of the next step."""
        return self._module.trainer.lr


@public_api
class LinearLRScheduler:
    """Learning rate that rises linearly from 0 during warmup, then falls to 0 at the last step.

    Args:
      initial_lr: the peak rate.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_step_count: int,
        total_step_count: int,
        initial_lr: float,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise UsageError(f"optimizer {repr(optimizer)[:60]}: expected an Optimizer.")
        for name, count in (("warmup", warmup_step_count), ("total", total_step_count)):
            typed(f"{name}_step_count", count, (int,))
        if not 0 <= warmup_step_count <= total_step_count:
            raise UsageError(
                f"warmup_step_count {warmup_step_count}: expected 0 to total_step_count "
                f"({total_step_count})."
            )
        self._optimizer, self._warmup, self._total = optimizer, warmup_step_count, total_step_count
        self._highest = finite_number("initial_lr", initial_lr, least=0)
        self.step()

    def step(self) -> None:
        """Set the rate for the optimizer's current number of steps."""
        done = self._optimizer.steps
        if done < self._warmup:
            share = done / max(1, self._warmup)
        else:
            share = max(0.0, (self._total - done) / max(1, self._total - self._warmup))
        self._optimizer.set_learning_rate(self._highest * share)
