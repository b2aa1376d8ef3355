"""Whether the samples of a minibatch are independent along the batch axes of the inputs."""

from dataclasses import replace

from ...ops.model import Model
from ..options import Options
from .batch import laid_out
from .proof import INDEPENDENT, JOINED, MEAN, MIXED, SUM, WEIGHED, Samples, proved

__all__ = [
    "INDEPENDENT", "JOINED", "MEAN", "MIXED", "SUM", "WEIGHED", "Samples", "axes_of", "samples_of",
]  # fmt: skip


def samples_of(model: Model, options: Options) -> Samples:
    """What the graph proves about the samples of a minibatch of `options.minibatch`."""
    model = laid_out(model, options)
    found = [proved(model, options.alone(term)) for term in options.terms]
    first = found[0]
    if not options.joined:
        return first
    # What keeps a minibatch whole for one loss does so for all.
    kept = [*(one for one in found if one.whole), *(one for one in found if one.kind == SUM)]
    if kept:
        why = kept[0].why or "the model sums a loss over the batch"
        kind = kept[0].kind if kept[0].whole else JOINED
        return replace(kept[0], kind=kind, why=why, degree=0, axis=first.axis)
    weighs = next((term for term in options.terms if term.loss.weighs), None)
    if weighs is None:
        return first
    why = f"targets of {weighs.label or 'the loss'} have weights of their own, beside others"
    return replace(first, kind=WEIGHED, why=why)


def axes_of(model: Model, options: Options) -> tuple[int, ...]:
    """The axis of each loss's output that counts its samples."""
    model = laid_out(model, options)
    return tuple(proved(model, options.alone(term)).axis for term in options.terms)
