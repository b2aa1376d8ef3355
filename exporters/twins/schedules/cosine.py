"""torch.optim.lr_scheduler.CosineAnnealingLR."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim.schedules.cosine import Cosine


def scheduler(schedule: Cosine, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Without warm-up."""
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, schedule.total_steps)
