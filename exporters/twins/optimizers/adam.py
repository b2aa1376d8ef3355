"""torch.optim.Adam."""

import torch
from torch import Tensor

from edgetrain.optim.adam import Adam

STATE = {"moment1": "exp_avg", "moment2": "exp_avg_sq"}


def optimizer(optimizer: Adam, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    return torch.optim.Adam(
        parameters, optimizer.lr, optimizer.betas, optimizer.eps, optimizer.weight_decay
    )
