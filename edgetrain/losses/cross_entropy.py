"""Cross-entropy of logits with class indices, like torch's CrossEntropyLoss."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError
from ..units.plugin import option
from .base import Shape, within_one
from .class_axis import ByClass

if TYPE_CHECKING:  # parsers use losses without numpy
    import numpy as np


@dataclass(frozen=True)
class CrossEntropy(ByClass):
    """Cross-entropy; the mean over targets other than `ignore_index`, weighted by class."""

    name: ClassVar[str] = "cross_entropy"
    absorbs: ClassVar[tuple[str, ...]] = ("softmax", "log_softmax")
    passes: ClassVar[tuple[str, ...]] = ("log",)
    accuracy: ClassVar[str] = "targets whose class has the largest logit (the first of equal ones)"
    target_dtype: ClassVar[str] = "i32"

    label_smoothing: float = option(
        0.0, "probability spread evenly over all classes", "S", least=0, below=1
    )
    ignore_index: int = option(-100, "target value to ignore", "I")
    class_axis: int | None = option(None, "class axis (default: 1; of 3-D outputs the last)", "A")

    class_weights: tuple[float, ...] = option(
        (), "weight of each class, such as 1,0.5,2", "W,..", least=0
    )

    @property
    def kernel(self) -> str:
        return "wce" if self.class_weights or self.sample_weights else "ce"

    @property
    def weighs(self) -> bool:
        return self.sample_weights or bool(self.class_weights)

    def call(self, shape: Shape) -> dict[str, Any]:
        return {"kernel": self.kernel, **self.numbers(shape)}

    def arrays(self, shape: Shape) -> dict[str, "np.ndarray"]:
        import numpy as np

        classes = self.limit(shape)
        if not self.class_weights:
            return {"cw": np.ones(classes, np.float32)} if self.sample_weights else {}
        if len(self.class_weights) != classes or not any(self.class_weights):
            raise UsageError(
                f"loss cross_entropy: {len(self.class_weights)} class_weights for {classes} "
                f"classes (output of shape {list(shape)}); expected one per class, not all 0."
            )
        return {"cw": np.array(self.class_weights, np.float32)}

    def doubt(self, output: "np.ndarray") -> str:
        if len(output.shape) < 2 or not within_one(output):
            return ""
        sums = output.sum(self.axis(output.shape), dtype="float64")
        if (abs(sums - 1) > 1e-3).any():
            return ""
        return (
            "the output is between 0 and 1 and sums to 1 over the classes, like probabilities, but "
            "cross_entropy expects logits. Train the output before the softmax (--output)."
        )

    def numbers(self, shape: Shape) -> dict[str, Any]:
        axis = self.axis(shape)
        self._check_classes(shape)
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        return {
            "outer": outer,
            "n": shape[axis],
            "inner": inner,
            "rows": outer // shape[0],
            "smoothing": self.label_smoothing,
            "ignore": self.ignore_index,
        }

    def sample(self, shape: Shape, draw: "np.random.Generator") -> "np.ndarray":
        self._check_classes(shape)
        return draw.integers(0, self.limit(shape), self.target_shape(shape)).astype("int32")

    def _check_classes(self, shape: Shape) -> None:
        classes = self.limit(shape)
        if classes < 2:
            raise UsageError(
                f"loss cross_entropy: {classes} class (output of shape {list(shape)}); expected at "
                "least 2. Use --loss bce_with_logits (yes or no) or mse (a value)."
            )
