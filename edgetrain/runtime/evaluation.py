"""Loss and accuracy of a session over a source, in evaluation mode."""

from collections.abc import Callable, Iterator

from ..data.batches import evaluation_batches
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
    return session.evaluate(_fills(session, source, on_batch))


def _fills(session: Session, source: Source, on_batch: Callable[[], None]) -> Iterator[int]:
    buffers = session.staging(source, "eval")
    for indices, valid in evaluation_batches(source.n, session.program.microbatch):
        on_batch()
        source.fill(indices, buffers)
        yield valid
