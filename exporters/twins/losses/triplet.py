"""torch.nn.TripletMarginLoss."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.triplet import Triplet


def loss(loss: Triplet, output: Tensor, target: None, weights: Tensor | None) -> Tensor:
    """The mean over all triplets."""
    anchor, positive, negative = output.unbind(1)
    each = F.triplet_margin_loss(
        anchor, positive, negative, margin=loss.margin, swap=loss.swap, reduction="none"
    )
    return mean(each, weights)
