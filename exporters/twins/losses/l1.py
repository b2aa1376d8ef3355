"""torch.nn.L1Loss."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.losses.l1 import L1


def loss(loss: L1, output: Tensor, target: Tensor) -> Tensor:
    """The mean over all elements."""
    return F.l1_loss(output, target.to(output.dtype))
