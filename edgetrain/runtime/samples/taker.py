"""What takes samples that a caller passes, by what the Program has."""

from ..session import Session
from .handed_over import HandedOver


def handed_over(session: Session) -> HandedOver:
    """What takes samples for a session, of several lengths if its Program has them."""
    if session.lengths is None:
        return HandedOver(session)
    from .handed_by_length import HandedByLength

    return HandedByLength(session, session.lengths)
