"""torch.optim.lr_scheduler.LambdaLR of the paper's rule: Vaswani et al. 2017, section 5.3."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim.schedules.inverse_sqrt import LONG, InverseSqrt


def scheduler(schedule: InverseSqrt, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Without warm-up: the factor of step s is the inverse square root of 1 + s / timescale."""
    scale = schedule.timescale or LONG

    def factor(step: int) -> float:
        return (scale + step) ** -0.5 * scale**0.5

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
