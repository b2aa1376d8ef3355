"""InfoNCE of pairs, as in SimCLR and CLIP. Sources: Chen et al. 2020; Radford et al. 2021."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from ..units import SMALLEST
from ..units.plugin import option
from .base import Loss, Shape


@dataclass(frozen=True)
class InfoNCE(Loss):
    """Contrastive loss of an output [batch, 2, width]; it takes no target.

    A sample is a pair: two views of one picture, or a picture and its text. Export such a model as
    `torch.stack([net(first), net(second)], 1)`. In torch, with the minibatch's pairs z:

        a, b = F.normalize(z, dim=-1).unbind(1)
        scores, own = a @ b.T / temperature, torch.arange(len(z))
        loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2   # CLIP

    With `all_pairs`, the other anchors are negatives of an anchor too (SimCLR's NT-Xent):

        z = F.normalize(z, dim=-1).flatten(0, 1)
        scores = (z @ z.T / temperature).fill_diagonal_(-inf)
        loss = F.cross_entropy(scores, torch.arange(len(z)) ^ 1)

    A minibatch is not split, because every sample is compared with all others. Samples with weight
    0 are still negatives of the others. An evaluation compares the samples of a microbatch.
    """

    name: ClassVar[str] = "info_nce"
    takes_target: ClassVar[bool] = False
    joins_samples: ClassVar[str] = "loss info_nce compares every sample with the others"

    temperature: float = option(0.1, "divisor of cosines", "T", least=SMALLEST)
    all_pairs: bool = option(False, "the other samples of the same side are negatives too (SimCLR)")

    @property
    def kernel(self) -> str:
        return "info_nce"

    def target_shape(self, shape: Shape) -> Shape:
        return shape[:1]

    def joined_axes(self, shape: Shape) -> tuple[int, ...]:
        return tuple(range(1, len(shape)))

    def numbers(self, shape: Shape) -> dict[str, Any]:
        if len(shape) != 3 or shape[1] != 2:
            raise UsageError(
                f"loss info_nce: an output of shape {list(shape)}; expected [{shape[0]}, 2, width],"
                " the two vectors of each sample. Stack them along axis 1."
            )
        own = {"m": shape[2], "every": int(self.all_pairs), "p": self.temperature}
        return {"n": shape[0]} | own
