"""A look at what the model gives for the first minibatch: probabilities where logits are meant."""

import numpy as np

from ...formats import decoded
from ..session import Session
from .skipped import Fed


def doubt_of(session: Session, fed: Fed) -> str:
    """What looks wrong about the outputs of a step's samples; "" where nothing does.

    An evaluation in the arena, microbatch by microbatch, until one looks right. No weight, counter
    or random number moves.

    Args:
      fed: what the step was fed.
    """
    program, loss = session.program, session.loss
    if not loss.absorbs or program.sliced or program.unpredicted:
        return ""
    found, each = "", program.microbatch
    for start in range(0, len(fed.indices), each):
        rows = np.arange(start, min(start + each, len(fed.indices)))
        whole = rows[np.arange(each) % len(rows)]

        def filler(indices: np.ndarray, whole=whole) -> None:
            fed.put(whole)

        session.evaluate(each, filler)
        found = loss.doubt(decoded(session.output)[: len(rows)])
        if not found:
            return ""
    return found
