"""torch.optim.SGD."""

import torch
from torch import Tensor

from edgetrain.optim.sgd import SGD

STATE = {"momentum": "momentum_buffer"}


def optimizer(optimizer: SGD, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    options = optimizer.to_json()
    del options["name"]
    return torch.optim.SGD(parameters, **options)
