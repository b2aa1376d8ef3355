"""torch.optim.lr_scheduler.ExponentialLR."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim.schedules.exponential import Exponential


def scheduler(schedule: Exponential, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Without warm-up."""
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, schedule.gamma)
