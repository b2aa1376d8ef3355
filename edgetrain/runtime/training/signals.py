"""Signals that end a run: Ctrl-C, SIGTERM and hang-ups."""

import contextlib
import signal
import sys
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable, Iterator
from typing import Any

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
_ASKING = (signal.SIGTERM, signal.SIGHUP)
# Signals whose handlers may raise. We call the C functions with numbers: those of `signal` make
# enumeration members, which takes a tenth of a small model's step.
_HELD = tuple(map(int, (signal.SIGINT, *_ASKING, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)))


class Terminated(KeyboardInterrupt):
    """Raised for SIGTERM or SIGHUP, like KeyboardInterrupt for Ctrl-C."""

    def __init__(self, signum: int) -> None:
        super().__init__(WORDS[signal.Signals(signum)])
        self.signum = signum


def _on_main_thread() -> bool:
    """Whether this is the main thread; does not import `threading`."""
    threading = sys.modules.get("threading")
    return threading is None or threading.current_thread() is threading.main_thread()


class StopRequests:
    """Requests to stop a run.

    Attributes:
      count: 0: continue; 1: finish the minibatch and save; 2: discard the minibatch.
      signum: signal of the first request.
    """

    def __init__(self) -> None:
        self.count, self.signum = 0, int(signal.SIGINT)

    def add(self, signum: int = signal.SIGINT) -> None:
        """Count a request; only a repeated Ctrl-C counts as the second."""
        if self.count == 0:
            self.signum = signum
        if self.count == 0 or signum == signal.SIGINT:
            self.count += 1

    @property
    def word(self) -> str:
        """The request, in words."""
        return WORDS[signal.Signals(self.signum)]

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Count signals within the block, starting at 0; see `handling`."""
        self.count = 0
        with handling(self.add, (signal.SIGINT, *_ASKING), quiet=True):
            yield


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP raise Terminated."""

    def end(signum: int) -> None:
        raise Terminated(signum)

    with handling(end, _ASKING):
        yield


@contextlib.contextmanager
def handling(
    act: Callable[[int], None], signals: tuple[signal.Signals, ...], *, quiet: bool = False
) -> Iterator[None]:
    """Call `act` for these signals within the block; only on the main thread.

    Ignored SIGTERM and SIGHUP stay ignored (nohup).

    Args:
      quiet: `act` never raises, so it may be called at any time.
    """

    def called(signum: int, frame: Any) -> None:
        act(signum)

    called.quiet = quiet  # type: ignore[attr-defined]
    before = {}
    if _on_main_thread():
        for signum in signals:
            if signum == signal.SIGINT or signal.getsignal(signum) is not signal.SIG_IGN:
                before[signum] = signal.signal(signum, called)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)


class Deferral:
    """Defers signal handlers while machine code and its threads run.

    Python may call a handler between any two of its steps, so a KeyboardInterrupt could be raised
    when machine code calls Python, before the callback starts: workers would wait for a caller that
    is gone, or use samples that were never staged. Only signals whose Python handler may raise are
    deferred, on the main thread, which alone receives them.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came: list[tuple[int, Any]] = []
        self._depth = 0

    def __enter__(self) -> None:
        if _on_main_thread():
            self._depth += 1
            if self._depth == 1:
                self._hold()

    def __exit__(self, *raised: object) -> None:
        if _on_main_thread():
            self._depth -= 1
            if self._depth == 0:
                self._release()
                self._deliver()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Call handlers again within the block, deferred ones at once."""
        if not _on_main_thread():
            yield
            return
        try:
            self._release()
            self._deliver()
            yield
        finally:
            self._hold()

    def _hold(self) -> None:
        for signum in _HELD:
            handler = getsignal(signum)
            if callable(handler) and not getattr(handler, "quiet", False):
                self._before[signum] = handler
                set_handler(signum, self._note)

    def _release(self) -> None:
        """Restore all handlers, even if one of them raises."""
        while self._before:
            signum = next(iter(self._before))
            handler = self._before[signum]
            try:
                set_handler(signum, handler)
                del self._before[signum]
            except BaseException:
                self._release()
                raise

    def _note(self, signum: int, frame: Any) -> None:
        self._came.append((signum, self._before[signum]))

    _note.quiet = True  # type: ignore[attr-defined]

    def _deliver(self) -> None:
        while self._came:
            signum, handler = self._came.pop(0)
            handler(signum, None)
