"""The base class of losses: targets, kernels and sample targets."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..units.plugin import Plugin, option

if TYPE_CHECKING:  # parsers use losses without numpy
    import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Loss(Plugin):
    """Base class of losses; a subclass is a frozen dataclass of its options.

    A loss is the mean over all targets that are not ignored, weighted if they have weights.
    Shapes are those of one microbatch.

    Attributes:
      absorbs: ops that the loss includes; if one is the model's last op, training skips it.
      passes: ops that may follow one of these without changing the loss.
      each_sample: the loss is a mean over samples, whatever their number of targets.
      accuracy: which targets count as predicted correctly; "" if the loss has no accuracy.
      target_dtype: f32, or i32 if targets are classes.
      takes_target: False: the loss needs only inputs of the model.
      of_model: the model computes the loss itself as its output, which predicts nothing.
      joins_samples: why a minibatch cannot be split; "" if samples are independent. The gradient
        kernel of such a loss does not overwrite the output.
      sample_weights: samples have weights w >= 0; the loss is sum(w * l) / sum(w) over the
        targets. Targets with weight 0 are ignored.
    """

    sample_weights: bool = option(
        False, "weight samples by the data's field w, one number per sample"
    )

    weight: float = option(1.0, "factor of the loss", "W", flag=None, least=0)

    absent: ClassVar[Mapping[str, Any]] = {"weight": 1.0}
    family: ClassVar[str] = "loss"
    choice: ClassVar[str] = "loss"
    default: ClassVar[str] = "cross_entropy"
    absorbs: ClassVar[tuple[str, ...]] = ()
    passes: ClassVar[tuple[str, ...]] = ()
    accuracy: ClassVar[str] = ""
    each_sample: ClassVar[bool] = False
    target_dtype: ClassVar[str] = "f32"
    takes_target: ClassVar[bool] = True
    of_model: ClassVar[bool] = False
    joins_samples: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        result = super().to_json()
        if self.weight == 1:  # left out, as in earlier versions
            del result["weight"]
        return result

    def target_shape(self, shape: Shape) -> Shape:
        """Shape of the targets for an output of this shape."""
        return shape

    def absorbed(self, shape: Shape) -> tuple[str, ...]:
        """The ops in `absorbs` that it contains for an output of this shape."""
        return self.absorbs

    def absorbs_over(self, shape: Shape, n: int, step: int) -> bool:
        """Whether an absorbed op may normalize groups of n elements of the output.

        Args:
          step: distance between elements of a group in an output of this shape.
        """
        return True

    def doubt(self, output: "np.ndarray") -> str:
        """A warning about a suspicious output [n, ...]; "" if it looks fine."""
        return ""

    def target_batch(self, shape: Shape, batch: int) -> int:
        """The sample axis of targets, in the model file's layout.

        Args:
          shape: the output's shape, samples first; in the file they are along axis `batch`.
        """
        return batch

    def joined_axes(self, shape: Shape) -> tuple[int, ...]:
        """Axes of an output of this shape that belong to one target."""
        return ()

    @property
    def ignores_padding(self) -> bool:
        """Whether padding does not count if its targets are `ignore_index`."""
        return "ignore_index" in self.to_json()

    @property
    def fillers(self) -> tuple[int, ...]:
        """Values that fill up a sample's list of labels, besides `ignore_index`; () if each
        position has its target."""
        return ()

    @property
    def weighs(self) -> bool:
        """Whether targets may have different weights, so that their count is not enough."""
        return self.sample_weights

    def takes_mean(self, shape: Shape) -> bool:
        """Whether an output of this shape may be a mean over the microbatch."""
        return False

    def limit(self, shape: Shape) -> int | None:
        """Number of classes for an output of this shape; None if targets are not classes."""
        return None

    @property
    def capped(self) -> bool:
        """Whether targets from `limit` on act like the largest below it."""
        return False

    def is_binary(self, shape: Shape) -> bool:
        """Whether targets are two classes, distinguished by a single logit each."""
        return False

    def classes_on(self, shape: Shape) -> int | None:
        """The class axis of an output (the largest number predicts the class), or None."""
        return None

    def for_target(self, target: Shape, output: Callable[[], Shape], batch: int = 0) -> Self:
        """The loss adapted to a target of this shape.

        Args:
          target: shape in the file's layout.
          output: returns the shape of the model's output.
          batch: as in `target_batch`.
        Raises:
          UsageError: target and output do not fit.
        """
        return self

    @property
    def kernel(self) -> str:
        """Prefix of the kernels `<kernel>_loss` and `<kernel>_bwd` (kernels/losses/)."""
        raise NotImplementedError(
            f"loss {self.name}: no `kernel`; expected a prefix such as 'mse', for mse_loss and "
            "mse_bwd in kernels/losses/."
        )

    def arrays(self, shape: Shape) -> dict[str, "np.ndarray"]:
        """Additional float32 operands of both kernels for an output of this shape.

        With these, targets have weights, and the kernel writes a fourth sum, of the weights.
        """
        return {}

    def call(self, shape: Shape) -> dict[str, Any]:
        """Kernel name and scalar operands for an output of this shape."""
        own = {"kernel": self.kernel, **self.numbers(shape)}
        return {**own, "kernel": f"{self.kernel}_w"} if self.sample_weights else own

    def numbers(self, shape: Shape) -> dict[str, Any]:
        """Scalar operands of both kernels for an output of this shape."""
        size = math.prod(shape)
        return {"n": size, "rows": size // shape[0]}

    def sample(self, shape: Shape, draw: "np.random.Generator") -> "np.ndarray":
        """Random targets for an output of this shape.

        Raises:
          UsageError: no target fits.
        """
        return draw.standard_normal(shape, "float32")


def within_one(output: "np.ndarray") -> bool:
    """Whether the numbers look like probabilities: from 0 to 1, not all equal."""
    low, high = output.min(initial=1), output.max(initial=0)
    return bool(0 <= low < high <= 1)
