"""Whether the samples of a minibatch are independent along the batch axes of the inputs."""

from ...ops.model import Model
from ..options import Options
from .batch import laid_out
from .proof import INDEPENDENT, JOINED, MEAN, MIXED, SUM, Samples, proved

__all__ = ["INDEPENDENT", "JOINED", "MEAN", "MIXED", "SUM", "Samples", "samples_of"]


def samples_of(model: Model, options: Options) -> Samples:
    """What the graph proves about the samples of a minibatch of `options.minibatch`."""
    return proved(laid_out(model, options), options)
