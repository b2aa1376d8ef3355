"""torch.nn.CrossEntropyLoss."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.losses.cross_entropy import CrossEntropy


def loss(loss: CrossEntropy, output: Tensor, target: Tensor) -> Tensor:
    """The mean over the targets that count.

    Raises:
      UsageError: no axis of the output is the one that the target lacks.
    """
    shape = tuple(output.shape)
    axis = loss.for_target(tuple(target.shape), lambda: shape).class_axis
    assert axis is not None
    given = loss.class_weights
    weights = torch.tensor(given, dtype=output.dtype, device=output.device) if given else None
    return F.cross_entropy(
        output.movedim(axis, 1), target.long(), weight=weights, ignore_index=loss.ignore_index,
        label_smoothing=loss.label_smoothing,
    )  # fmt: skip
