"""1 - torch.nn.functional.cosine_similarity."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.cosine import Cosine


def loss(loss: Cosine, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over all vectors."""
    return mean(1 - F.cosine_similarity(output, target.to(output.dtype), dim=-1), weights)
