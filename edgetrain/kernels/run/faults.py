"""Faults of an interpreted kernel, with the line of its source."""

import sys
from pathlib import Path

from ...errors import EdgetrainError

MARK = "__interpreted__"  # a global of every interpreted function (functions.py)
_ROOT = Path(__file__).parents[3]


class KernelFault(EdgetrainError):
    """A kernel made an invalid access, or used bytes that were never written."""


class Fault(Exception):
    """A fault as it happens; execution.py adds the kernel's name.

    Args:
      text: object, found, expected.
    """

    def __init__(self, text: str) -> None:
        line = source_line()
        super().__init__(f"{text}{f', at {line}' if line else ''}")


def source_line() -> str:
    """File and line of the kernel's source that is being run; "" outside of kernels."""
    frame = sys._getframe(1)
    while frame is not None and MARK not in frame.f_globals:
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ""
    path = Path(frame.f_code.co_filename)
    name = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path
    return f"{name}:{frame.f_lineno}"
