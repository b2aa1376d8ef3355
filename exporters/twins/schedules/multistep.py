"""torch.optim.lr_scheduler.MultiStepLR."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim.schedules.multistep import MultiStep


def scheduler(schedule: MultiStep, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Without warm-up."""
    return torch.optim.lr_scheduler.MultiStepLR(
        optimizer, list(schedule.milestones), schedule.gamma
    )
