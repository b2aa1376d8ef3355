"""Loss and accuracy of a session over a source, in evaluation mode."""

from collections.abc import Callable

import numpy as np

from ..data.source import Source
from .session import Session


def check_source(session: Session, source: Source, tape: str) -> None:
    """Have the source refuse what the model cannot take, before anything is run or written.

    Raises:
      DataError: its fields are not the model's inputs, of another layout, or a label or token is
        out of range.
    """
    session.staging(source, tape)
    source.check_limits(session.limits(source), session.program.recipe["loss"].get("ignore_index"))
    source.check_values()


def evaluate_source(
    session: Session, source: Source, on_batch: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Mean loss, number of samples and, for classes, accuracy.

    Args:
      on_batch: called before each microbatch; may raise to give up.
    """
    check_source(session, source, "eval")
    buffers = session.staging(source, "eval")

    def filler(indices: np.ndarray) -> None:
        on_batch()
        session.fill(source, indices, "eval", buffers)

    return session.evaluate(source.n, filler)
