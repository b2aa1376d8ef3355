"""torch.nn.MSELoss."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.losses.mse import MSE


def loss(loss: MSE, output: Tensor, target: Tensor) -> Tensor:
    """The mean over all elements."""
    return F.mse_loss(output, target.to(output.dtype))
