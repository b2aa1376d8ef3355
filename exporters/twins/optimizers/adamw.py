"""torch.optim.AdamW."""

import torch
from torch import Tensor

from edgetrain.optim.adam import AdamW

STATE = {"moment1": "exp_avg", "moment2": "exp_avg_sq"}


def optimizer(optimizer: AdamW, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    return torch.optim.AdamW(
        parameters, optimizer.lr, optimizer.betas, optimizer.eps, optimizer.weight_decay
    )
