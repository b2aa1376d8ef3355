"""torch.nn.MSELoss."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.mse import MSE


def loss(loss: MSE, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over all elements."""
    each = F.mse_loss(output, target.to(output.dtype), reduction="none")
    return mean(each, weights)
