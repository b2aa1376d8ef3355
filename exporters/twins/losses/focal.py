"""torchvision.ops.sigmoid_focal_loss, reimplemented from its source."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.focal import Focal


def loss(loss: Focal, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over all elements."""
    t = target.to(output.dtype)
    p = torch.sigmoid(output)
    each = F.binary_cross_entropy_with_logits(output, t, reduction="none")
    each = each * (1 - (p * t + (1 - p) * (1 - t))) ** loss.focal_gamma
    return mean((loss.focal_alpha * t + (1 - loss.focal_alpha) * (1 - t)) * each, weights)
