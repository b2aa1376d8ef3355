"""torch.nn.CTCLoss."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.exporters.twins import mean
from edgetrain.losses.ctc import CTC


def loss(loss: CTC, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over the samples, each divided by its labels unless `label_sum`; NaN if a label is
    no class, or a sample claims to have more steps than there are."""
    labels = target.long()
    steps = torch.full((len(output),), output.shape[1])
    wrong = torch.zeros(len(output), dtype=torch.bool)
    if loss.input_lengths:
        wrong = labels[:, 0] > output.shape[1]
        steps, labels = labels[:, 0].clamp(0, output.shape[1]), labels[:, 1:]
    within = ((labels < 0) | (labels == loss.blank)).cumsum(1) == 0
    counts = within.sum(1)
    wrong |= (within & (labels >= output.shape[2])).any(1)
    each = F.ctc_loss(
        output.log_softmax(-1).movedim(1, 0),
        labels.clamp(0, output.shape[2] - 1),
        steps,
        counts,
        blank=loss.blank,
        reduction="none",
        zero_infinity=loss.zero_infinity,
    )
    each = each.masked_fill(wrong, math.nan)
    return mean(each if loss.label_sum else each / counts.clamp(min=1), weights)
