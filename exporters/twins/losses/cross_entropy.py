"""torch.nn.CrossEntropyLoss."""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from edgetrain.losses.cross_entropy import CrossEntropy


def loss(loss: CrossEntropy, output: Tensor, target: Tensor) -> Tensor:
    """The mean over the targets that count.

    Raises:
      UsageError: no axis of the output is the one that the target lacks.
    """
    shape, given = tuple(output.shape), tuple(target.shape)
    axis = loss.for_target(given, lambda: shape).class_axis
    assert axis is not None
    return F.cross_entropy(
        output.movedim(axis, 1), target.long(), ignore_index=loss.ignore_index,
        label_smoothing=loss.label_smoothing,
    )  # fmt: skip
