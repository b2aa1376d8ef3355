"""Signals that end a run: Ctrl-C, a request to terminate, a terminal that hangs up."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
_ASKING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP where Ctrl-C would be a KeyboardInterrupt."""

    def __init__(self, signum: int) -> None:
        super().__init__(WORDS[signal.Signals(signum)])
        self.signum = signum


class StopRequests:
    """How often a run was asked to stop.

    Attributes:
      count: 0 go on; 1 finish the minibatch and save; 2 discard the minibatch.
      signum: of the first request.
    """

    def __init__(self) -> None:
        self.count, self.signum = 0, int(signal.SIGINT)

    def add(self, signum: int = signal.SIGINT) -> None:
        """Count a request; only Ctrl-C, which a person repeats, ever counts as the second."""
        if self.count == 0:
            self.signum = signum
        if self.count == 0 or signum == signal.SIGINT:
            self.count += 1

    @property
    def word(self) -> str:
        """What happened."""
        return WORDS[signal.Signals(self.signum)]

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Count signals in the block, from none on; see `handling`."""
        self.count = 0
        with handling(self.add, (signal.SIGINT, *_ASKING)):
            yield


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """SIGTERM and SIGHUP raise Terminated in the block, as Ctrl-C raises KeyboardInterrupt."""

    def end(signum: int) -> None:
        raise Terminated(signum)

    with handling(end, _ASKING):
        yield


@contextlib.contextmanager
def handling(act: Callable[[int], None], signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Call `act` for these signals in the block; outside the main thread nothing is installed.

    SIGTERM and SIGHUP stay ignored where they are (nohup).
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for signum in signals:
            if signum == signal.SIGINT or signal.getsignal(signum) is not signal.SIG_IGN:
                before[signum] = signal.signal(signum, lambda number, _: act(number))
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
