"""InfoNCE, written with torch's own ops: torch has no such loss."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.info_nce import InfoNCE


def loss(loss: InfoNCE, output: Tensor, target: None, weights: Tensor | None) -> Tensor:
    """The mean over all anchors; both anchors of a pair have its weight."""
    count = len(output)
    z = F.normalize(output, dim=-1)
    if loss.all_pairs:
        z = z.flatten(0, 1)
        scores = z @ z.T / loss.temperature
        itself = torch.eye(2 * count, dtype=torch.bool, device=z.device)
        own = torch.arange(2 * count, device=z.device) ^ 1
        each = F.cross_entropy(scores.masked_fill(itself, -torch.inf), own, reduction="none")
        return mean(each.reshape(count, 2).mean(1), weights)
    a, b = z.unbind(1)
    scores, own = a @ b.T / loss.temperature, torch.arange(count, device=z.device)
    both = [F.cross_entropy(s, own, reduction="none") for s in (scores, scores.T)]
    return mean((both[0] + both[1]) / 2, weights)
