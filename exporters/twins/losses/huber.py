"""torch.nn.HuberLoss."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.huber import Huber


def loss(loss: Huber, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over all elements."""
    each = F.huber_loss(output, target.to(output.dtype), delta=loss.delta, reduction="none")
    return mean(each, weights)
