"""torch's counterpart of each loss, optimizer and schedule, one file each, found by name.

losses/<name>.py: `loss(loss, output, target, weights)`, a scalar tensor; sample weights or None.
optimizers/<name>.py: `optimizer(optimizer, parameters)`, a torch.optim.Optimizer, and STATE: tag of
the engine's state -> torch's name for it. schedules/<name>.py: `scheduler(schedule, optimizer)`, a
torch scheduler stepped once per minibatch; schedules defined by a factor use by_factor.py if torch
has no scheduler for them.
"""

import importlib
from types import ModuleType

from torch import Tensor

from edgetrain.errors import UsageError
from edgetrain.losses import Loss
from edgetrain.optim import Optimizer, Schedule

_FOLDERS = {Loss: "losses", Optimizer: "optimizers", Schedule: "schedules"}


def mean(each: Tensor, weights: Tensor | None) -> Tensor:
    """Mean of the losses [samples, ...] over all targets, with sample weights."""
    if weights is None:
        return each.mean()
    wide = weights.reshape(-1, *[1] * (each.dim() - 1)).expand_as(each)
    return (wide * each).sum() / wide.sum()


def twin_of(plugin: Loss | Optimizer | Schedule) -> ModuleType:
    """The module with torch's counterpart.

    Raises:
      UsageError: torch has no counterpart to compare with.
    """
    folder = next(name for family, name in _FOLDERS.items() if isinstance(plugin, family))
    module = f"{__name__}.{folder}.{plugin.name}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        if isinstance(plugin, Schedule) and plugin.kernel:
            return importlib.import_module(f"{__name__}.{folder}.by_factor")
        raise UsageError(
            f"{plugin.family} {plugin.name}: torch has no equivalent. Choose another."
        ) from None
