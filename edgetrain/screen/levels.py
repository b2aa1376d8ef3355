"""Whether Python prints progress: `verbose`, EDGETRAIN_PROGRESS and the logger's level.

`logging.getLogger("edgetrain").setLevel(logging.WARNING)` shows only warnings, ERROR nothing.
"""

import os
import sys
from types import NoneType
from typing import Any, NamedTuple

from ..units.options import typed

LOGGER = "edgetrain"
_INFO, _WARNING = 20, 30  # of logging, without importing it


class Levels(NamedTuple):
    """Whether progress and warnings are shown."""

    progress: bool
    warnings: bool


def levels(verbose: bool | None) -> Levels:
    """Levels for `verbose`; None: as environment and logger say.

    Raises:
      UsageError: it has another type.
    """
    typed("verbose", verbose, (bool, NoneType))
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
    """The logger, if it has its own handlers: they get the lines instead. Otherwise None."""
    logging = sys.modules.get("logging")
    result = logging.getLogger(LOGGER) if logging is not None else None
    return result if result is not None and result.handlers else None
