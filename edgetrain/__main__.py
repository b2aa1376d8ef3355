"""`edgetrain` and `python -m edgetrain`: the command line."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command of this process; Ctrl-C while it loads ends it at once.

    Modules that are interrupted in the middle of their import would print tracebacks of their own.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, _leave)
    from .cli import main as command_line

    return command_line(None, _loaded if usual else None)


def _loaded() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(signum: int, frame: FrameType | None) -> None:
    os.write(2, b"edgetrain: interrupted\n")
    os._exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
