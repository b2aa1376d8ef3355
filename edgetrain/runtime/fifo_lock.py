"""Lets threads use a session one at a time, in order of arrival.

A turn is a minibatch, an evaluation, a prediction, or a read of the state. Waiting threads get the
next turn, so a training loop doesn't starve predictions, and vice versa.
"""

from _thread import LockType, allocate_lock, get_ident
from collections import deque

from .training.signals import Deferral


class _Place:
    """A thread's place in the queue; the lock `called` is released when its turn comes."""

    def __init__(self) -> None:
        self.thread, self.called = get_ident(), allocate_lock()
        self.called.acquire()


class FifoLock:
    """A reentrant lock that is passed on in order of arrival.

    Args:
      signals: deferred while a thread has its turn, so an exception in a handler can't break
        the lock; delivered while waiting.
    """

    def __init__(self, signals: Deferral) -> None:
        self._signals, self._guard = signals, allocate_lock()
        self._owner, self._depth = 0, 0
        self._queue: deque[_Place] = deque()

    def __enter__(self) -> None:
        if self._owner == get_ident():
            self._depth += 1
            return
        self._signals.__enter__()
        try:
            self._wait(self._guard)
        except BaseException:
            self._signals.__exit__()
            raise

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._hand_on()
            self._signals.__exit__()

    def _wait(self, guard: LockType) -> None:
        """Wait until it is this thread's turn."""
        with guard:
            if not self._owner:
                self._owner, self._depth = get_ident(), 1
                return
            place = _Place()
            self._queue.append(place)
        try:
            with self._signals.open():
                place.called.acquire()
        except BaseException:
            with guard:
                waits = place in self._queue
                if waits:
                    self._queue.remove(place)
            if not waits:
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        """Pass the turn to the next waiting thread, if any."""
        with self._guard:
            self._owner, self._depth = 0, 0
            if self._queue:
                place = self._queue.popleft()
                self._owner, self._depth = place.thread, 1
                place.called.release()
