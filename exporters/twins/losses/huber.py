"""torch.nn.HuberLoss."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.losses.huber import Huber


def loss(loss: Huber, output: Tensor, target: Tensor) -> Tensor:
    """The mean over all elements."""
    return F.huber_loss(output, target.to(output.dtype), delta=loss.delta)
