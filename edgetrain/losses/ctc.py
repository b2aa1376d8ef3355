"""Connectionist temporal classification, like torch's CTCLoss. Source: Graves et al. 2006."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError
from ..units.plugin import option
from .base import Loss, Shape

if TYPE_CHECKING:  # parsers use losses without numpy
    import numpy as np


@dataclass(frozen=True)
class CTC(Loss):
    """Connectionist temporal classification of logits [batch, time, classes].

    Torch's [time, batch, classes] works too: the file says which axis is the batch. The softmax
    over the classes is part of the loss.

    A sample's targets are its labels (0 to classes - 1, without the blank), padded to
    `label_length` with the blank or `ignore_index`. With `input_lengths`, each row of targets
    starts with one more number, the sample's number of time steps; later steps are ignored and get
    no gradient. A label that is no class, or more time steps than there are, makes the loss NaN, so
    the step is skipped.

    The loss is torch's with reduction="mean": each sample's negative log likelihood is divided by
    its number of labels (at least 1), then averaged over samples. `label_sum` leaves out the
    division, which is torch's reduction="sum" divided by the number of samples. A sample with too
    few time steps for its labels has an infinite loss, so the step is skipped; with
    `zero_infinity` its loss counts as 0.
    """

    name: ClassVar[str] = "ctc"
    absorbs: ClassVar[tuple[str, ...]] = ("softmax", "log_softmax")
    passes: ClassVar[tuple[str, ...]] = ("log",)
    target_dtype: ClassVar[str] = "i32"
    each_sample: ClassVar[bool] = True

    blank: int = option(0, "class of the blank", "C", least=0)
    label_length: int | None = option(
        None, "labels per sample, padding included (default: time steps)", "N", least=1
    )
    input_lengths: bool = option(False, "each row of targets starts with its number of time steps")
    label_sum: bool = option(False, "do not divide by the number of labels (torch's sum)")
    zero_infinity: bool = option(False, "loss 0 if a sample has too few time steps for its labels")
    ignore_index: int = option(-100, "target value to ignore", "I")

    @property
    def kernel(self) -> str:
        return "ctc"

    def _labels(self, shape: Shape) -> int:
        return shape[1] if self.label_length is None else self.label_length

    def target_shape(self, shape: Shape) -> Shape:
        self._check(shape)
        return (shape[0], self._labels(shape) + self.input_lengths)

    def target_batch(self, shape: Shape, batch: int) -> int:
        return 0

    def limit(self, shape: Shape) -> int:
        self._check(shape)
        return max(shape[2], shape[1] + 1) if self.input_lengths else shape[2]

    @property
    def capped(self) -> bool:
        return self.input_lengths  # numbers of time steps

    @property
    def ignores_padding(self) -> bool:
        """Whether targets say how many time steps count; `ignore_index` is about labels."""
        return self.input_lengths

    @property
    def fillers(self) -> tuple[int, ...]:
        return (self.blank,)

    def joined_axes(self, shape: Shape) -> tuple[int, ...]:
        return tuple(range(1, len(shape)))

    def absorbs_over(self, shape: Shape, n: int, step: int) -> bool:
        return len(shape) == 3 and (n, step) == (shape[2], 1)

    def numbers(self, shape: Shape) -> dict[str, Any]:
        self._check(shape)
        return {
            "n": shape[0],
            "steps": shape[1],
            "c": shape[2],
            "labels": self._labels(shape),
            "first": int(self.input_lengths),
            "blank": self.blank,
            "mean": int(not self.label_sum),
            "zero": int(self.zero_infinity),
        }

    def sample(self, shape: Shape, draw: "np.random.Generator") -> "np.ndarray":
        import numpy as np

        rows, width = self.target_shape(shape)
        result = np.full((rows, width), self.ignore_index, np.int32)
        labels = [label for label in range(shape[2]) if label != self.blank]
        for row in result:
            steps = draw.integers(max(1, shape[1] // 2), shape[1] + 1)
            if self.input_lengths:
                row[0] = steps
            most = min(self._labels(shape), (steps if self.input_lengths else shape[1]) // 2)
            count = draw.integers(0, most + 1)
            row[self.input_lengths :][:count] = draw.choice(labels, count)
        return result

    def _check(self, shape: Shape) -> None:
        if len(shape) != 3 or shape[2] < 2:
            raise UsageError(
                f"loss ctc: an output of shape {list(shape)}; expected [batch, time, classes] with "
                "2 classes or more, the blank among them."
            )
        if self.blank >= shape[2]:
            raise UsageError(
                f"loss ctc: blank {self.blank} of {shape[2]} classes; expected 0 to {shape[2] - 1}."
            )
