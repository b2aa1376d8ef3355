"""torch.optim.lr_scheduler.OneCycleLR."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from edgetrain.optim.schedules.one_cycle import OneCycle


def scheduler(schedule: OneCycle, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Only the learning rate, not the momentum."""
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        optimizer.param_groups[0]["lr"],
        schedule.total_steps,
        pct_start=schedule.pct_start,
        cycle_momentum=False,
        div_factor=schedule.div_factor,
        final_div_factor=schedule.final_div_factor,
    )
