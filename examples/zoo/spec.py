"""Description of a zoo model, and sample generators that the families share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

Scale = Literal["small", "full"]
Loss = Literal["cross_entropy", "mse", "bce_with_logits"]
T = TypeVar("T")
Samples = Callable[[int, Scale], tuple[Tensor, ...]]


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo at two scales: "small" for tests, "full" as people train it.

    Weights and samples come from torch's global generator; the caller seeds it.

    Attributes:
      name: key in the registry, and the stem of the file in the examples.
      build: scale -> module, in training mode.
      example_inputs: (batch, scale) -> the positional inputs of `forward`.
      target: (batch, scale) -> the target of the loss; class indices for cross-entropy.
      loss: of the module's (first) output.
      ignore_index: target value that the loss skips, or None.
      batch_dim: the batch axis of each input.
    """

    name: str
    build: Callable[[Scale], nn.Module]
    example_inputs: Samples
    target: Callable[[int, Scale], Tensor]
    loss: Loss = "cross_entropy"
    ignore_index: int | None = None
    batch_dim: int = 0

    def loss_value(self, output: Tensor, target: Tensor) -> Tensor:
        """Return torch's value of this model's loss, the mean over the counted targets.

        The classes are on axis 1 of `output`, or on the last axis if `target` fits that.
        """
        if self.loss == "cross_entropy":
            skipped = -100 if self.ignore_index is None else self.ignore_index
            if target.shape != (output.shape[0], *output.shape[2:]):
                output = output.movedim(-1, 1)
            return nn.functional.cross_entropy(output, target, ignore_index=skipped)
        if self.loss == "mse":
            return nn.functional.mse_loss(output, target)
        return nn.functional.binary_cross_entropy_with_logits(output, target)


def pick(scale: Scale, small: T, full: T) -> T:
    """Return the value for `scale`."""
    return small if scale == "small" else full


def floats(small: tuple[int, ...], full: tuple[int, ...]) -> Samples:
    """Return a maker of one standard-normal input [batch, *shape], with a shape per scale."""
    return lambda batch, scale: (torch.randn(batch, *pick(scale, small, full)),)


def tokens(vocabulary: tuple[int, int], length: tuple[int, int]) -> Samples:
    """Return a maker of one int64 input [batch, length] of token ids; (small, full) pairs."""
    return lambda batch, scale: (
        torch.randint(pick(scale, *vocabulary), (batch, pick(scale, *length))),
    )


def classes(small: int, full: int) -> Callable[[int, Scale], Tensor]:
    """Return a maker of class indices [batch] below each scale's number of classes."""
    return lambda batch, scale: torch.randint(pick(scale, small, full), (batch,))
