"""What a loss is: its targets, the kernels that compute it, a sample of what it takes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..units.plugin import Plugin, option

if TYPE_CHECKING:  # a parser names losses without arrays
    import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Loss(Plugin):
    """Base class of losses; a subclass is a frozen dataclass of its options.

    A loss is the mean over the targets that count, by their weights where they have any; shapes
    are those of one microbatch.

    Attributes:
      absorbs: ops that it contains: as the last one of the model they are not run in training.
      passes: further ops that may stand behind one of these and change nothing for the loss.
      accuracy: what share of the targets the kernel counts as predicted; "": it counts none.
      target_dtype: f32, or i32 where targets are classes.
      takes_target: False: what it looks at are inputs of the model.
      joins_samples: why a minibatch cannot be split; "" where its samples are apart. The kernel of
        its gradient does not write over the output.
      sample_weights: each sample has a weight of at least 0: the loss is sum(w * l) / sum(w) over
        its targets. A target of weight 0 does not count.
    """

    sample_weights: bool = option(
        False, "weight samples by the data's field w, one number per sample"
    )

    weight: float = option(1.0, "what the loss is multiplied by", "W", flag=None, least=0)

    absent: ClassVar[Mapping[str, Any]] = {"weight": 1.0}
    family: ClassVar[str] = "loss"
    choice: ClassVar[str] = "loss"
    default: ClassVar[str] = "cross_entropy"
    absorbs: ClassVar[tuple[str, ...]] = ()
    passes: ClassVar[tuple[str, ...]] = ()
    accuracy: ClassVar[str] = ""
    target_dtype: ClassVar[str] = "f32"
    takes_target: ClassVar[bool] = True
    joins_samples: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        found = super().to_json()
        if self.weight == 1:  # as earlier versions wrote it
            del found["weight"]
        return found

    def target_shape(self, shape: Shape) -> Shape:
        """Shape of the targets for an output of this shape."""
        return shape

    def absorbed(self, shape: Shape) -> tuple[str, ...]:
        """Those of `absorbs` that it contains for an output of this shape."""
        return self.absorbs

    def absorbs_over(self, shape: Shape, n: int, step: int) -> bool:
        """Whether what it absorbs may have worked on groups of n numbers of an output.

        Args:
          step: distance of two numbers of a group in an output of this shape.
        """
        return True

    def doubt(self, output: "np.ndarray") -> str:
        """What looks wrong about an output [n, ...]; "" where nothing does."""
        return ""

    def target_batch(self, shape: Shape, batch: int) -> int:
        """The axis of the targets that counts samples, in the layout of the model's file.

        Args:
          shape: of the output, whose axis 0 counts samples here; in the file axis `batch` does.
        """
        return batch

    def joined_axes(self, shape: Shape) -> tuple[int, ...]:
        """Axes of an output of this shape along which a target's numbers are taken together."""
        return ()

    @property
    def weighs(self) -> bool:
        """Whether targets may have weights of their own, so that their number says too little."""
        return self.sample_weights

    def takes_mean(self, shape: Shape) -> bool:
        """Whether an output of this shape can be a mean over the microbatch."""
        return False

    def limit(self, shape: Shape) -> int | None:
        """Number of classes for an output of this shape; None if targets are not classes."""
        return None

    def for_target(self, target: Shape, output: Callable[[], Shape], batch: int = 0) -> Self:
        """The loss for a target of this shape; `output` is the shape of the model's output.

        Args:
          target: in the file's layout.
          batch: as in `target_batch`.
        Raises:
          UsageError: the two do not fit.
        """
        return self

    @property
    def kernel(self) -> str:
        """Prefix of the kernels `<kernel>_loss` and `<kernel>_bwd` (kernels/losses/)."""
        raise NotImplementedError

    def arrays(self, shape: Shape) -> dict[str, "np.ndarray"]:
        """Additional float32 operands of both kernels for an output of this shape.

        A loss that has some weighs its targets: its kernel leaves a fourth sum, of their weights.
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
          UsageError: there are none.
        """
        return draw.standard_normal(shape, "float32")


def within_one(output: "np.ndarray") -> bool:
    """Whether these are different numbers from 0 to 1, as probabilities are."""
    low, high = output.min(initial=1), output.max(initial=0)
    return bool(0 <= low < high <= 1)
