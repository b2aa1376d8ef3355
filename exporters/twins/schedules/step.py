"""torch.optim.lr_scheduler.StepLR."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim.schedules.step import Step


def scheduler(schedule: Step, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Without warm-up."""
    return torch.optim.lr_scheduler.StepLR(optimizer, schedule.step_size, schedule.gamma)
