"""Makes standard output and error safe: a closed or full stream, a broken pipe, a hang-up or a
character the terminal cannot show never stops a command.

Output that cannot be written is lost; this is reported once, on the other stream.
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
      stream: None if the process started without it.
      on_loss: called once, with the reason, when a write fails.
    Attributes:
      lost: why nothing more is written; "" if all is well.
    """

    def __init__(self, stream: TextIO | None, on_loss: Callable[[str], None]) -> None:
        self._stream, self._on_loss, self.lost = stream, on_loss, ""

    def write(self, text: str) -> int:
        """Like a file's `write`; characters that can't be printed or encoded are escaped."""
        self.control(printable(text, kept="\n\t"))
        return len(text)

    def control(self, text: str) -> int:
        """Like `write`, for text that moves the cursor on purpose."""
        if text and not self.lost:
            try:
                self._write(text)
            except (OSError, ValueError) as error:
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Like a file's `flush`."""
        if self._stream is not None and not self.lost:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def isatty(self) -> bool:
        """Like a file's `isatty`."""
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
        """Discard buffered output, which Python would write at exit."""
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
    """A terminal stream for output that moves the cursor, such as a progress bar."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Like a file's `write`."""
        return int(getattr(self._stream, "control", self._stream.write)(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _open_descriptors() -> None:
    """Open the standard descriptors: otherwise the next file that is opened gets the number, and
    output of libraries ends up in that file."""
    for number in DESCRIPTORS:
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


@contextlib.contextmanager
def sturdy(command: str) -> Iterator[None]:
    """Within the block, replace sys.stdout and sys.stderr by safe streams.

    Args:
      command: for the message about lost output.
    """
    before = sys.stdout, sys.stderr
    _open_descriptors()

    def tell(reason: str) -> None:
        print(
            f"edgetrain {command}: standard output: {reason}; further output is lost",
            file=sys.stderr,
        )

    sys.stderr = Stream(before[1], lambda reason: None)  # type: ignore[assignment]
    sys.stdout = Stream(before[0], tell)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def lost(stream: Any) -> str:
    """Why a stream's output is lost; "" if it is not."""
    return str(getattr(stream, "lost", ""))
