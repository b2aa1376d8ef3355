"""Pinball losses, written with torch's own ops: torch has no such loss."""

import torch
from torch import Tensor

from edgetrain.exporters.twins import mean
from edgetrain.losses.quantile import Quantile


def loss(loss: Quantile, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over all targets of the mean over the quantiles."""
    levels = torch.tensor(loss.quantiles, dtype=output.dtype, device=output.device)
    wide = output if len(loss.quantiles) > 1 else output.unsqueeze(-1)
    d = target.to(output.dtype).unsqueeze(-1) - wide
    each = levels * torch.relu(d) + (1 - levels) * torch.relu(-d)
    return mean(each.mean(-1), weights)
