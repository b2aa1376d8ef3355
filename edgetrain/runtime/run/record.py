"""Passes the events of a run to its history, its listeners and two files.

`history.json` keeps the history for resumed runs, `loss.svg` is a picture of the loss.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...errors import EdgetrainError
from ...history import HISTORY_FILE, History
from .folder import RunFolder

_SECONDS = 30.0  # between writes of the history during an epoch

Event = dict[str, Any]
Listener = Callable[[Event], None]


class Record:
    """Receives the events of a run.

    Args:
      folder: None: write no files.
      on_event: called with each event, after it was added to the history.
    Attributes:
      history: history of the whole run.
    """

    def __init__(self, folder: RunFolder | None, on_event: Listener | None) -> None:
        self.history = History()
        self._folder, self._fitting = folder, False
        self._listeners = [] if on_event is None else [on_event]
        self._written, self._epochs = time.monotonic(), False

    @property
    def wants_steps(self) -> bool:
        """Whether step events have any effect."""
        return self._fitting or bool(self._listeners)

    def __call__(self, event: Event) -> None:
        if self._fitting or event["event"] != "step":  # steps outside `fit` may be endless
            self.history.add(event)
        self._epochs = self._epochs or event["event"] in ("epoch", "eval")
        for listener in self._listeners:
            listener(event)
        if event["event"] == "save":
            late = time.monotonic() - self._written >= _SECONDS
            if late or self._epochs:
                self._write()

    def keep_epochs(self) -> None:
        """Write what is known of finished epochs, which a checkpoint no longer knows."""
        if self._epochs:
            self._write()

    @property
    def heard(self) -> bool:
        """Whether anyone is listening to events now."""
        return bool(self._listeners)

    @contextlib.contextmanager
    def with_listener(self, listener: Listener | None) -> Iterator[None]:
        """Within the block, also call this listener, before the others."""
        if listener is None:
            yield
            return
        self._listeners.insert(0, listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Within the block, record every step; at its end, write history and picture, even after
        an exception."""
        self._fitting = True
        try:
            yield
        finally:
            self._fitting = False
            self._write(picture=True)

    def resumed(self, checkpoint: Path, step: int) -> None:
        """Continue the history stored with a checkpoint, up to its step."""
        if not self.history.last:
            with contextlib.suppress(EdgetrainError):  # a link; `_write` reports it
                self.history = History.read(checkpoint.parent / HISTORY_FILE)
        self.history.cut(step)

    def _write(self, picture: bool = False) -> None:
        """Write both files; only warn on failure, because training needs neither."""
        folder = self._folder
        if folder is None or folder.newest is None or not self.history.last:
            return
        self._written, self._epochs = time.monotonic(), False
        try:
            self.history.write(folder.path / HISTORY_FILE)
            if picture:
                from ...screen.curve import draw_curve

                draw_curve(self.history, folder.path)
        except EdgetrainError as error:
            for listener in self._listeners:
                listener({"event": "warning", "message": str(error)})
