"""torch.nn.L1Loss."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.l1 import L1


def loss(loss: L1, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over all elements."""
    each = F.l1_loss(output, target.to(output.dtype), reduction="none")
    return mean(each, weights)
