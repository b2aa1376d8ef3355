"""torch.nn.CrossEntropyLoss."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.losses.cross_entropy import CrossEntropy


def loss(loss: CrossEntropy, output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over the targets that count.

    Raises:
      UsageError: the output has no class axis for this target.
    """
    shape = tuple(output.shape)
    axis = loss.for_target(tuple(target.shape), lambda: shape).class_axis
    assert axis is not None
    given = loss.class_weights
    classes = torch.tensor(given, dtype=output.dtype, device=output.device) if given else None
    result = F.cross_entropy(
        output.movedim(axis, 1),
        target.long(),
        weight=classes,
        ignore_index=loss.ignore_index,
        label_smoothing=loss.label_smoothing,
        reduction="mean" if weights is None else "none",
    )
    if weights is None:
        return result
    counts = target != loss.ignore_index
    own = counts.to(output.dtype) if classes is None else classes[target.long() * counts] * counts
    wide = weights.reshape(-1, *[1] * (target.dim() - 1)).expand_as(target)
    return (wide * result).sum() / (wide * own).sum()
