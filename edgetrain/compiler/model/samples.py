"""Whether the samples of a minibatch are independent along the batch axes of the inputs."""

from collections.abc import Sequence
from dataclasses import replace

from ...losses.terms import Term, joined
from .proof import INDEPENDENT, JOINED, MEAN, MIXED, SUM, WEIGHED, Samples

__all__ = ["INDEPENDENT", "JOINED", "MEAN", "MIXED", "SUM", "WEIGHED", "Samples", "of_all_losses"]


def of_all_losses(proofs: Sequence[Samples], terms: Sequence[Term]) -> Samples:
    """The result for a minibatch, combined from the proof for each loss alone."""
    first = proofs[0]
    if not joined(terms):
        return first
    # If one loss needs the whole minibatch, all of them do.
    kept = [proof for proof in proofs if proof.whole]
    kept += [proof for proof in proofs if proof.kind == SUM]
    if kept:
        why = kept[0].why or "the model sums a loss over the batch"
        kind = kept[0].kind if kept[0].whole else JOINED
        return replace(kept[0], kind=kind, why=why, degree=0, axis=first.axis)
    weighs = next((term for term in terms if term.loss.weighs), None)
    if weighs is None:
        return first
    why = f"targets of {weighs.label or 'the loss'} have weights of their own, beside others"
    return replace(first, kind=WEIGHED, why=why)
