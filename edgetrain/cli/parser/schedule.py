"""The learning-rate schedule requested by options."""

from ...optim import Schedule
from .namespace import Namespace


def schedule(arguments: Namespace) -> Schedule | None:
    """The requested learning-rate schedule, or None.

    Raises:
      UsageError: options contradict each other.
    """
    if not arguments.has_plugins:
        return None
    from .plugins import check_owned, chosen, options_of

    known = vars(arguments)
    given = {name: known[name] for name in options_of(Schedule) if name in known}
    check_owned(Schedule, given)
    return chosen(Schedule, given) if given else None
