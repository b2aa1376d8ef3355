"""The mean of what the model gives."""

from torch import Tensor

from edgetrain.losses.output import Output


def loss(loss: Output, output: Tensor, target: Tensor) -> Tensor:
    """The mean over all elements; the target is not looked at."""
    return output.mean()
