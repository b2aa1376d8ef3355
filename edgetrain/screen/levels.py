"""Whether Python shows what it does: `verbose`, EDGETRAIN_PROGRESS and the level of the logger.

`logging.getLogger("edgetrain").setLevel(logging.WARNING)` leaves warnings only, ERROR nothing.
"""

import os
import sys
from typing import Any, NamedTuple

LOGGER = "edgetrain"
_INFO, _WARNING = 20, 30  # of logging, which is not imported for its numbers


class Levels(NamedTuple):
    """What is shown: progress, and warnings."""

    progress: bool
    warnings: bool


def levels(verbose: bool | None) -> Levels:
    """What is shown if somebody asks for `verbose`; None: what environment and logger say."""
    if verbose is not None:
        return Levels(verbose, verbose)
    if os.environ.get("EDGETRAIN_PROGRESS") == "0":
        return Levels(False, False)
    logging = sys.modules.get("logging")
    if logging is None:  # nobody set a level
        return Levels(True, True)
    least = max(logging.getLogger(LOGGER).level or _INFO, logging.root.manager.disable + 1)
    return Levels(least <= _INFO, least <= _WARNING)


def logger() -> Any:
    """The logger, if it has handlers of its own: lines go to them instead; else None."""
    logging = sys.modules.get("logging")
    found = logging.getLogger(LOGGER) if logging is not None else None
    return found if found is not None and found.handlers else None
