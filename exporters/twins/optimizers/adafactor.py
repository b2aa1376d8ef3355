"""torch.optim.Adafactor."""

import torch
from torch import Tensor

from edgetrain.optim.adafactor import Adafactor

STATE = {"rows": "row_var", "columns": "col_var", "square": "variance"}


def optimizer(optimizer: Adafactor, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    return torch.optim.Adafactor(
        parameters,
        optimizer.lr,
        optimizer.beta2_decay,
        (optimizer.eps1, optimizer.eps2),
        optimizer.clip,
        optimizer.weight_decay,
    )
