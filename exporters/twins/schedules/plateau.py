"""torch.optim.lr_scheduler.ReduceLROnPlateau."""

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from edgetrain.optim.schedules.plateau import Plateau


def scheduler(schedule: Plateau, optimizer: torch.optim.Optimizer) -> ReduceLROnPlateau:
    """Call its `step` with the mean loss of each window."""
    return ReduceLROnPlateau(
        optimizer,
        factor=schedule.gamma,
        patience=schedule.patience,
        threshold=schedule.threshold,
        cooldown=schedule.cooldown,
        min_lr=schedule.min_lr,
        eps=0.0,
    )
