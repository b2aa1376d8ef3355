"""Selects the class that takes a caller's samples."""

from ..session import Session
from .handed_over import HandedOver


def handed_over(session: Session) -> HandedOver:
    """An object that takes a caller's samples for a session, by length if the Program has
    several."""
    if session.lengths is None:
        return HandedOver(session)
    from .handed_by_length import HandedByLength

    return HandedByLength(session, session.lengths)
