"""torch.optim.lr_scheduler.LambdaLR of 1."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim.schedules.constant import Constant


def scheduler(schedule: Constant, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Without warm-up."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
