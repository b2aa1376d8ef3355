"""torch.optim.RMSprop."""

import torch
from torch import Tensor

from edgetrain.optim.rmsprop import RMSprop

STATE = {"square": "square_avg", "momentum": "momentum_buffer", "mean": "grad_avg"}


def optimizer(optimizer: RMSprop, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    return torch.optim.RMSprop(
        parameters,
        optimizer.lr,
        optimizer.alpha,
        optimizer.eps,
        optimizer.weight_decay,
        optimizer.momentum,
        optimizer.centered,
    )
