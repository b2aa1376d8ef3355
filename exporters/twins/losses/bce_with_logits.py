"""torch.nn.BCEWithLogitsLoss."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.bce_with_logits import BCEWithLogits


def loss(loss: BCEWithLogits, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over all elements."""
    weight = torch.tensor(loss.pos_weight, dtype=output.dtype, device=output.device)
    each = F.binary_cross_entropy_with_logits(
        output, target.to(output.dtype), pos_weight=weight, reduction="none"
    )
    return mean(each, weights)
