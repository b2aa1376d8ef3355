"""A schedule that is a factor, as torch.optim.lr_scheduler.LambdaLR of the same formula."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim import Schedule


def scheduler(schedule: Schedule, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Warm-up included."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, schedule.factor_at)
