"""A schedule defined by a factor, as torch.optim.lr_scheduler.LambdaLR with the same formula."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim import Schedule


def scheduler(schedule: Schedule, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """With warm-up."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, schedule.factor_at)
