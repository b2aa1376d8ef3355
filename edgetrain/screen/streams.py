"""Standard output and error that no command fails by: closed, full, a broken pipe, a terminal that
hung up or that has not all characters.

What cannot be written is lost, and that is said once where something can be said.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from ..errors import printable

DESCRIPTORS = (0, 1, 2)


class Stream:
    """A stream that raises nothing.

    Args:
      stream: None where the process began without it.
      on_loss: called once, with the reason, when something was to be written and could not.
    Attributes:
      lost: why nothing more is written; "" while it is.
    """

    def __init__(self, stream: TextIO | None, on_loss: Callable[[str], None]) -> None:
        self._stream, self._on_loss, self.lost = stream, on_loss, ""

    def write(self, text: str) -> int:
        """As of a file; what is not printable, or not of the stream's encoding, becomes escapes."""
        self.control(printable(text, kept="\n\t"))
        return len(text)

    def control(self, text: str) -> int:
        """`write` of a text that moves the cursor on purpose."""
        if text and not self.lost:
            try:
                self._write(text)
            except (OSError, ValueError) as error:
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        """As of a file."""
        if self._stream is not None and not self.lost:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def isatty(self) -> bool:
        """As of a file."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def _write(self, text: str) -> None:
        if self._stream is None:
            raise OSError(errno.EBADF, "it is closed")
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def _lose(self, error: OSError | ValueError) -> None:
        self.lost = getattr(error, "strerror", None) or str(error) or type(error).__name__
        self._drop()
        self._on_loss(self.lost)

    def _drop(self) -> None:
        """What the process' own stream still holds goes nowhere: Python writes it at its end."""
        stream = self._stream
        standard: tuple[object, ...] = sys.__stdout__, sys.__stderr__
        if stream is None or stream not in standard:
            return
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Moving:
    """A stream to a terminal for what moves its cursor: a bar of progress."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of a file."""
        return int(getattr(self._stream, "control", self._stream.write)(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _open_descriptors() -> None:
    """Have the standard descriptors stand for something: else the next file that is opened gets
    the number, and what libraries write to it goes into that file."""
    for number in DESCRIPTORS:
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


@contextlib.contextmanager
def sturdy(command: str) -> Iterator[None]:
    """Within the block sys.stdout and sys.stderr are such streams.

    Args:
      command: for the line about an output that is lost.
    """
    before = sys.stdout, sys.stderr
    _open_descriptors()

    def tell(reason: str) -> None:
        print(f"edgetrain {command}: standard output: {reason}; it is lost", file=sys.stderr)

    sys.stderr = Stream(before[1], lambda reason: None)  # type: ignore[assignment]
    sys.stdout = Stream(before[0], tell)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def lost(stream: Any) -> str:
    """Why nothing more is written to a stream; "" while it is."""
    return str(getattr(stream, "lost", ""))
