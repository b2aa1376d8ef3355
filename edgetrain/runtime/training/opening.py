"""Opens a Trainer's training and evaluation data."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...data.order.validation import Division
from ...data.registry import numbered_as
from ...data.source import Source
from ...program.metadata import labels_of
from ..session import Session
from .epochs import Passes, passes_of
from .evaluation import check_source

if TYPE_CHECKING:
    from ...data.sources.items import Batches
    from .settings import Settings


def opened_data(
    session: Session, given: Any, settings: "Settings", discarded: Callable[[], bool]
) -> "tuple[Division, tuple[str, ...] | None, Passes | None, Batches | None]":
    """Open the data of a Trainer and check that it fits the model.

    Args:
      given: as `Trainer`'s `data`.
      discarded: tells whether to discard the minibatch.
    Returns:
      Training and held-out samples, class names if known, passes over the training data if there is
      any, and evaluation data in batches.
    Raises:
      DataError, UsageError: as for `Trainer`.
    """
    result, other = (opened(session, item) for item in (given, settings.validation))
    batches = None if result is None or isinstance(result, Source) else result
    chosen = None if batches else (given if result is None else result)
    tested = None if other is None or isinstance(other, Source) else other
    asked = settings.validation if other is None else other
    data = Division(
        tuple(chosen) if isinstance(chosen, list) else chosen, None if tested else asked
    )
    source, own = data.train, labels_of(session.program.onnx)
    labels = (source.labels if source is not None else None) or own
    if source is not None and own and set(labels or ()) <= set(own):
        source, labels = numbered_as(source, own), own
        data.train = source  # keep the model's own numbers
    if data.chosen is not None:
        data.chosen = numbered_as(data.chosen, labels)
    passes: Any = None
    if batches is not None:
        from .batches import BatchPasses  # devices mostly train on sources

        passes = BatchPasses(session, batches, settings.keep_last, discarded)
    elif source is not None:
        passes = passes_of(session, source, settings.keep_last, discarded)
        check_source(session, source, "micro")
    if data.chosen is not None:
        check_source(session, data.chosen, "eval")
    return data, labels, passes, tested


def opened(session: Session, data: Any) -> "Source | Batches | None":
    """Like `items.opened`, which is imported only if data is neither a string nor a Source."""
    if data is None or isinstance(data, str | Source):
        return None
    if session.lengths is not None:
        return session.lengths.opened(data)
    from ...data.sources.items import opened as opened_items

    program = session.program
    shapes = {
        slot.name: (slot.shape[1:], slot.batch)
        for slot in program.inputs["micro"]
        if slot.name in program.input_names
    }
    return opened_items(data, shapes)
