"""Soft Dice loss, written with torch's own ops: torch has no such loss."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.dice import Dice


def loss(loss: Dice, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over the samples of the mean over the classes."""
    shape = tuple(output.shape)
    axis = loss.for_target(tuple(target.shape), lambda: shape).axis(shape)
    x, t, counts = output.movedim(axis, 1), target.long(), target != loss.ignore_index
    if t.dim() == output.dim():
        p, t, counts = torch.sigmoid(x), t.movedim(axis, 1), counts.movedim(axis, 1)
    else:
        p, counts = torch.softmax(x, 1), counts.unsqueeze(1)
        t = F.one_hot(t * counts.squeeze(1), x.shape[1]).movedim(-1, 1)
    p, t = ((part * counts).reshape(*x.shape[:2], -1) for part in (p, t.to(output.dtype)))
    above = 2 * (p * t).sum(2) + loss.dice_smooth
    below = p.sum(2) + t.sum(2) + loss.dice_smooth
    return mean((1 - above / below).mean(1), weights)
