"""torch.optim.Adagrad."""

import torch
from torch import Tensor

from edgetrain.optim.adagrad import Adagrad

STATE = {"square": "sum"}


def optimizer(optimizer: Adagrad, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    return torch.optim.Adagrad(
        parameters, optimizer.lr, optimizer.lr_decay, optimizer.weight_decay, 0.0, optimizer.eps
    )
